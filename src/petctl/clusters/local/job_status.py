"""The newest status of a local job, whoever looks after it or nobody. Reading changes nothing: no file, no process.

A job that waits is shown in its place in line. One that had begun and that nobody looks after any more is recognised
and shown as `lost`, though its outcome is yet to be written and some of its processes may be left: `upkeep.py` does
that, for commands that change jobs or wait for them. Both are `unattended` where no process is left that would go on.

A job that has begun is alive while its supervisor or any of its nodes is. One look is not enough: between a
supervisor's death and its revival there may be a moment without any lock. One that has not begun, or that was killed
before its first node was started, is never lost: it needs nobody but the line, which starts it when it is due.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Callable, Dict, Iterator, Optional

from petctl.clusters.base import Listed
from petctl.clusters.local.finalize import restarted, why_lost
from petctl.clusters.local.job_directory import JobDirectory
from petctl.clusters.local.queue.queue import queue_of
from petctl.clusters.local.queue.queue_claims import LOCAL, claim_of, wanted_nodes
from petctl.clusters.local.queue.scheduler import REVIVE_WITHIN
from petctl.clusters.local.record import find_status, read_record, read_status
from petctl.errors import InternalError, NotFound, PetctlError
from petctl.files import read_json_or_none
from petctl.job.record import JobRecord
from petctl.job.status import JobStatus

LOOK_AGAIN = 0.05

_dead_since: Dict[Path, float] = {}
"""Jobs without any process, since this process first saw that: several are given their time to be back at once."""


def newest_status(directory: JobDirectory) -> JobStatus:
    """What is known about the job now, final as soon as nothing of it goes on."""
    record = read_record(directory)
    status = read_status(directory)
    if status is not None and status.finished is not None:
        return status
    if not directory.begun():
        waiting = _waiting_status(directory, record, status)
        if waiting is not None:
            return waiting
        status = read_status(directory)
    if (status is None or status.finished is None) and gone(directory):
        newer = read_status(directory)  # its supervisor may have ended meanwhile, as it should
        status = newer or status or _first_status(record)
        if status.finished is None:
            return _lost_status(directory, status)
    return status or _first_status(record)


def list_statuses(jobs: Path, ids: Iterator[str], wanted: Callable[[str], bool]) -> Iterator[Listed]:
    """Every one of these jobs, the wanted ones with their status."""
    last = []
    for job_id in ids:
        directory = JobDirectory(jobs / job_id)
        if not wanted(job_id):
            yield Listed(job_id)
        elif _seems_dead(directory):
            last.append(directory)  # each has its time to be back while the others are read
        else:
            yield _listed(directory)
    yield from map(_listed, last)


def _listed(directory: JobDirectory) -> Listed:
    try:
        return Listed(directory.id, newest_status(directory))
    except (InternalError, NotFound) as error:
        return Listed(directory.id, error=error)


def _waiting_status(directory: JobDirectory, record: JobRecord, status: Optional[JobStatus]) -> Optional[JobStatus]:
    """The status of a job that has not begun; None when it has, meanwhile."""
    state, stopped = "queued", False
    try:
        view = queue_of(directory.home, record.cluster).peek(directory.id)
        if view.standing(directory.id) is None:
            # Its submitter was killed, or a power cut took the end of the slots' file.
            view = view.with_claim(claim_of(directory, record))
        place = view.standing(directory.id)
        if place is None or directory.begun():
            return None
        stopped = view.stopped
        sentence = place.sentence()
        if record.cluster != LOCAL and not place.ahead:
            from petctl.clusters.local.pools.nodes import shortage  # only clusters that were made can be short of nodes

            why = shortage(directory.home, record.cluster, place.minimum)
            sentence += f"; {why}" if why else ""
        if place.granted:
            state = "pending"
            sentence = "pending: its supervisor was not started" if stopped else "pending: its supervisor is starting"
        if stopped:
            sentence += f"; the queue has stopped, petctl wait {directory.id} starts it again"
    except (PetctlError, OSError) as error:
        sentence = f"queued: {error}"
    base = status or _first_status(record)
    size = replace(base.size, wanted=wanted_nodes(directory, record))
    return replace(base, state=state, sentence=sentence, size=size, unattended=stopped)


def _lost_status(directory: JobDirectory, status: JobStatus) -> JobStatus:
    """What its last status will be once somebody has written it."""
    from petctl.controller.journals.records import close_status  # few jobs are lost
    from petctl.rendezvous.core.messages import decode_outcome

    state, code = ("cancelled", 130) if directory.cancel.exists() else ("lost", 70)
    written = read_json_or_none(directory.outcome) or {"state": state, "code": code, "sentence": why_lost(directory)}
    outcome = decode_outcome(written)
    closed = close_status(status, outcome, float(written.get("finished") or _last_sign(directory)))
    advice = f"petctl cancel {directory.id} ends what is left of it"
    return replace(closed, sentence=f"{outcome.sentence}; {advice}", unattended=True)


def _last_sign(directory: JobDirectory) -> float:
    """When the job last wrote anything: nobody knows when it ended."""
    found = 0.0
    for path in (directory.status, directory.events, directory.coordinator, directory.job):
        with suppress(OSError):
            found = max(found, path.stat().st_mtime)
    return found


def gone(directory: JobDirectory) -> bool:
    """Whether nobody looks after a job that has begun, now and for as long as a revival takes."""
    while _seems_dead(directory):
        if restarted(directory) or time.monotonic() >= _dead_since[directory.path] + REVIVE_WITHIN:
            return True
        if directory.outcome.exists() and not any(directory.node_alive(name) for name in directory.node_names()):
            return True  # it had ended; only its last picture is missing
        time.sleep(LOOK_AGAIN)
    return False


def _seems_dead(directory: JobDirectory) -> bool:
    """Whether nobody looks after the job at this moment, though it has begun and has no final status."""
    status = None
    alive = not directory.begun() or directory.alive()
    if not alive:
        status = find_status(directory)
    if alive or (status is not None and status.finished is not None):
        _dead_since.pop(directory.path, None)
        return False
    _dead_since.setdefault(directory.path, time.monotonic())
    return True


def _first_status(record: JobRecord) -> JobStatus:
    from petctl.controller.journals.records import first_status  # every command comes here, and most find a status

    return first_status(record)
