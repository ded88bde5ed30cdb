"""What a transfer has to do: what the two locations are, which files go where, and which are there already.

Nothing is moved here. A folder's content goes to exactly the target's path; a single file goes to the target's path, or
into it when it ends with a slash or is a folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Iterable, Iterator, NamedTuple

from petctl.errors import NoSuchPlace, StoreError, UsageError
from petctl.storage.stores.credentials import Surroundings, resolve
from petctl.storage.stores.endpoint import Endpoint, Entry
from petctl.storage.stores.entry_index import Index
from petctl.storage.stores.folder import LocalFolder, is_empty
from petctl.storage.stores.location import Location
from petctl.storage.stores.signed import open_bucket

FEW = 256
_REMOVED_AT_ONCE = 1000
CLOCKS_DIFFER = 2.0
"""Seconds within which times prove nothing: stores keep whole seconds, by clocks of their own."""


@dataclass(frozen=True)
class End:
    """One end of a transfer: a place, the path in it, and what is there."""

    place: Endpoint
    location: Location
    path: str
    entry: Entry | None = None  # set when it is a single file
    folder: bool = False
    looked: bool = True  # false where the keys permit to write only

    def join(self, relative: str) -> str:
        """The path of something inside."""
        return f"{self.path.rstrip('/')}/{relative}" if self.path else relative


class Pair(NamedTuple):
    """One file and where it goes. `there` is what the target has under that path, if that is known already."""

    source: Entry
    target: str
    relative: str
    there: Entry | None = None
    looked: bool = False


def open_end(location: Location, surroundings: Surroundings) -> End:
    """A location, opened, with what is there: a file, a folder (something is below it) or nothing."""
    location = resolve(location, surroundings)
    path = location.path
    if location.local:
        place: Endpoint = LocalFolder()
    else:
        bucket = open_bucket(location, surroundings)
        if not bucket.may_look:
            return End(bucket, location, path, looked=False)
        place = bucket
    if path and not location.slash:
        entry = place.find(path)
        if entry is not None:
            return End(place, location, path, entry)
    return End(place, location, path, folder=place.holds(path))


def open_source(location: Location, surroundings: Surroundings) -> End:
    """The same for what must be there."""
    end = open_end(location, surroundings)
    end.place.check_may_look()
    if end.entry is None and not end.folder:
        raise NoSuchPlace(f"{location} does not exist (neither a file nor a folder)")
    return end


def check_apart(source: End, target: End) -> None:
    """A folder is not copied into itself."""
    if source.location.root == target.location.root and source.location.kind == target.location.kind:
        inside = f"{target.path.rstrip('/')}/".startswith(f"{source.path.rstrip('/')}/")
        if source.path == target.path or (source.entry is None and inside):
            raise UsageError(f"{target.location} lies in {source.location}: it would be copied into itself")


def pairs(source: End, target: End) -> Iterator[Pair]:
    """Every file of the source with its place in the target, as a stream."""
    if source.entry is not None:
        into = target.folder or target.location.slash
        name = source.path.rpartition("/")[2]
        path = target.join(name) if into or not target.path else target.path
        yield Pair(source.entry, path, name, looked=not target.looked)
        return
    if target.entry is not None:
        raise StoreError(
            f"{target.location} is a file, but {source.location} is a folder; choose a folder as the target"
        )
    listed = _files(source)
    first = []
    for entry in listed:
        first.append(entry)
        if len(first) == FEW:
            break
    index: Index | None = None
    # Where nothing is there, nothing has to be asked.
    empty = not target.folder or (target.location.local and is_empty(target.path))
    if not target.location.local and target.folder and len(first) == FEW:
        # One listing is cheaper than a question for each of very many files.
        index = Index().take(target.place.entries(target.path))
    for part in (first, listed):
        for entry in part:
            _check_name(entry.path, source)
            path = target.join(entry.path)
            there = index.get(entry.path) if index is not None else None
            if there is not None:
                there = there._replace(path=path)
            whole = Entry(source.join(entry.path), entry.size, entry.modified, entry.tag)
            yield Pair(whole, path, entry.path, there, looked=empty or index is not None)
    if index is not None:
        index.close()


def already_there(pair: Pair, source: Endpoint, target: Endpoint, checksum: bool = False) -> str:
    """Why nothing has to be sent, or nothing. Times decide where they can, checksums where they cannot."""
    there = pair.there if pair.looked else target.find(pair.target)
    if there is None or there.size != pair.source.size:
        return ""
    if there.size == 0:
        return "empty here and there"
    if not checksum:
        newer = there.modified - pair.source.modified
        if target.location.local and abs(newer) < 0.001:
            return "same size and time"
        if not target.location.local and newer >= CLOCKS_DIFFER:
            return "same size, unchanged since"
    known = target.checksum(there) if source.location.local else source.checksum(pair.source)
    if not known:
        return ""
    other = source.checksum(pair.source) if source.location.local else target.checksum(there)
    return "same checksum" if known == other else ""


def superfluous(source: End, target: End) -> Index:
    """What the target has and the source has not."""
    wanted = Index().take(_files(source))
    there = target.place.own_entries(target.path)
    extra = (entry for entry in there if not _stands_for_folder(entry) and wanted.get(entry.path) is None)
    try:
        return Index().take(extra)
    finally:
        wanted.close()


def remove_all(end: End, entries: Iterable[Entry]) -> int:
    """Removes entries whose paths are relative to the end; says how many."""
    count = 0
    stream = iter(entries)
    while batch := [end.join(entry.path) for entry in islice(stream, _REMOVED_AT_ONCE)]:
        end.place.remove(batch)
        count += len(batch)
    return count


def _files(source: End) -> Iterator[Entry]:
    return (entry for entry in source.place.entries(source.path) if not _stands_for_folder(entry))


def _stands_for_folder(entry: Entry) -> bool:
    """Whether it is one of the empty objects by which some tools make folders seen (`folder/`, or marked as one)."""
    return entry.folder or (entry.path.endswith("/") and not entry.size)


def _check_name(path: str, source: End) -> None:
    """Names that could leave the target, or that no store could keep."""
    inside = f"/{path}/"
    if "//" in inside or "/./" in inside or "/../" in inside or "\0" in path:
        raise StoreError(f"{source.location}: the name {path!r} cannot be a file's; rename that object first")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise StoreError(f"{source.location}: the name {path!r} is not UTF-8; rename that file first") from None
