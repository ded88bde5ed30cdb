"""What a snapshot is: one line per entry, and the name that follows from these lines.

    MODE SIZE SHA256 PATH\\n        MODE: 644 or 755 for files, link for symbolic links (SIZE 0, SHA256 of the target)

Lines are sorted by the bytes of their path. Owner, time and compression are not in it, so the same code has the same
id wherever and whenever it is taken. It must not read files: it is told what they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

LINK = "link"
PLAIN = "644"
EXECUTABLE = "755"


class Entry(NamedTuple):
    """A file or link of a snapshot; `target` is what a link says."""

    path: str
    mode: str
    size: int
    digest: str
    target: str = ""


def link(path: str, target: str) -> Entry:
    """The entry of a symbolic link."""
    return Entry(path, LINK, 0, hashlib.sha256(target.encode()).hexdigest(), target)


def ordered(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """In the manifest's order: code points sort as the bytes of their UTF-8 do."""
    return tuple(sorted(entries))


def text_of(entries: Iterable[Entry]) -> str:
    """The manifest of ordered entries."""
    return "".join([f"{mode} {size} {digest} {path}\n" for path, mode, size, digest, _ in entries])


def id_of(entries: Iterable[Entry]) -> str:
    """The name of the snapshot that has these ordered entries."""
    return hashlib.sha256(text_of(entries).encode()).hexdigest()
