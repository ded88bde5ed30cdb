"""Does what a job needs that nobody looks after: finishes one that is lost, brings back the supervisor of one whose
nodes cannot, and moves its queue on.

For commands that change jobs or wait for them. Commands that only show jobs do nothing of this (`job_status.py`);
supervisors do it for the queue that they are in (`queue.py`).
"""

from __future__ import annotations

import time
from contextlib import suppress

from petctl.clusters.local.controller.spawn import start_supervisor
from petctl.clusters.local.finalize import finalize, why_lost
from petctl.clusters.local.job_directory import JobDirectory
from petctl.clusters.local.job_status import LOOK_AGAIN, gone
from petctl.clusters.local.queue.queue import queue_of
from petctl.clusters.local.queue.queue_claims import claim_of, running_nodes, slots_of
from petctl.clusters.local.queue.scheduler import REVIVE_WITHIN
from petctl.clusters.local.record import LocalRequest, read_record, read_status
from petctl.errors import PetctlError
from petctl.job.record import JobRecord


def attend(directory: JobDirectory) -> None:
    """Does what is due for the job and for the queue that it is in."""
    if _is_over(directory):
        return
    record = read_record(directory)
    if directory.begun():
        finish(directory)
        if LocalRequest.of(record).container and _forsaken(directory):
            start_supervisor(directory, ended=True)  # its nodes, in their containers, cannot do so themselves
    with suppress(PetctlError, OSError):  # the job's status tells what is wrong with the queue
        move_on(directory, record)


def finish(directory: JobDirectory) -> None:
    """Writes down how a job has ended that nobody looks after any more, and ends what is left of it."""
    if not _is_over(directory) and directory.begun() and gone(directory):
        finalize(directory, why_lost(directory))


def move_on(directory: JobDirectory, record: JobRecord) -> None:
    """Starts whoever is due in the job's queue; its own place there is kept, or given to it anew."""
    line = queue_of(directory.home, record.cluster)
    view = line.look()
    if not directory.begun() and view.standing(directory.id) is None:
        # Its submitter was killed, or a power cut took the end of the slots' file.
        slots_of(directory.home, record.cluster).enter(claim_of(directory, record))
        line.look()


def _is_over(directory: JobDirectory) -> bool:
    status = read_status(directory)
    return status is not None and status.finished is not None


def _forsaken(directory: JobDirectory) -> bool:
    """Whether its nodes are without a supervisor, and neither gets one nor ends, for as long as a revival takes."""
    deadline = time.monotonic() + REVIVE_WITHIN
    while not directory.supervised() and running_nodes(directory):
        if time.monotonic() >= deadline:
            return True
        time.sleep(LOOK_AGAIN)
    return False
