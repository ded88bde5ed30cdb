"""The newest status of a local job, whoever looks after it or nobody: a job that waits is shown in its place in line,
and one that had begun and that nobody looks after any more is recognised, and buried as `lost`.

A job that has begun is alive while its supervisor or any of its nodes is. One look is not enough: between a
supervisor's death and its revival there may be a moment without any lock. One that has not begun, or that was killed
before its first node was started, is never lost: it needs nobody but the line, which starts it when it is due.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Optional

from petctl.clusters.local.controller.spawn import bring_back
from petctl.clusters.local.finalize import finalize, read_record
from petctl.clusters.local.job_directory import JobDirectory, read_json
from petctl.clusters.local.processes import boot_id
from petctl.clusters.local.queue.queue import queue_of
from petctl.clusters.local.queue.queue_claims import LOCAL, claim_of, running_nodes, slots_of, wanted_nodes
from petctl.clusters.local.queue.scheduler import REVIVE_WITHIN
from petctl.errors import PetctlError

LOOK_AGAIN = 0.05


def newest_status(directory: JobDirectory) -> dict[str, Any]:
    """What is known about the job now, final as soon as it is over for good."""
    record = read_record(directory)
    status = read_json(directory.status)
    if status is not None and status["finished"] is not None:
        return status
    if not directory.begun():
        waiting = _waiting_status(directory, record, status)
        if waiting is not None:
            return waiting
        status = read_json(directory.status)
    status = status or _first_status(record)
    if status["finished"] is None and not directory.supervised():
        if _gone(directory):
            status = finalize(directory, _reason(directory)) or read_json(directory.status) or status
        elif record["plan"].get("container") and _forsaken(directory):
            bring_back(directory, record)
    if status["finished"] is None:
        with suppress(PetctlError, OSError):  # the line of others: what is asked for is this job
            queue_of(directory.home, record["cluster"]).peek(directory.id)
    return status


def _waiting_status(
    directory: JobDirectory, record: dict[str, Any], status: Optional[dict[str, Any]]
) -> Optional[dict[str, Any]]:
    """The status of a job that has not begun; None when it has, meanwhile."""
    line = queue_of(directory.home, record["cluster"])
    state, sentence = "queued", ""
    try:
        place = line.peek(directory.id)
        if place is None and not directory.begun():
            # Its submitter was killed, or a power cut took the end of the slots' file.
            slots_of(directory.home, record["cluster"]).enter(claim_of(directory, record))
            place = line.peek(directory.id)
        if place is None or directory.begun():
            return None
        sentence = place.sentence()
        if record["cluster"] != LOCAL and not place.ahead:
            from petctl.clusters.local.pools.nodes import shortage  # only clusters that were made can be short of nodes

            why = shortage(directory.home, record["cluster"], place.minimum)
            sentence += f"; {why}" if why else ""
        if place.granted:
            state, sentence = "pending", "pending: its supervisor is starting"
    except (PetctlError, OSError) as error:
        sentence = f"queued: {error}"
    base = status or _first_status(record)
    size = {**base["size"], "wanted": wanted_nodes(directory, record["plan"])}
    return {**base, "state": state, "sentence": sentence, "size": size}


def _gone(directory: JobDirectory) -> bool:
    """Whether nobody looks after it, now and for as long as a revival takes."""
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


def _forsaken(directory: JobDirectory) -> bool:
    """Whether its nodes are without a supervisor, and neither gets one nor ends, for as long as a revival takes."""
    deadline = time.monotonic() + REVIVE_WITHIN
    while not directory.supervised() and running_nodes(directory):
        if time.monotonic() >= deadline:
            return True
        time.sleep(LOOK_AGAIN)
    return False


def _first_status(record: dict[str, Any]) -> dict[str, Any]:
    from petctl.controller.status.records import first_status  # every command comes here, and most find a status

    return first_status(record)


def _reason(directory: JobDirectory) -> str:
    if _restarted(directory):
        return "the machine was restarted while it ran"
    return f"its supervisor and all of its nodes were killed; see {directory.supervisor_log}"


def _restarted(directory: JobDirectory) -> bool:
    """Whether the machine was restarted since the last supervisor wrote down where it is."""
    place = read_json(directory.coordinator)
    return place is not None and place.get("boot") not in ("", boot_id())
