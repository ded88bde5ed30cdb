"""Node slots of this machine: how many nodes may run at once over all jobs, and who is next.

There is no daemon. Each job has one row in a SQLite file; the row is a place in the queue until it holds slots.
Supervisors look again every moment, and each look is one transaction, so two can never take the same slot. Order:
higher priority first, then first come, first served; the head of the queue waits for its `min` and nobody overtakes
it. A row whose job nobody looks after any more is dropped by whoever finds it in the way.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator, List, Tuple

from petctl.errors import InternalError, NoRoom, PetctlError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS claims (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    job TEXT NOT NULL UNIQUE,
    priority INTEGER NOT NULL,
    minimum INTEGER NOT NULL,
    granted INTEGER NOT NULL DEFAULT 0,
    entered REAL NOT NULL
)
"""
# How SQLite says that the disk, or the user's share of it, is full.
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_WRITE)


def default_slots() -> int:
    return max(16, os.cpu_count() or 1)


@dataclass(frozen=True)
class Standing:
    """Where a job stands: with slots, or in line."""

    granted: int
    ahead: int
    minimum: int
    total: int
    free: int

    def sentence(self) -> str:
        jobs = f"{self.ahead} job{'' if self.ahead == 1 else 's'} ahead"
        return f"queued: {jobs}, needs {self.minimum} of {self.total} node slots, {self.free} free"


class Slots:
    """The queue as one job sees it. `alive(job, age)` says whether anybody looks after another, `age` seconds old."""

    def __init__(self, home: Path, total: int, alive: Callable[[str, float], bool]) -> None:
        self.path = home / "clusters" / "local" / "slots.db"
        self.total, self.alive = total, alive

    def enter(self, job: str, priority: int, minimum: int) -> None:
        """Takes a place in the queue; entering again keeps the first place."""
        with self._transaction() as database:
            database.execute(
                "INSERT OR IGNORE INTO claims (job, priority, minimum, entered) VALUES (?, ?, ?, ?)",
                (job, priority, minimum, time.time()),
            )

    def hold(self, job: str, priority: int, count: int) -> int:
        """Makes sure of at least `count` slots for nodes that run already, free or not; says how many the job has."""
        with self._transaction() as database:
            database.execute(
                "INSERT INTO claims (job, priority, minimum, granted, entered) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (job) DO UPDATE SET granted = max(granted, excluded.granted)",
                (job, priority, count, count, time.time()),
            )
            row = database.execute("SELECT granted FROM claims WHERE job = ?", (job,)).fetchone()
            return int(row[0])

    def claim(self, job: str, wanted: int) -> Standing:
        """Takes up to `wanted` slots if it is this job's turn and its minimum is free; then again to take more."""
        with self._transaction() as database:
            standing = self._try(database, job, wanted)
            if standing.granted < wanted and self._drop_stale(database, job):
                standing = self._try(database, job, wanted)
            return standing

    def keep(self, job: str, count: int) -> None:
        """Gives back all but `count` slots."""
        with self._transaction() as database:
            database.execute("UPDATE claims SET granted = ? WHERE job = ? AND granted > ?", (count, job, count))

    def release(self, job: str) -> None:
        """Gives everything back, or leaves the queue."""
        with self._transaction() as database:
            database.execute("DELETE FROM claims WHERE job = ?", (job,))

    def _try(self, database: sqlite3.Connection, job: str, wanted: int) -> Standing:
        rows: List[Tuple[str, int, int]] = database.execute(
            "SELECT job, minimum, granted FROM claims ORDER BY priority DESC, place"
        ).fetchall()
        free = max(0, self.total - sum(granted for _, _, granted in rows))
        minimum, granted = next(((m, g) for name, m, g in rows if name == job), (self.total + 1, 0))
        waiting = [name for name, _, held in rows if not held]
        ahead = waiting.index(job) if job in waiting else 0
        take = 0
        if granted == 0 and ahead == 0 and free >= minimum:
            take = min(max(wanted, minimum), free)
        elif 0 < granted < wanted and not waiting:
            take = min(wanted - granted, free)
        if take:
            database.execute("UPDATE claims SET granted = granted + ? WHERE job = ?", (take, job))
        return Standing(granted + take, ahead, minimum, self.total, free)

    def _drop_stale(self, database: sqlite3.Connection, own: str) -> bool:
        now = time.time()
        rows = database.execute("SELECT job, entered FROM claims WHERE job != ?", (own,)).fetchall()
        stale = [job for job, entered in rows if not self.alive(job, now - entered)]
        database.executemany("DELETE FROM claims WHERE job = ?", [(job,) for job in stale])
        return bool(stale)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(sqlite3.connect(self.path, timeout=30.0, isolation_level=None)) as database:
                database.execute("PRAGMA journal_mode = WAL")
                database.execute("BEGIN IMMEDIATE")
                try:
                    database.execute(_SCHEMA)
                    yield database
                    database.execute("COMMIT")
                except BaseException:
                    if database.in_transaction:  # after some errors SQLite itself has rolled back
                        database.execute("ROLLBACK")
                    raise
        except sqlite3.DatabaseError as error:
            raise self._explained(error) from None

    def _explained(self, error: sqlite3.DatabaseError) -> PetctlError:
        if getattr(error, "sqlite_errorcode", None) in _NO_ROOM:
            return NoRoom(f"cannot use the node slots' file {self.path}: {error}; make room on its disk")
        return InternalError(f"cannot use the node slots' file {self.path}: {error}; remove it if it is damaged")
