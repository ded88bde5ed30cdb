"""A set of entries of any size in bounded memory: a private SQLite database that the system deletes by itself.

Stores list in orders of their own (and not all keep to one), so two listings are compared by lookup, not by merging.
"""

from __future__ import annotations

import sqlite3
from typing import Iterable, Iterator

from petctl.storage.stores.endpoint import Entry

_BATCH = 5000


class Index:
    """Entries by path."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", check_same_thread=False)  # a temporary file, gone with the connection
        self._database.execute("PRAGMA cache_size = -16000")
        self._database.execute(
            "CREATE TABLE entries (path TEXT PRIMARY KEY, size INTEGER, modified REAL, tag TEXT) WITHOUT ROWID"
        )
        self.count = 0
        self.bytes = 0

    def add(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Passes entries on, one by one, after they have been taken in."""
        batch: list[Entry] = []
        for entry in entries:
            batch.append(entry)
            if len(batch) == _BATCH:
                yield from self._keep(batch)
                batch = []
        yield from self._keep(batch)

    def take(self, entries: Iterable[Entry]) -> Index:
        """Takes in all of them."""
        for _ in self.add(entries):
            pass
        return self

    def get(self, path: str) -> Entry | None:
        """The entry of that path."""
        row = self._database.execute("SELECT * FROM entries WHERE path = ?", (path,)).fetchone()
        return Entry(*row) if row else None

    def __iter__(self) -> Iterator[Entry]:
        for row in self._database.execute("SELECT * FROM entries ORDER BY path"):
            yield Entry(*row)

    def close(self) -> None:
        """Gives the room back."""
        self._database.close()

    def _keep(self, batch: list[Entry]) -> list[Entry]:
        rows = [(entry.path, entry.size, entry.modified, entry.tag) for entry in batch]
        self._database.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", rows)
        self.count += len(batch)
        self.bytes += sum(entry.size for entry in batch)
        return batch
