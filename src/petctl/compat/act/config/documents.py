"""Files of ACT's users to plain values, each with those of its bases below it; every problem with its place.

Text stays text: what a value means is said by the shape that the caller hands in. A key without a value takes back what
a base said. A file that another user owns or may change is refused, and what was checked is what is read: bases and
accounts say where code goes and what opens it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from petctl.errors import UsageError
from petctl.job.file.documents import read_document
from petctl.job.spec.document import Document
from petctl.job.spec.shape import Shape, examine

BASE = "_base_"
MOST_BASES = 20


def read_configuration(path: Path) -> Document:
    """A YAML or JSON file; its syntax is right and it is a mapping, or UsageError says what is wrong, and where."""
    from petctl.config.settings import open_obeyed

    document = read_document(path, "configuration", lambda name, flags: open_obeyed(Path(name).absolute()))
    if not isinstance(document.root or {}, dict):
        what = "a list" if isinstance(document.root, list) else "a text"  # which may be somebody's key
        raise UsageError(f"{path}: expected keys and values, got {what} instead")
    return document


def checked(path: Path, shape: Shape) -> dict[str, Any]:
    """A file's values, converted; UsageError tells everything that is wrong, each with its place."""
    document = read_configuration(path)
    found, problems = examine(shape, document.root or {}, keep_none=True)
    document.check(
        problem._replace(sentence="unknown field; add _base_, or repeat the keys")
        if problem.path == ("<<",)
        else problem
        for problem in problems
    )
    return found


def with_bases(path: Path, shape: Shape) -> dict[str, Any]:
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
        said = checked(here, shape)
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
