"""How a job of Batch AI stands: asked of `petctl.jobs` each time. Only an end is written down, since that stays when
the job is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from petctl.compat.batchai.service.jobs import SUBMITTING, handle_of
from petctl.compat.batchai.service.names import Address
from petctl.compat.batchai.service.resource_store import Tree
from petctl.compat.batchai.service.resources import trail_of
from petctl.errors import NotFound, PetctlError
from petctl.files import is_locked, release, wait_for_lock

if TYPE_CHECKING:
    from petctl.jobs import Status

STATES = {
    "pending": "queued",
    "queued": "queued",
    "starting": "running",
    "running": "running",
    "recovering": "running",
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "failed",
    "lost": "failed",
}


def look(home: Path, address: Address) -> tuple[dict[str, Any], dict[str, Any]]:
    """A job's record, and what is true of it now, for `report.job`."""
    tree, trail = Tree(home), trail_of("jobs", address)
    alive = is_locked(tree.directory(trail) / SUBMITTING)
    record = tree.read(trail)  # after that look: whoever has let go of the lock has written all there is
    if "end" in record:
        return record, record["end"]
    if not alive and not record["petctl"]:
        with tree.locked():  # a name is made and its lock taken in one step under this one
            alive = is_locked(tree.directory(trail) / SUBMITTING)
            record = tree.read(trail)
    if alive or not record["petctl"]:
        return record, _submitting(record, alive)
    try:
        seen = _seen(record, handle_of(home, address).status())
    except NotFound:
        return record, _gone(record)
    except PetctlError as error:  # its cluster cannot be asked; the others of a list can
        return record, _told(record, "unknown", str(error))
    if seen["ended"] is not None:
        with tree.locked():
            if tree.find(trail) is not None:
                record = tree.change(trail, end=seen)
    return record, seen


def watch_states(home: Path, address: Address, tell: Callable[[str], None]) -> dict[str, Any]:
    """How a job ended, as `look` says it; every state on the way is told as it comes."""
    tree, trail = Tree(home), trail_of("jobs", address)
    tree.read(trail)
    with suppress(FileNotFoundError):  # the name is gone with a submission that came to nothing
        release(wait_for_lock(tree.directory(trail) / SUBMITTING))
    _, seen = look(home, address)
    told = ""
    if seen["ended"] is None:
        handle = handle_of(home, address)
        status = handle.status()
        while (seen := _seen(tree.read(trail), status))["ended"] is None:
            if seen["state"] != told:
                tell(seen["state"])
                told = seen["state"]
            status = handle.watch(status)
        _, seen = look(home, address)  # which writes the end down
    tell(seen["state"])
    return seen


def _seen(record: Mapping[str, Any], status: Status) -> dict[str, Any]:
    final = status.final and status.finished is not None
    state = STATES.get(status.state, status.state)
    if record.get("terminated") and not final:
        state = "terminating"
    return {
        "state": state,
        "sentence": status.sentence,
        "since": status.since,
        "started": status.started,
        "ended": status.finished if final else None,
        "exit_code": status.exit_code if final else None,
        "errors": [_failure(status)] if final and state == "failed" else [],
    }


def _failure(status: Status) -> tuple[str, str, dict[str, str]]:
    """Code, sentence and details: never a failure without its reason."""
    details = {"State": status.state}
    if status.error is not None:
        error = status.error
        details |= {"Node": error.node, "Rank": str(error.rank), "ExitCode": str(error.code)}
        if error.signal:
            details["Signal"] = error.signal
        if error.traceback or error.message:
            details["Output"] = error.traceback or error.message
    code = {"cancelled": "JobTerminated", "lost": "JobLost"}.get(status.state, "JobFailed")
    return code, status.sentence, details


def _submitting(record: Mapping[str, Any], alive: bool) -> dict[str, Any]:
    if alive:
        return _told(record, "queued", "it is being submitted")
    return _lost(record, "NotSubmitted", "its submission was interrupted; delete it and create it again")


def _gone(record: Mapping[str, Any]) -> dict[str, Any]:
    return _lost(record, "JobRemoved", f"petctl's job {record['petctl']} no longer exists; its outcome is unknown")


def _lost(record: Mapping[str, Any], code: str, sentence: str) -> dict[str, Any]:
    return {**_told(record, "failed", sentence), "ended": record["created"], "errors": [(code, sentence, {})]}


def _told(record: Mapping[str, Any], state: str, sentence: str) -> dict[str, Any]:
    """Of a job that cannot be asked."""
    seen = {"state": state, "sentence": sentence, "since": record["created"], "started": None}
    return {**seen, "ended": None, "exit_code": None, "errors": []}
