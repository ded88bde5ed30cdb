"""Ending a job that nobody looks after: its outcome, its last status, and nothing left running.

Whoever does it holds the supervisor's own lock meanwhile, so that nobody starts or revives the job, and every later
reader finds the outcome where outcomes are. Whether a job is to be ended so is decided elsewhere: `upkeep.py`,
`queue.py`, and the user's `cancel` of a job that waits.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from typing import Optional

from petctl.clusters.local.controller.start_environment import forget_environment
from petctl.clusters.local.job_directory import JobDirectory, read_json, write_once
from petctl.clusters.local.processes import boot_id, sweep
from petctl.clusters.local.queue.queue_claims import running_nodes, slots_of
from petctl.clusters.local.record import LocalRequest, find_status, read_record, write_status
from petctl.errors import PetctlError
from petctl.files import take_lock
from petctl.job.status import JobStatus

CANCELLED_IN_LINE = "cancelled while it was queued"


def finalize(directory: JobDirectory, reason: str) -> Optional[JobStatus]:
    """Makes the end of a job final: cancelled if its user wanted that, else lost. None when somebody looks after it
    after all."""
    from petctl.agent.data.new_files import keep_new_files
    from petctl.controller.journals.records import (  # few jobs are buried
        append_event,
        close_status,
        first_status,
        new_event,
    )
    from petctl.rendezvous.core.messages import decode_outcome

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
        written = read_json(directory.outcome)
        status = find_status(directory) or first_status(record)
        if status.finished is None:
            sweep(directory.id, directory.nodes)
            container = LocalRequest.of(record).container
            if container:
                from petctl.clusters.local.containers.node_containers import remove_containers

                remove_containers(container, directory.id)
            kept = keep_new_files(str(directory.unpacked), str(directory.outputs))
            if kept:
                with suppress(OSError):
                    append_event(directory.events, new_event("kept", kept))
                status = replace(status, results="; ".join(part for part in (status.results, kept) if part))
            status = close_status(status, decode_outcome(written), float((written or {}).get("finished", now)))
            with suppress(OSError):  # whoever looks next buries it again
                write_status(directory, status, reserved=True)
        with suppress(PetctlError):  # whoever needs the slots finds that nobody uses them
            slots_of(directory.home, record.cluster).release(directory.id)
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
