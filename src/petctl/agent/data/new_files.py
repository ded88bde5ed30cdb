"""Files that a job has written into its copy of the code: they are results, wherever it runs.

    COPY.files        what was unpacked, and built before the first worker: {PATH: [SIZE, TIME]}
    new_files(COPY)   what has been added or changed since

Caches of Python are nobody's result; what lies behind a link belongs to somebody else. Where the new files go is
decided by the caller.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from typing import Dict, Iterator, List, Tuple

from petctl.files import replace_json

PLACE = "beside-code"  # their folder among the outputs
_CACHES = ("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".ipynb_checkpoints")
_NAMED = 5  # in a sentence


def note_files(copy: str, beside: str = "") -> None:
    """Notes what is in a copy now, in a file beside it, or beside the directory that it will be."""
    found = {relative: _facts(status) for relative, _, status in _walk(copy)}
    replace_json(_index(beside or copy), found)


def note_built(copy: str) -> None:
    """The same after a preparation, whose products are no results; once, before any worker can have written."""
    mark = copy + ".built"
    if not os.path.exists(mark) and os.path.exists(_index(copy)):
        note_files(copy)
        with open(mark, "w"):
            pass


def _index(copy: str) -> str:
    return copy + ".files"


def new_files(copy: str) -> Iterator[Tuple[str, str]]:
    """Relative name and path of each; none where nobody knows what was there before."""
    try:
        with open(_index(copy), encoding="utf-8", errors="surrogateescape") as file:
            known: Dict[str, List[int]] = json.load(file)
    except (OSError, ValueError):
        return
    for relative, path, status in _walk(copy):
        if known.get(relative) != _facts(status):
            yield relative, path


def keep_new_files(copy: str, outputs: str) -> str:
    """Moves them to the job's outputs; the sentence that names them, empty where there are none."""
    kept, left, why = [], [], ""
    for relative, path in list(new_files(copy)):
        target = _free(os.path.join(outputs, PLACE, relative))
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.move(path, target)
        except OSError as error:
            left.append(relative)
            why = error.strerror or str(error)
        else:
            kept.append(os.path.relpath(target, os.path.join(outputs, PLACE)))
    parts = [f"written beside the code, now in {os.path.join(outputs, PLACE)}: {_named(kept)}"] if kept else []
    if left:
        parts.append(f"written beside the code, and still in {copy} ({why}): {_named(left)}")
    return "; ".join(parts)


def unsaved_files(names: List[str], directory: str) -> str:
    """Tells of files of a node elsewhere that nothing sends. `directory`: where they stay, if they do."""
    which = "1 file it wrote is" if len(names) == 1 else f"{len(names)} files it wrote are"
    where = f"only on its machine, in {directory}" if directory else "lost with its pod"
    return f"{which} {where}: {_named(names)}; a store (--store) keeps such files"


def _named(names: List[str]) -> str:
    """The first few, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _free(path: str) -> str:
    """This name, or one like it that nothing has."""
    number, (stem, ending) = 1, os.path.splitext(path)
    while os.path.lexists(path):
        number += 1
        path = f"{stem}-{number}{ending}"
    return path


def _facts(status: os.stat_result) -> List[int]:
    return [status.st_size, status.st_mtime_ns]


def _walk(root: str) -> Iterator[Tuple[str, str, os.stat_result]]:
    """Regular files below a directory, through no link: relative name, path, status."""
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        try:
            entries = sorted(os.scandir(os.path.join(root, prefix)), key=lambda entry: entry.name)
        except OSError:
            continue  # removed meanwhile
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                yield prefix + entry.name, entry.path, status
            elif stat.S_ISDIR(status.st_mode) and entry.name not in _CACHES:
                waiting.append(f"{prefix}{entry.name}/")
