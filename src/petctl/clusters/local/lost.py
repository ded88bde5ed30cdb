"""Recognising a local job that nobody looks after any more, and burying it: the outcome `lost`, and nothing left
running.

A job is alive while its supervisor or any of its nodes is. One look is not enough: between a supervisor's death and
its revival there may be a moment without any lock. What is found dead twice is buried under the supervisor's own
lock, so that nobody revives it meanwhile, and every later reader finds the outcome where outcomes are.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any, Optional

from petctl.clusters.local.jobdir import START_WITHIN, JobDirectory, read_json, take_lock, write_json, write_once
from petctl.clusters.local.processes import boot_id, sweep
from petctl.clusters.local.slots import Slots
from petctl.errors import InternalError, NoRoom

REVIVE_WITHIN = 1.5  # seconds for a killed supervisor to be back
LOOK_AGAIN = 0.05


def newest_status(directory: JobDirectory) -> dict[str, Any]:
    """What was last written down about the job, final as soon as it is over for good."""
    record = _record(directory)
    status = read_json(directory.status) or _first_status(record)
    if status["finished"] is not None or directory.supervised():
        return status
    if not _gone(directory, record["submitted"]):
        return status
    return bury(directory) or read_json(directory.status) or status


def _gone(directory: JobDirectory, submitted: float) -> bool:
    """Whether nobody looks after it, now and for as long as a revival takes."""
    if not directory.epoch.exists() and time.time() < submitted + START_WITHIN:
        return False
    if _restarted(directory):
        return not directory.alive()
    deadline = time.monotonic() + REVIVE_WITHIN
    while not directory.alive():
        if time.monotonic() >= deadline:
            return True
        if directory.outcome.exists() and not any(directory.node_alive(name) for name in directory.node_names()):
            return True  # it had ended; only its last picture is missing
        time.sleep(LOOK_AGAIN)
    return False


def bury(directory: JobDirectory) -> Optional[dict[str, Any]]:
    """Makes the end of an abandoned job final; None when somebody looks after it after all."""
    from petctl.supervision.records import append_event, close_status, new_event  # few jobs are buried

    lock = take_lock(directory.supervisor_lock)
    if lock is None:
        return None
    try:
        if any(directory.node_alive(name) for name in directory.node_names()):
            return None
        record = _record(directory)
        now = time.time()
        state, code = ("cancelled", 130) if directory.cancel.exists() else ("lost", 70)
        sentence = _reason(directory)
        if write_once(directory.outcome, {"state": state, "code": code, "sentence": sentence, "finished": now}):
            with suppress(OSError):
                append_event(directory.events, new_event("closing", f"{state}: {sentence}"))
        outcome = read_json(directory.outcome) or {}
        status = read_json(directory.status) or _first_status(record)
        if status["finished"] is None:
            sweep(directory.id, directory.nodes)
            status = close_status(status, outcome, float(outcome.get("finished", now)))
            with suppress(NoRoom):  # whoever looks next buries it again
                write_json(directory.status, status, reserved=True)
        with suppress(NoRoom):  # whoever needs the slots finds that nobody uses them
            Slots(directory.home, 1, lambda job, age: True).release(directory.id)
        directory.give_back()
        return status
    finally:
        os.close(lock)


def _first_status(record: dict[str, Any]) -> dict[str, Any]:
    from petctl.supervision.records import first_status  # every command comes here, and most find a status

    return first_status(record)


def _reason(directory: JobDirectory) -> str:
    if not directory.epoch.exists():
        return f"its supervisor never started; see {directory.supervisor_log}"
    if _restarted(directory):
        return "the machine was restarted while it ran"
    if not directory.coordinator.exists():
        return f"its supervisor was killed while it was queued; see {directory.supervisor_log}"
    return f"its supervisor and all of its nodes were killed; see {directory.supervisor_log}"


def _restarted(directory: JobDirectory) -> bool:
    """Whether the machine was restarted since the last supervisor wrote down where it is."""
    place = read_json(directory.coordinator)
    return place is not None and place.get("boot") not in ("", boot_id())


def _record(directory: JobDirectory) -> dict[str, Any]:
    record = read_json(directory.job)
    if record is None:
        raise InternalError(f"{directory.job} is missing or damaged; forget the job with: petctl rm {directory.id}")
    return record
