"""What a transfer needs of either end: the same verbs for a bucket and for a folder of this machine.

`Entry.path` is the whole path inside the place's root (a key, or an absolute file name); a listing's paths are relative
to the folder that was listed.
"""

from __future__ import annotations

from typing import Iterator, NamedTuple, Protocol, Sequence, runtime_checkable

from petctl.storage.core.body import Body
from petctl.storage.core.checksums import Kinds, Known, Sum
from petctl.storage.stores.location import Location


class Entry(NamedTuple):
    """A file or object; `tag` changes whenever its content does, where the place knows such a thing."""

    path: str
    size: int
    modified: float
    tag: str = ""
    folder: bool = False


class Sink(Protocol):
    """A large file on its way in, part by part; nothing is visible before `finish`."""

    part: int
    kinds: Kinds  # the checksums that it wants to be told of each part
    there: dict[int, Sum]  # the parts that have arrived before
    trusted: bool  # those are known to be of this very source

    def finish(self, sums: Sequence[Sum]) -> None: ...

    def discard(self) -> None:
        """Something of what arrived is damaged: the next run begins anew."""
        ...

    def leave(self) -> None:
        """Lets go of it, for a later run to take up."""
        ...


@runtime_checkable
class PartSink(Sink, Protocol):
    """One that takes whole parts: a store."""

    def send(self, number: int, body: Body, known: Sum) -> None: ...


@runtime_checkable
class StreamSink(Sink, Protocol):
    """One that takes bytes as they come: a file."""

    def receive(self, first: int, pieces: Iterator[memoryview], kinds: Kinds) -> Iterator[Sum]:
        """Writes pieces from the beginning of a part on; tells of each part as it is complete."""
        ...


class Endpoint(Protocol):
    """One end of a transfer."""

    location: Location

    def entries(self, path: str) -> Iterator[Entry]:
        """Everything below a folder, as a stream, paths relative to it."""
        ...

    def own_entries(self, path: str) -> Iterator[Entry]:
        """The same, but never through a link to a folder: what lies behind it belongs to somebody else."""
        ...

    def children(self, path: str) -> Iterator[Entry]:
        """What is directly in a folder, as a stream, paths relative to it."""
        ...

    def holds(self, path: str) -> bool:
        """Whether it is a folder: something is below it."""
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

    def stream(self, entry: Entry, offset: int, length: int) -> Iterator[memoryview]:
        """The same in pieces, each good only until the next one is asked for."""
        ...

    def close(self, entry: Entry) -> None:
        """No more of it is wanted."""
        ...

    def tidy(self, path: str) -> None:
        """Removes what a large file that is complete may have beside it since an earlier run was killed."""
        ...

    def check_may_look(self) -> None:
        """Raises Refused where the keys do not permit to ask what is there."""
        ...

    def known(self, entry: Entry) -> Known:
        """The checksums of a large file that its reader can compare with what arrived."""
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
