"""Files of ACT's users to plain values: YAML and JSON by petctl's own readers, every problem with its place.

Text stays text: what a value means is said by the function that its key has (`Checks`), never guessed from its looks.
A key without a value is as if it were not there. What keys there are is not known here. A file that another user owns
or may change is refused, and what was checked is what is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from petctl.errors import UsageError
from petctl.job.spec.document import Builder, Document
from petctl.job.spec.problems import FieldError, Problem, unknown_field

BASE = "_base_"
LARGEST = 1 << 20
MOST_BASES = 20

Checks = Mapping[str, Callable[[object], object]]


class Read(NamedTuple):
    """A file that was parsed."""

    path: Path
    document: Document
    builder: Builder

    @property
    def root(self) -> dict[str, Any]:
        found = self.document.root
        return found if isinstance(found, dict) else {}


def read_document(path: Path) -> Read:
    """A YAML or JSON file; its syntax is right and it is a mapping, or UsageError says what is wrong, and where."""
    builder = Builder(str(path))
    text = _text(path)
    if path.suffix.lower() == ".json":
        from petctl.job.file.json_text import parse_json as parse
    else:
        from petctl.job.file.yaml_text import parse_yaml as parse
    document = parse(text, builder)
    if document.root is not None and not isinstance(document.root, dict):
        what = "a list" if isinstance(document.root, list) else "a text"  # which may be somebody's key
        raise UsageError(f"{path}: expected keys and values, got {what} instead")
    return Read(path, document, builder)


def checked(read: Read, checks: Checks) -> dict[str, Any]:
    """The file's values, converted; UsageError tells everything that is wrong, each with its place."""
    from petctl.job.file.read import located

    found, problems = converted(read.root, checks)
    if problems or read.builder.problems:
        raise UsageError(located(read.document, read.builder, problems))
    return found


def converted(said: Mapping[str, Any], checks: Checks) -> tuple[dict[str, Any], list[Problem]]:
    """Values by their keys' functions, and every problem. None stays: it takes back what a base said."""
    found: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, value in said.items():
        if name not in checks:
            hint = "; add _base_, or repeat the keys" if name == "<<" else ""
            problems.append(unknown_field(str(name), checks, hint))
            continue
        try:
            found[name] = None if value is None else checks[name](value)
        except FieldError as error:
            problems += [problem.under(name) for problem in error.problems]
    return found, problems


def with_bases(path: Path, checks: Checks) -> dict[str, Any]:
    """A file's values over those of the file that its `_base_` names, and so on; UsageError where that goes round."""
    chain: list[Path] = []
    files: list[dict[str, Any]] = []
    here: Path | None = path
    while here is not None:
        real = here.resolve()
        if real in chain or len(chain) == MOST_BASES:
            way = " -> ".join(str(one) for one in [*chain, real])
            raise UsageError(f"{path}: {BASE} forms a cycle: {way}; remove one of them")
        if chain and not here.is_file():
            raise UsageError(f"{chain[-1]}: there is no file {here}, which {BASE} names; it is relative to that file")
        chain.append(real)
        said = checked(read_document(here), checks)
        base = said.pop(BASE, None)
        files.append(said)
        here = here.parent / user_path(base) if base else None
    merged: dict[str, Any] = {}
    for said in reversed(files):
        merged = over(merged, said)
    return merged


def over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """One over the other, mapping by mapping."""
    merged = dict(below)
    for name, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = over(merged[name], value) if both else value
    return merged


def user_path(text: str) -> Path:
    """A path as a user writes it; a ~ that names nobody stays what it is."""
    return Path(os.path.expanduser(text))  # noqa: PTH111  pathlib raises there


def _text(path: Path) -> str:
    from petctl.config.settings import open_obeyed

    try:
        # every one of them, bases and accounts too: they say where code goes and what opens it
        with os.fdopen(open_obeyed(path.absolute()), "rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise UsageError(f"{path}: larger than 1 MiB, too large for a configuration; is this the right file?")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text; save the file as UTF-8") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
