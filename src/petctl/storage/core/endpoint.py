"""What a Depot needs of a grant, whether it is a bucket (`objects.py`) or a directory (`directory.py`)."""

from __future__ import annotations

from typing import Iterator, NamedTuple, Protocol, Sequence

from petctl.storage.core.body import Body
from petctl.storage.core.incoming_file import Incoming

PART_SUFFIX = ".petctl-part"
"""Of files that are not complete."""


class Entry(NamedTuple):
    """A file in a store; `tag` changes whenever its content does."""

    path: str
    size: int
    modified: float
    tag: str


class Endpoint(Protocol):
    """The files of one grant, by their paths below its prefix."""

    def shown(self, path: str) -> str: ...

    def entries(self) -> Iterator[Entry]: ...

    def sign_ahead(self, method: str, paths: Sequence[str]) -> None: ...

    def put(self, path: str, body: Body) -> str: ...

    def read(self, entry: Entry, incoming: Incoming) -> None: ...

    def remove(self, path: str) -> None: ...
