"""Files of mapped folders: what ACT's `ls`, `u`, `d`, `rm` and `url` do, between this machine and the clusters' blobs.

A path is one of the project's, wherever it is: here, or at the place that its folder is mapped to (`paths.py`). All but
`listed` take a path exactly; that one takes the beginning of names, as ACT does. Bytes are moved by
`petctl.storage.stores`; nothing is printed or asked here.
"""

from __future__ import annotations

import os
import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Callable, Iterator, NamedTuple

from petctl.compat.act.paths import Spot, account_file, find_spot, opens, told
from petctl.errors import NoSuchPlace, UsageError

if TYPE_CHECKING:
    from petctl.compat.act.config.config import BlobFolder, Config
    from petctl.storage.stores.endpoint import Entry
    from petctl.storage.stores.location import Location
    from petctl.storage.transfer.plan import End
    from petctl.storage.transfer.transfer import Tally

LINK_DAYS = 30
"""How long a link works where nobody says."""

Progress = Callable[["Tally"], AbstractContextManager[object]]
"""Shows a tally for as long as it is entered."""


class Item(NamedTuple):
    """A file of a mapped folder: its name as the user writes it, its size, and when it was written."""

    name: str
    size: int
    time: float


class Moved(NamedTuple):
    """What a transfer did; `same`: nothing, since both ends are one and the same."""

    source: str
    target: str
    tally: Tally
    same: bool = False


def listed(config: Config, prefix: str) -> list[Item]:
    """Every file whose name begins so, in the order of people: img2 before img10."""
    spot = find_spot(config, prefix)
    folder, _, rest = spot.path.partition("/")
    with told(spot.place):
        entries = _beginning(find_spot(config, folder), rest + "/" if rest and spot.there.slash else rest)
        found = [
            Item(f"{folder}/{entry.path}", entry.size, entry.modified)
            for entry in entries
            if not entry.folder and not entry.path.endswith("/")
        ]
    return sorted(found, key=lambda item: natural_order(item.name))


def upload(config: Config, path: str, source: Config | None = None, progress: Progress | None = None) -> Moved:
    """Copies a file or folder to where it belongs: from this machine, or from another configuration's blobs."""
    target = find_spot(config, path)
    if source is None:
        return _move(target.here, None, target.there, target.place, path, progress)
    origin = find_spot(source, path)
    return _move(origin.there, origin.place, target.there, target.place, path, progress)


def download(config: Config, path: str, progress: Progress | None = None) -> Moved:
    """Copies a file or folder from where it belongs to this machine."""
    spot = find_spot(config, path)
    return _move(spot.there, spot.place, spot.here, None, path, progress)


def count(config: Config, path: str) -> int:
    """How many files `remove` would remove."""
    spot = find_spot(config, path)
    with told(spot.place):
        end = _existing(spot)
        if end.entry is not None:
            return 1
        return sum(not entry.folder for entry in end.place.own_entries(end.path))


def remove(config: Config, path: str) -> int:
    """Removes a file, or a folder with everything in it, never what only begins so; says how many files."""
    from petctl.storage.stores.folder import LocalFolder
    from petctl.storage.transfer.plan import remove_all

    spot = find_spot(config, path)
    with told(spot.place):
        end = _existing(spot)
        if end.entry is not None:
            end.place.remove([end.path])
            return 1
        marks: list[str] = []
        removed = remove_all(end, _files(end, marks))
        for mark in sorted(marks, reverse=True):  # the inner ones first: some stores keep a folder that holds something
            end.place.remove([mark])
        if isinstance(end.place, LocalFolder):
            end.place.remove_empty(end.path)
        return removed


def url(config: Config, path: str, days: float = LINK_DAYS) -> str:
    """A link with which anybody can read one file, and do nothing else, for so many days."""
    from petctl.storage.stores.bucket import Bucket

    spot = find_spot(config, path)
    if spot.there.kind != "az":
        raise UsageError(f"{path} is in a file share, {spot.there}; a link needs a blob")
    if not spot.place.account.key:
        raise UsageError(
            f"a link needs the account's key, and {account_file(spot.place)} has none; a link made with its SAS "
            f"would grant everything that the SAS permits. Add account_key, or ask its owner for a link"
        )
    with told(spot.place):
        end = _existing(spot)
        if end.entry is None:
            raise UsageError(f"{path} is a folder; a link needs one file. See what is in it with: a ls {path}")
        assert isinstance(end.place, Bucket)
        return end.place.url(end.path, int(days * 24 * 3600))


def exists(config: Config, path: str) -> bool:
    """Whether a file or folder is there, in the blob container."""
    end = _opened(config, path)
    return end.entry is not None or end.folder


def file_exists(config: Config, path: str) -> bool:
    """Whether a file is there."""
    return _opened(config, path).entry is not None


def dir_exists(config: Config, path: str) -> bool:
    """Whether a folder is there: a file lies below it."""
    return _opened(config, path if path.endswith("/") else f"{path}/").folder


def info(config: Config, path: str) -> Item:
    """Size and time of one file in the blob container."""
    spot = find_spot(config, path)
    with told(spot.place):
        entry = _existing(spot).entry
    if entry is None:
        raise UsageError(f"{path} is a folder; name a file in it, as a ls {path} shows them")
    return Item(spot.path, entry.size, entry.modified)


def natural_order(name: str) -> list[str | int]:
    """For sorting: numbers in names count as numbers."""
    return [int(part) if number % 2 else part for number, part in enumerate(re.split(r"(\d+)", name))]


def _opened(config: Config, path: str) -> End:
    from petctl.storage.transfer.plan import open_end

    spot = find_spot(config, path)
    with told(spot.place):
        return open_end(spot.there, opens(spot.place))


def _existing(spot: Spot) -> End:
    from petctl.storage.transfer.plan import open_source

    return open_source(spot.there, opens(spot.place))


def _beginning(whole: Spot, rest: str) -> Iterator[Entry]:
    """What a mapped folder has under names that begin so; paths from that folder."""
    from petctl.storage.stores.bucket import Bucket
    from petctl.storage.transfer.plan import open_end

    end = open_end(replace(whole.there, slash=True), opens(whole.place))
    end.place.check_may_look()
    if not isinstance(end.place, Bucket):
        below = end.place.own_entries(end.path) if end.folder else iter(())
        yield from (entry for entry in below if entry.path.startswith(rest))
        return
    begin = end.join("")
    for entry in end.place.beginning(begin + rest):
        yield entry._replace(path=entry.path[len(begin) :])


def _files(end: End, marks: list[str]) -> Iterator[Entry]:
    """What is below a folder, without the marks of folders; those are noted, its own among them."""
    from petctl.storage.stores.bucket import Bucket

    if end.path and isinstance(end.place, Bucket):
        own = next(end.place.beginning(end.path), None)
        if own is not None and own.folder and own.path == end.path:
            marks.append(own.path)
    for entry in end.place.own_entries(end.path):
        if entry.folder:
            marks.append(end.join(entry.path))
        else:
            yield entry


def _move(
    source: Location,
    origin: BlobFolder | None,
    target: Location,
    goal: BlobFolder | None,
    path: str,
    progress: Progress | None,
) -> Moved:
    """`origin` and `goal`: the mapped folders of the ends, where they are not on this machine."""
    from petctl.storage.transfer.plan import open_end, open_source
    from petctl.storage.transfer.transfer import Tally, transfer

    moved = Moved(str(source), str(target), Tally())
    with told(origin, goal):
        if _address(source, origin) == _address(target, goal):
            return moved._replace(same=True)
        if origin is None and not os.path.exists(source.path):  # noqa: PTH110
            raise NoSuchPlace(f"{path} is not here ({source}); see what is in the blob container with: a ls {path}")
        first = open_source(source, opens(origin))
        second = open_end(target, opens(goal))
        file, folder = (first, second) if first.entry is not None else (second, first)
        if file.entry is not None and folder.folder:
            raise UsageError(
                f"{path} is a file at {file.location} and a folder at {folder.location}; remove or rename one of them"
            )
        with progress(moved.tally) if progress is not None else nullcontext():
            transfer(first, replace(second, location=replace(second.location, slash=False)), moved.tally)
    return moved


def _address(location: Location, place: BlobFolder | None) -> tuple[str, str]:
    """What two names of one thing have in common."""
    from petctl.storage.stores.credentials import find_access

    endpoint = find_access(location, opens(place)).endpoint if place is not None else ""
    return endpoint, str(replace(location, slash=False))
