"""The one reader of files with places: YAML or JSON on the disk to a `Document`. What the fields mean is the caller's.

It serves petctl's job files, descriptions of clusters and points of sweeps, and the files of the systems whose front
ends are in `compat/`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import IO, Any

from petctl.errors import SpecError
from petctl.job.spec.document import Builder, Document

LARGEST_FILE = 1 << 20


def read_document(
    path: str | os.PathLike[str],
    what: str = "job file",
    opener: Callable[[str, int], int] | None = None,
    json: bool = False,
) -> Document:
    """A file's tree; SpecError where it cannot be read, or its syntax is wrong. `what`: what it should be, for
    messages; `opener`: as `open` has it; `json`: it is JSON under any name."""
    name = os.fspath(path)
    text = read_text(name, what, opener=opener)
    # Each parser is imported only when it is needed: PyYAML costs as much as the rest of petctl.job.spec.
    if json or name.lower().endswith(".json"):
        from petctl.job.file.json_text import parse_json as parse
    else:
        from petctl.job.file.yaml_text import parse_yaml as parse
    return parse(text, Builder(name))


def read_text(name: str, what: str, largest: int = LARGEST_FILE, opener: Any = None) -> str:
    """A file's text; SpecError where there is none, or it is not what it should be."""
    file: IO[bytes]
    try:
        with open(name, "rb", opener=opener) as file:
            data = file.read(largest + 1)
    except FileNotFoundError:
        raise SpecError(f"{name}: no such file") from None
    except IsADirectoryError:
        raise SpecError(f"{name}: is a directory, not a {what}") from None
    except (OSError, ValueError) as error:
        raise SpecError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > largest:
        raise SpecError(f"{name}: larger than {largest >> 20} MiB, too large for a {what}; is this the right file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SpecError(f"{name}:{line}: not UTF-8 text; save the file as UTF-8") from None
