"""A cache of the statuses of ended jobs, in SQLite, so that `list` does not open every job that there ever was.

The truth is with each cluster; this file may be deleted, corrupt, locked or on a full disk, and everything still
works, only slower. Only ended jobs are kept: their status cannot change any more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec

from petctl.files import make_private_directory, make_private_file
from petctl.jobs.status import Status

_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    cluster TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    submitted REAL NOT NULL,
    status BLOB NOT NULL,
    PRIMARY KEY (cluster, id)
);
CREATE TABLE IF NOT EXISTS clusters (name TEXT PRIMARY KEY);
"""
_Result = TypeVar("_Result")


class Registry:
    """The cache below one $PETCTL_HOME."""

    def __init__(self, home: Path) -> None:
        self.path = home / "registry.db"

    def know(self, cluster: str) -> None:
        """A job was submitted there."""
        self._try(lambda db: db.execute("INSERT OR IGNORE INTO clusters VALUES (?)", (cluster,)), None)

    def clusters(self) -> list[str]:
        """Where jobs were submitted to from here."""
        return self._try(lambda db: [name for (name,) in db.execute("SELECT name FROM clusters")], [])

    def ended(self, cluster: str) -> dict[str, Status]:
        """What is known of a cluster's ended jobs, by id."""

        def read(database: sqlite3.Connection) -> dict[str, Status]:
            found = {}
            for job_id, status in database.execute("SELECT id, status FROM jobs WHERE cluster = ?", (cluster,)):
                try:
                    found[job_id] = msgspec.json.decode(status, type=Status)
                except msgspec.MsgspecError:
                    continue  # of another version: it will be read anew
            return found

        return self._try(read, {})

    def keep(self, statuses: Iterable[Status]) -> None:
        """Adds jobs that have ended, with all that belongs to that."""
        rows = [(s.cluster, s.id, s.name, s.state, s.submitted, msgspec.json.encode(s)) for s in _kept(statuses)]
        if rows:
            self._try(lambda db: db.executemany("INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?, ?)", rows), None)

    def forget(self, cluster: str, ids: Iterable[str]) -> None:
        """Drops jobs that are not there any more."""
        rows = [(cluster, job_id) for job_id in ids]
        if rows:
            self._try(lambda db: db.executemany("DELETE FROM jobs WHERE cluster = ? AND id = ?", rows), None)

    def _try(self, act: Callable[[sqlite3.Connection], _Result], otherwise: _Result) -> _Result:
        """Acts on the database; a broken one is thrown away, and no trouble with it ever reaches the user."""
        for _ in range(2):
            try:
                make_private_directory(self.path.parent)
                make_private_file(self.path)
                with closing(sqlite3.connect(self.path, timeout=2.0)) as database:
                    database.execute("PRAGMA journal_mode = WAL")
                    database.executescript(_SCHEMA)
                    with database:
                        return act(database)
            except sqlite3.OperationalError:
                return otherwise  # locked, read-only, disk full
            except sqlite3.DatabaseError:
                for suffix in ("", "-wal", "-shm"):
                    self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
            except OSError:
                return otherwise
        return otherwise


def _kept(statuses: Iterable[Status]) -> Iterable[Status]:
    return (status for status in statuses if status.final and not status.unattended)
