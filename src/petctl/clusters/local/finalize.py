"""Ending a job that nobody looks after: its outcome, its last status, and nothing left running.

Whoever does it holds the supervisor's own lock meanwhile, so that nobody starts or revives the job, and every later
reader finds the outcome where outcomes are. Whether a job is to be ended so is decided elsewhere: `upkeep.py`,
`queue.py`, and the user's `cancel` of a job that waits.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Mapping, Optional

from petctl.clusters.local.controller.start_environment import forget_environment
from petctl.clusters.local.job_directory import JobDirectory
from petctl.clusters.local.processes import boot_id, sweep
from petctl.clusters.local.queue.queue_claims import running_nodes, slots_of
from petctl.clusters.local.record import LocalRequest, read_record
from petctl.errors import PetctlError
from petctl.files import read_json_or_none, release, take_lock
from petctl.job.status import JobStatus

CANCELLED_IN_LINE = "cancelled while it was queued"


def finalize(directory: JobDirectory, reason: str) -> Optional[JobStatus]:
    """Makes the end of a job final: cancelled if its user wanted that, else lost. None when somebody looks after it
    after all."""
    from petctl.agent.data.new_files import keep_new_files  # few jobs are ended here
    from petctl.clusters.local.controller.journal import DirectoryJournal
    from petctl.job.events import new_event
    from petctl.rendezvous.core.messages import Outcome

    lock = take_lock(directory.supervisor_lock)
    if lock is None:
        return None
    try:
        if running_nodes(directory):
            return None
        record = read_record(directory)
        journal = DirectoryJournal(directory, record)
        outcome = journal.outcome
        if outcome is None:
            state, code = ("cancelled", 130) if directory.cancel.exists() else ("lost", 70)
            outcome = journal.put_outcome(Outcome(state, code, reason), {})
            journal.put_event(new_event("closing", f"{state}: {reason}"))
        if journal.status.finished is None:
            clear(directory, LocalRequest.of(record).container)
            kept = keep_new_files(str(directory.unpacked), str(directory.outputs))
            if kept:
                journal.put_event(new_event("kept", kept))
            results = "; ".join(part for part in (journal.status.results, kept) if part)
            # Where it cannot be written, the next process that polls tries again.
            journal.finish(outcome, finished_at(directory), results=results)
        with suppress(PetctlError):  # whoever needs the slots finds that nobody uses them
            slots_of(directory.home, record.cluster).release(directory.id)
        forget_environment(directory)
        directory.give_back()
        return journal.status
    finally:
        release(lock)


def clear(directory: JobDirectory, container: Mapping[str, Any]) -> str:
    """Ends all that is left of a job's nodes; why some of it cannot be ended."""
    sweep(directory.id, directory.nodes)
    if not container:
        return ""
    from petctl.clusters.local.containers.node_containers import remove_containers

    return remove_containers(container, directory.id)


def finished_at(directory: JobDirectory) -> float:
    """When the outcome was put on record."""
    return float((read_json_or_none(directory.outcome) or {}).get("finished", time.time()))


def restarted(directory: JobDirectory) -> bool:
    """Whether the machine was restarted since the last supervisor wrote down where it is."""
    place = read_json_or_none(directory.coordinator)
    return place is not None and place.get("boot") not in ("", boot_id())


def why_lost(directory: JobDirectory) -> str:
    """Why a job is lost that had begun."""
    if restarted(directory):
        return "the machine was restarted while it ran"
    return f"its supervisor and all of its nodes were killed; see {directory.supervisor_log}"
