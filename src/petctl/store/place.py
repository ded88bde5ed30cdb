"""What a transfer needs of either end: the same verbs for a bucket and for a folder of this machine.

`Entry.path` is the whole path inside the place's root (a key, or an absolute file name); a listing's paths are relative
to the folder that was listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Protocol, Sequence

from petctl.store.body import Body
from petctl.store.location import Location


@dataclass(frozen=True)
class Entry:
    """A file or object; `tag` changes whenever its content does, where the place knows such a thing."""

    path: str
    size: int
    modified: float
    tag: str = ""
    folder: bool = False


class Sink(Protocol):
    """A large file on its way in, part by part; nothing is visible before `finish`."""

    part: int
    there: dict[int, bytes]  # number -> MD5 of the parts that have arrived before
    trusted: bool  # those are known to be of this very source

    def send(self, number: int, body: Body, md5: bytes) -> None: ...

    def finish(self, md5s: Sequence[bytes]) -> None: ...

    def leave(self) -> None:
        """Lets go of it, for a later run to take up."""
        ...


class Place(Protocol):
    """One end of a transfer."""

    location: Location

    def entries(self, path: str) -> Iterator[Entry]:
        """Everything below a folder, as a stream, paths relative to it."""
        ...

    def children(self, path: str) -> Iterator[Entry]:
        """What is directly in a folder, as a stream, paths relative to it."""
        ...

    def find(self, path: str) -> Entry | None:
        """The file at exactly this path."""
        ...

    def whole(self, entry: Entry) -> Body:
        """All of a small file, verified."""
        ...

    def slice(self, entry: Entry, offset: int, length: int) -> Body:
        """A part of a large file, of the very version that the entry describes."""
        ...

    def close(self, entry: Entry) -> None:
        """No more slices of it are wanted."""
        ...

    def checksum(self, entry: Entry) -> str:
        """MD5 in hex, or that of the parts (HEX-COUNT) where the parts are petctl's own; empty when nobody knows it."""
        ...

    def check_unchanged(self, entry: Entry) -> None:
        """Raises Damaged if the file is not what it was when it was listed."""
        ...

    def put(self, path: str, body: Body, source: Entry) -> None:
        """Makes a small file, visible when it is complete."""
        ...

    def sink(self, path: str, source: Entry, identity: str) -> Sink | None:
        """The way in for a large file; None where the place offers none."""
        ...

    def remove(self, paths: Sequence[str]) -> None:
        """Removes exactly these files."""
        ...
