"""Ending a job that nobody looks after: its outcome, its last status, and nothing left running.

Whoever does it holds the supervisor's own lock meanwhile, so that nobody starts or revives the job, and every later
reader finds the outcome where outcomes are. Whether a job is to be ended so is decided elsewhere: `upkeep.py`,
`queue.py`, and the user's `cancel` of a job that waits.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any, Optional

from petctl.clusters.local.controller.start_environment import forget_environment
from petctl.clusters.local.job_directory import JobDirectory, read_json, write_json, write_once
from petctl.clusters.local.processes import boot_id, sweep
from petctl.clusters.local.queue.queue_claims import running_nodes, slots_of
from petctl.errors import InternalError, NotFound, PetctlError
from petctl.files import take_lock

CANCELLED_IN_LINE = "cancelled while it was queued"


def finalize(directory: JobDirectory, reason: str) -> Optional[dict[str, Any]]:
    """Makes the end of a job final: cancelled if its user wanted that, else lost. None when somebody looks after it
    after all."""
    from petctl.agent.data.new_files import keep_new_files
    from petctl.controller.status.records import (  # few jobs are buried
        append_event,
        close_status,
        first_status,
        new_event,
    )

    lock = take_lock(directory.supervisor_lock)
    if lock is None:
        return None
    try:
        if running_nodes(directory):
            return None
        record = read_record(directory)
        now = time.time()
        state, code = ("cancelled", 130) if directory.cancel.exists() else ("lost", 70)
        if write_once(directory.outcome, {"state": state, "code": code, "sentence": reason, "finished": now}):
            with suppress(OSError):
                append_event(directory.events, new_event("closing", f"{state}: {reason}"))
        outcome = read_json(directory.outcome) or {}
        status = read_json(directory.status) or first_status(record)
        if status["finished"] is None:
            sweep(directory.id, directory.nodes)
            if record["plan"].get("container"):
                from petctl.clusters.local.containers.node_containers import remove_containers

                remove_containers(record["plan"]["container"], directory.id)
            kept = keep_new_files(str(directory.unpacked), str(directory.outputs))
            if kept:
                with suppress(OSError):
                    append_event(directory.events, new_event("kept", kept))
                status = {**status, "results": "; ".join(part for part in (status["results"], kept) if part)}
            status = close_status(status, outcome, float(outcome.get("finished", now)))
            with suppress(OSError):  # whoever looks next buries it again
                write_json(directory.status, status, reserved=True)
        with suppress(PetctlError):  # whoever needs the slots finds that nobody uses them
            slots_of(directory.home, record["cluster"]).release(directory.id)
        forget_environment(directory)
        directory.give_back()
        return status
    finally:
        os.close(lock)


def restarted(directory: JobDirectory) -> bool:
    """Whether the machine was restarted since the last supervisor wrote down where it is."""
    place = read_json(directory.coordinator)
    return place is not None and place.get("boot") not in ("", boot_id())


def why_lost(directory: JobDirectory) -> str:
    """Why a job is lost that had begun."""
    if restarted(directory):
        return "the machine was restarted while it ran"
    return f"its supervisor and all of its nodes were killed; see {directory.supervisor_log}"


def read_record(directory: JobDirectory) -> dict[str, Any]:
    """What was submitted."""
    record = read_json(directory.job)
    if record is None and not directory.path.exists():
        raise NotFound(f"job {directory.id!r} no longer exists; another process removed it")
    if record is None:
        raise InternalError(f"{directory.job} is missing or damaged; forget the job with: petctl rm {directory.id}")
    return record
