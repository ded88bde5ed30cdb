"""Node slots of a cluster on this machine, as a SQLite file: how many each job has, and who is next in line.

There is no daemon: each change is one transaction, so two can never take the same slot. Each job has one row, its
claim. The file is an order and a count, not the truth: that is in the job directories, from which it is made anew when
it is missing, or when the machine was restarted. Who gets slots is `scheduler.py`'s to decide and `queue.py`'s to bring
about; nothing here knows what a job is.
"""

from __future__ import annotations

import os
import sqlite3
import time
import zlib
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Callable, Iterable, Iterator, List, NamedTuple, Optional, Protocol

from petctl.clusters.local.processes import boot_id
from petctl.clusters.local.queue.scheduler import Claim, Decision, Fate, decide, growth
from petctl.errors import InternalError, NoRoom, NotFound, PetctlError
from petctl.files import make_private_directory, make_private_file

VERSION = 3
_SCHEMA = """
CREATE TABLE claims (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    job TEXT NOT NULL UNIQUE,
    priority INTEGER NOT NULL,
    minimum INTEGER NOT NULL,
    wanted INTEGER NOT NULL,
    slots INTEGER NOT NULL,
    granted INTEGER NOT NULL,
    entered REAL NOT NULL,
    called REAL NOT NULL,
    lives INTEGER NOT NULL,
    doubted REAL NOT NULL
)
"""
_COLUMNS = ", ".join(Claim._fields)
_INSERT = f"INSERT OR IGNORE INTO claims ({_COLUMNS}) VALUES ({', '.join('?' * len(Claim._fields))})"
# How SQLite says that the disk, or the user's share of it, is full.
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_WRITE)


class Capacity(Protocol):
    """How many slots a cluster has whose nodes come and go."""

    def total(self, database: sqlite3.Connection) -> int:
        """How many there are now; asked inside every transaction, after its changes, and may change tables of its
        own."""

    def expected(self) -> int:
        """How many there are or would be after the next transaction; changes nothing."""

    def committed(self) -> None:
        """That transaction holds: what it decided about nodes can be carried out."""

    def closed(self) -> bool:
        """Whether the cluster is deleted, or about to be: nobody new may wait there."""


def default_slots() -> int:
    """As many as there are processors, but enough to try things with."""
    return max(16, os.cpu_count() or 1)


def beginners() -> int:
    """How many jobs may begin at the same time: half of the processors are for those that do something else."""
    return max(1, (os.cpu_count() or 1) // 2)


class Settled(NamedTuple):
    """What was decided, and the line after it."""

    decision: Decision
    claims: List[Claim]
    total: Optional[int]  # None: each claim has its own


class Slots:
    """The claims on one cluster. `found()` gives those that follow from the job directories, for a file that is new.

    Without a `capacity` each claim carries the number of slots that its submitter's settings gave.
    """

    def __init__(
        self,
        home: Path,
        name: str = "local",
        capacity: Optional[Capacity] = None,
        found: Callable[[], Iterable[Claim]] = tuple,
    ) -> None:
        self.path = home / "clusters" / name / "slots.db"
        self.capacity, self._found = capacity, found
        self._open: Optional[sqlite3.Connection] = None

    # -- looking -------------------------------------------------------------------------------------------------------

    def claims(self) -> List[Claim]:
        """All claims, in the order of the line; nobody is kept waiting for it."""
        try:
            with self._connection(existing=True) as database:
                if _is_current(database):
                    return _read(database)
        except sqlite3.OperationalError:
            pass  # there is none yet, or whatever it is: the next line says so
        except sqlite3.DatabaseError as error:
            raise self._explained(error) from None
        with self.transaction() as database:
            return _read(database)

    def peek(self) -> List[Claim]:
        """All claims, without changing anything: where the file is missing or old, as it would be made anew."""
        place = f"{self.path.absolute().as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(place, uri=True, timeout=30.0, isolation_level=None)) as database:
                if _is_current(database):
                    return _read(database)
        except sqlite3.OperationalError:
            pass  # there is none yet, or a process was killed while it changed it
        except sqlite3.DatabaseError as error:
            raise self._explained(error) from None
        return sorted(self._found(), key=lambda claim: -claim.priority)

    # -- changing ------------------------------------------------------------------------------------------------------

    def enter(self, claim: Claim) -> None:
        """Takes a place in line; entering again keeps the first place."""
        with self.transaction() as database:
            if self.capacity is not None and self.capacity.closed():
                raise self._deleted()
            database.execute(_INSERT, claim)

    def settle(self, fate: Fate, leaver: str = "") -> Settled:
        """Decides for everybody and writes it down, in one step with the end of `leaver`'s claim: whatever is to be
        called is called by whoever has asked."""
        with self.transaction() as database:
            if leaver:
                database.execute("DELETE FROM claims WHERE job = ?", (leaver,))
            total = self.capacity.total(database) if self.capacity else None
            now = time.time()
            decision = decide(_read(database), fate, _total(total), now, beginners())
            _apply(database, decision, now)
            return Settled(decision, _read(database), total)

    def hold(self, claim: Claim) -> int:
        """Makes sure of at least `claim.granted` slots for nodes that run already, free or not; says how many the job
        has."""
        with self.transaction() as database:
            database.execute(_INSERT, claim)
            change = "UPDATE claims SET granted = max(granted, ?), doubted = 0 WHERE job = ?"
            database.execute(change, (claim.granted, claim.job))
            return _granted(database, claim.job)

    def grow(self, job: str, wanted: int) -> int:
        """Takes more slots for a job that has some, if nobody waits for them; says how many it has then."""
        with self.transaction() as database:
            database.execute("UPDATE claims SET wanted = ? WHERE job = ?", (wanted, job))
            total = self.capacity.total(database) if self.capacity else None
            more = growth(_read(database), job, wanted, _total(total))
            database.execute("UPDATE claims SET granted = granted + ? WHERE job = ?", (more, job))
            return _granted(database, job)

    def keep(self, job: str, count: int, wanted: int) -> None:
        """Gives back all but `count` slots, of the `wanted` ones."""
        self._change("UPDATE claims SET granted = min(granted, ?), wanted = ? WHERE job = ?", count, wanted, job)

    def want(self, job: str, wanted: int) -> None:
        """How many slots to take at its turn, for one that waits."""
        self._change("UPDATE claims SET wanted = ? WHERE job = ?", wanted, job)

    def requeue(self, job: str) -> None:
        """Gives all slots back and waits again, at the old place."""
        self._change("UPDATE claims SET granted = 0, lives = 0, doubted = 0 WHERE job = ?", job)

    def arrived(self, job: str) -> None:
        """Its supervisor has come up, and waits."""
        self._change("UPDATE claims SET lives = 0 WHERE job = ? AND granted = 0", job)

    def started(self, job: str) -> None:
        """A supervisor of it was started."""
        self._change("UPDATE claims SET lives = lives + 1 WHERE job = ?", job)

    def release(self, job: str) -> None:
        """Gives everything back, or leaves the line."""
        self._change("DELETE FROM claims WHERE job = ?", job)

    def _change(self, statement: str, *values: object) -> None:
        with self.transaction() as database:
            database.execute(statement, values)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One step that happens as a whole or not at all; never one inside another."""
        self._make_room()
        try:
            with self._connection() as database:
                database.execute("BEGIN IMMEDIATE")
                try:
                    if not _is_current(database):
                        self._make(database)
                    yield database
                    if self.capacity:
                        self.capacity.total(database)
                    database.execute("COMMIT")
                except BaseException:
                    if database.in_transaction:  # after some errors SQLite itself has rolled back
                        database.execute("ROLLBACK")
                    raise
        except sqlite3.DatabaseError as error:
            raise self._explained(error) from None
        if self.capacity:
            self.capacity.committed()

    @contextmanager
    def steps(self) -> Iterator[None]:
        """For several steps in a row: the file is opened once."""
        self._make_room()
        try:
            with self._connection() as database:
                self._open = database
                try:
                    yield
                finally:
                    self._open = None
        except sqlite3.DatabaseError as error:
            raise self._explained(error) from None

    @contextmanager
    def _connection(self, existing: bool = False) -> Iterator[sqlite3.Connection]:
        if self._open is not None:
            yield self._open
            return
        place = f"{self.path.absolute().as_uri()}?mode={'rw' if existing else 'rwc'}"
        with closing(sqlite3.connect(place, uri=True, timeout=30.0, isolation_level=None)) as database:
            # A journal that stays: most who come make one step, for which a WAL would be made and removed again.
            database.execute("PRAGMA journal_mode = PERSIST")
            # A file that was in use when the machine went down is made anew, so that nobody has to wait for the disk.
            database.execute("PRAGMA synchronous = OFF")
            yield database

    def _make_room(self) -> None:
        if self.capacity is None:
            make_private_directory(self.path.parent)
        elif not self.path.parent.is_dir():
            raise self._deleted()
        make_private_file(self.path)

    def _make(self, database: sqlite3.Connection) -> None:
        """A file that is new, was removed by hand, is of an older petctl or from before a restart of the machine."""
        database.execute("DROP TABLE IF EXISTS claims")
        database.execute(_SCHEMA)
        database.executemany(_INSERT, list(self._found()))
        database.execute(f"PRAGMA user_version = {VERSION}")
        database.execute(f"PRAGMA application_id = {_this_boot()}")

    def _deleted(self) -> NotFound:
        return NotFound(f"cluster {self.path.parent.name} was deleted; submit the job to another one")

    def _explained(self, error: sqlite3.DatabaseError) -> PetctlError:
        if getattr(error, "sqlite_errorcode", None) in _NO_ROOM:
            return NoRoom(f"cannot use the node slots' file {self.path}: {error}; free space on its disk")
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
            return InternalError(f"the node slots' file {self.path} is locked by another process; try again")
        return InternalError(f"cannot use the node slots' file {self.path}: {error}; remove it if it is damaged")


def _is_current(database: sqlite3.Connection) -> bool:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (boot,) = database.execute("PRAGMA application_id").fetchone()
    return (version, boot) == (VERSION, _this_boot())


@lru_cache
def _this_boot() -> int:
    """A number for this run of the machine."""
    return zlib.crc32(boot_id().encode()) & 0x7FFFFFFF


def _read(database: sqlite3.Connection) -> List[Claim]:
    return [Claim(*row) for row in database.execute(f"SELECT {_COLUMNS} FROM claims ORDER BY priority DESC, place")]


def _granted(database: sqlite3.Connection, job: str) -> int:
    row = database.execute("SELECT granted FROM claims WHERE job = ?", (job,)).fetchone()
    return int(row[0]) if row else 0


def _total(total: Optional[int]) -> Callable[[Claim], int]:
    return (lambda claim: claim.slots) if total is None else (lambda claim: total)


def _apply(database: sqlite3.Connection, decision: Decision, now: float) -> None:
    database.executemany("DELETE FROM claims WHERE job = ?", [(job,) for job in decision.drop])
    database.executemany("UPDATE claims SET doubted = ? WHERE job = ?", [(now, job) for job in decision.doubt])
    database.executemany("UPDATE claims SET doubted = 0 WHERE job = ?", [(job,) for job in decision.trust])
    grants = [(count, job) for job, count in decision.grant.items()]
    database.executemany("UPDATE claims SET granted = ? WHERE job = ?", grants)
    calls = [(now, job) for job in decision.call]
    database.executemany("UPDATE claims SET called = ? WHERE job = ?", calls)
