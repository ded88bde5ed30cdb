"""Removes files of a place: exactly those that are named, a thousand at a time."""

from __future__ import annotations

from itertools import islice
from typing import Iterable

from petctl.storage.stores.endpoint import Entry
from petctl.storage.transfer.plan import End

_AT_ONCE = 1000


def remove_all(end: End, entries: Iterable[Entry]) -> int:
    """Removes entries whose paths are relative to the end; says how many."""
    count = 0
    stream = iter(entries)
    while batch := [end.join(entry.path) for entry in islice(stream, _AT_ONCE)]:
        end.place.remove(batch)
        count += len(batch)
    return count
