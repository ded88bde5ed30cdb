"""What the job directories say about claims on slots: which there should be, and what became of a claim's job.

The slots' file only orders and counts; whether a job waits, runs or is over is read here, from the truth. Nothing
here changes anything.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Iterator, List, Optional

from petctl.clusters.local.job_directory import JobDirectory
from petctl.clusters.local.queue.scheduler import ALIVE, DEAD, ENDED, READY, STARTING, UNBORN, Claim
from petctl.clusters.local.queue.slots import Capacity, Slots
from petctl.clusters.local.record import LocalRequest, find_record
from petctl.job.record import JobRecord

LOCAL = "local"  # the cluster that is always there, with as many slots as each submitter's settings say


def slots_of(home: Path, name: str) -> Slots:
    """The slots of a cluster on this machine."""
    return Slots(home, name, _capacity(home, name), lambda: found_claims(home, name))


def _capacity(home: Path, name: str) -> Optional[Capacity]:
    if name == LOCAL:
        return None
    from petctl.clusters.local.pools.nodes import capacity_of  # only clusters that were made have nodes of their own

    return capacity_of(home, name) or _Nothing()


class _Nothing:
    """What a cluster has that was deleted under its jobs."""

    def total(self, database: sqlite3.Connection) -> int:
        return 0

    def expected(self) -> int:
        return 0

    def committed(self) -> None:
        pass

    def closed(self) -> bool:
        return True


def claim_of(directory: JobDirectory, record: JobRecord, granted: int = 0) -> Claim:
    """The claim of a job, as its record and its user's newest wish say."""
    request = LocalRequest.of(record)
    return Claim(
        job=directory.id,
        priority=request.priority,
        minimum=record.config.min_nodes,
        wanted=wanted_nodes(directory, record),
        slots=request.slots,
        granted=granted,
        entered=time.time(),
    )


def wanted_nodes(directory: JobDirectory, record: JobRecord) -> int:
    """How many nodes its user asked for last."""
    try:
        return int(directory.wanted.read_text())
    except (FileNotFoundError, ValueError):
        return record.config.wanted


def running_nodes(directory: JobDirectory) -> int:
    """How many nodes of the job are alive on this machine."""
    return sum(directory.node_alive(name) for name in directory.node_names())


def job_phase(jobs: Path, claim: Claim) -> str:
    """What became of the job."""
    directory = JobDirectory(jobs / claim.job)
    if not directory.job.exists():
        return UNBORN
    if directory.alive():
        return ALIVE if directory.begun() else STARTING
    if directory.outcome.exists():
        return ENDED
    return DEAD if directory.begun() else READY


def found_claims(home: Path, name: str) -> List[Claim]:
    """The claims that a cluster's unfinished jobs should have, first come first."""
    return [claim for _, claim in sorted(_found(home / "jobs", name), key=lambda pair: pair[0])]


def _found(jobs: Path, name: str) -> Iterator[tuple[float, Claim]]:
    for path in jobs.iterdir() if jobs.is_dir() else ():
        directory = JobDirectory(path)
        if path.name.startswith(".") or directory.outcome.exists():
            continue
        record = find_record(directory)
        if record is None or record.cluster != name:
            continue
        if not directory.begun():
            yield record.submitted, claim_of(directory, record)
        elif directory.alive():
            yield record.submitted, claim_of(directory, record, max(1, running_nodes(directory)))
