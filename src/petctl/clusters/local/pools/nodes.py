"""The nodes of a named local cluster: a table beside the queue, settled in every transaction on it.

`Fleet` is the queue's capacity (`slots.Capacity`): whoever takes, gives back or looks at slots brings the nodes to what
the description and the jobs ask for, in the same transaction, so auto-scale grows in the moment in which a job finds
too few nodes. Processes that prepare nodes are started after the commit, and again by the next look if whoever should
have done it was killed. No daemon.

What nodes should become is decided in `model.py`; how one is prepared, in `setup.py`. Standard library
only: supervisors use this.
"""

from __future__ import annotations

import sqlite3
import subprocess
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import astuple
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from petctl.clusters.local.pools.model import (
    PREPARING,
    READY,
    SHOWN,
    UNUSABLE,
    Claim,
    GiveBack,
    Node,
    settle,
    wishes,
)
from petctl.clusters.local.pools.spec import FleetDirectory, FleetSpec, find_spec
from petctl.clusters.local.processes import boot_id

_COLUMNS = ", ".join(Node.__dataclass_fields__)
_PLACES = ", ".join("?" for _ in Node.__dataclass_fields__)


def capacity_of(home: Path, name: str) -> Optional[Fleet]:
    """The nodes behind a cluster's queue; None where there is no such cluster, or it is being deleted."""
    spec = find_spec(home, name)
    return Fleet(home, name) if spec is not None and not spec.deleting else None


class Fleet:
    """One cluster's nodes, as one process sees them during one transaction."""

    def __init__(self, home: Path, name: str, clock: Callable[[], float] = time.time) -> None:
        self.directory, self._clock = FleetDirectory(home, name), clock
        self.nodes: List[Node] = []  # after the last `total`
        self._spec: Optional[FleetSpec] = None
        self._removed: Set[int] = set()

    def total(self, database: sqlite3.Connection) -> int:
        """Settles the nodes and says how many of them jobs may have, those that they have included."""
        self._spec = find_spec(self.directory.home, self.directory.name)
        if self._spec is None:
            return 0
        before, claims = read_nodes(database), _claims(database)
        self.nodes = self._settled(self._spec, before, claims)
        self._removed |= {node.number for node in before} - {node.number for node in self.nodes}
        write_nodes(database, before, self.nodes)
        return _ready(self.nodes)

    def expected(self) -> int:
        """What `total` would say now; changes nothing."""
        spec, here, claims = _as_they_are(self.directory.home, self.directory.name)
        return 0 if spec is None else _ready(self._settled(spec, here, claims))

    def _settled(self, spec: FleetSpec, here: Sequence[Node], claims: Sequence[Claim]) -> List[Node]:
        return settle(spec.size, here, claims, self._clock(), spec.prepares, boot_id())

    def committed(self) -> None:
        """What the transaction has decided is carried out."""
        if self._spec is None or self._spec.deleting:
            return
        preparing = [node.number for node in self.nodes if node.state == PREPARING]
        if preparing or self._removed:
            from petctl.clusters.local.pools import setup  # few transactions have anything to prepare

            _, here, _ = _as_they_are(self.directory.home, self.directory.name)  # one may be back already
            for number in self._removed - {node.number for node in here}:
                setup.clear(self.directory, self._spec, number)
            for number in preparing:
                with suppress(OSError, subprocess.SubprocessError):  # no room, no process: the next look tries again
                    setup.start(self.directory, self._spec, number)
        self._removed = set()

    def closed(self) -> bool:
        """Whether it is deleted, or about to be."""
        spec = find_spec(self.directory.home, self.directory.name)
        return spec is None or spec.deleting


@contextmanager
def looked(home: Path, name: str) -> Iterator[sqlite3.Connection]:
    """A transaction on the queue and the nodes; on the way in the nodes are settled, and again before its commit."""
    from petctl.clusters.local.queue.queue import slots_of  # it imports this file

    slots = slots_of(home, name)
    with slots.transaction() as database:
        if slots.capacity is not None:
            slots.capacity.total(database)
        yield database


def read_nodes(database: sqlite3.Connection) -> List[Node]:
    """All nodes, by number."""
    database.execute(f"CREATE TABLE IF NOT EXISTS nodes ({_COLUMNS}, PRIMARY KEY (number))")
    return _nodes(database)


def _nodes(database: sqlite3.Connection) -> List[Node]:
    rows = database.execute(f"SELECT {_COLUMNS} FROM nodes ORDER BY number").fetchall()
    return [Node(row[0], row[1], row[2], bool(row[3]), *row[4:]) for row in rows]


def write_nodes(database: sqlite3.Connection, before: Sequence[Node], after: Sequence[Node]) -> None:
    """Changes what differs."""
    old = {node.number: node for node in before}
    gone = set(old) - {node.number for node in after}
    database.executemany("DELETE FROM nodes WHERE number = ?", [(number,) for number in gone])
    database.executemany(
        f"INSERT OR REPLACE INTO nodes ({_COLUMNS}) VALUES ({_PLACES})",
        [astuple(node) for node in after if old.get(node.number) != node],
    )


def prepared(database: sqlite3.Connection, number: int, reason: str, now: float) -> bool:
    """Ends a node's preparation: ready, or unusable for a reason; False where nobody waits for it any more."""
    state = UNUSABLE if reason else READY
    cursor = database.execute(
        "UPDATE nodes SET state = ?, reason = ?, since = ?, boot = ? WHERE number = ? AND state = ?",
        (state, reason, now, boot_id(), number, PREPARING),
    )
    return cursor.rowcount > 0


def _ready(nodes: Sequence[Node]) -> int:
    return sum(node.state == READY for node in nodes)


def counted(nodes: Sequence[Node]) -> Dict[str, int]:
    """How many nodes are in each state that users see."""
    shown = [node.shown for node in nodes]
    return {state: shown.count(state) for state in SHOWN}


def wish_of(home: Path, name: str, job: str) -> Optional[GiveBack]:
    """What the cluster asks of a job now; only read, because whoever made it smaller has settled it."""
    spec, here, claims = _as_they_are(home, name)
    found = wishes(spec.size, here, claims) if spec is not None and not spec.deleting else []
    return next((wish for wish in found if wish.job == job), None)


def shortage(home: Path, name: str, minimum: int) -> str:
    """What keeps nodes from a job that waits for so many, and what its user can do about it."""
    spec, here, _ = _as_they_are(home, name)
    if spec is None:
        return ""
    counts = counted(here)
    parts = [f"{counts[state]} {state}" for state in ("preparing", "leaving", "unusable") if counts[state]]
    if counts["unusable"]:
        parts[-1] += f" (see: petctl cluster nodes {name})"
    if not spec.auto and minimum > spec.high:
        parts.append(f"the cluster is too small (petctl cluster resize {name} {minimum})")
    return ", ".join(parts)


def _as_they_are(home: Path, name: str) -> Tuple[Optional[FleetSpec], List[Node], List[Claim]]:
    """The cluster without settling it; nobody is kept waiting for that."""
    path = FleetDirectory(home, name).path / "slots.db"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=30.0)) as database:
            return find_spec(home, name), _nodes(database), _claims(database)
    except sqlite3.DatabaseError:  # the next look says what is wrong with it
        return None, [], []


def place_of(home: Path, name: str, job: str, member: int) -> int:
    """The number of the cluster's node that one of a job's nodes is; its own number where the cluster has none for
    it."""
    with looked(home, name) as database:
        nodes = read_nodes(database)
    return next((node.number for node in nodes if (node.job, node.member) == (job, member)), member)


def _claims(database: sqlite3.Connection) -> List[Claim]:
    rows = database.execute("SELECT job, minimum, wanted, granted FROM claims ORDER BY priority DESC, place").fetchall()
    return [Claim(str(job), int(least), int(wanted or least), int(granted)) for job, least, wanted, granted in rows]
