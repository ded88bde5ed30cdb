"""A run's facts in the words of ACT: what `query` prints, and what its tables are made of.

Statuses and records in, plain data out; nothing is fetched or decided here. A fact that is not known has no key.
"""

from __future__ import annotations

import base64
import shlex
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from petctl.compat.act.compile import GPUS, LABEL, command_of

if TYPE_CHECKING:
    from petctl.job.record import JobRecord
    from petctl.jobs import JobHandle, Status

STATUS = {
    "pending": "Queued",
    "queued": "Queued",
    "starting": "Starting",
    "running": "Running",
    "recovering": "Running",
    "succeeded": "Completed",
    "failed": "Failed",
    "lost": "Failed",
    "cancelled": "Canceled",
}
_PARAMETERS = "-bp"  # before a YAML document in base64, by the habit of ACT's users
_SHORT = 5
_HOUR = 3600.0


def facts(handle: JobHandle, paths: Sequence[Path] = ()) -> dict[str, object]:
    """What is known of a run now; `paths`: its logs, as `run_logs.fetch` has brought them."""
    return facts_of(handle.status(), handle.record(), paths)


def facts_of(
    status: Status, record: JobRecord | None, paths: Sequence[Path] = (), now: float | None = None
) -> dict[str, object]:
    """The same of a status and a record that are at hand; the record may be missing."""
    job = record.job if record else {}
    known = {
        "appID": status.id,
        "appID-s": status.id[-_SHORT:],
        "cluster": job.get("labels", {}).get(LABEL, status.cluster),
        "status": STATUS[status.state],
        **_times(status, time.time() if now is None else now),
        **_commanded(job, status),
        "num_gpu": _gpus(job, status),
        "docker_image": job.get("image"),
        "data_store": {str(folder["name"]): str(folder["location"]) for folder in (record.folders if record else ())},
        "ssh": f"act ssh {status.id}" if STATUS[status.state] == "Running" else "",
        **_logged(paths),
        **_became(status),
    }
    return {name: value for name, value in known.items() if value not in (None, "", {}, [])}


def _times(status: Status, now: float) -> dict[str, object]:
    """When it began and ended, and for how many hours it has run; one that waits has not begun."""
    if STATUS[status.state] in ("Queued", "Starting"):
        return {}
    started = status.started
    if started is None and not status.final:  # a replaced coordinator does not know when the first one began
        started = status.submitted
    found: dict[str, object] = {}
    if started is not None:
        found = {"start_time": moment(started), "elapsedTime": _hours((status.finished or now) - started)}
    if status.finished is not None:
        found |= {"end_time": moment(status.finished), "elapsedFinished": _hours(now - status.finished)}
    return found


def _commanded(job: Mapping[str, Any], status: Status) -> dict[str, object]:
    """The command, and what its parameters say that nobody can read as they are."""
    argv = command_of(job) if LABEL in job.get("labels", {}) else []  # others were not made from words of ACT
    line = argv[0] if len(argv) == 1 else shlex.join(argv)
    parameters = _decoded(argv)
    named = parameters.get("param") if isinstance(parameters, dict) else None
    named = named if isinstance(named, dict) else {}
    parts = {name: named.get(name) for name in ("data", "net", "expid")}
    whole = "_".join(map(str, parts.values())) if all(parts.values()) else ""
    return {"cmd": line or status.command, "cmd_param": parameters, **parts, "full_expid": whole}


def _decoded(argv: Sequence[str]) -> object:
    """The YAML document behind -bp; None where there is none, or it is something else."""
    words = [word for line in argv for word in line.split()] if len(argv) == 1 else list(argv)
    if _PARAMETERS not in words[:-1]:
        return None
    import yaml

    try:
        text = base64.b64decode(words[words.index(_PARAMETERS) + 1], validate=True).decode()
        return yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError):  # ValueError: no base64, no text, or a day that never was
        return None


def _gpus(job: Mapping[str, Any], status: Status) -> int | None:
    """How many were asked for, over all nodes; None for a run that ACT did not submit and that asks for none."""
    said = str(job.get("labels", {}).get(GPUS, ""))
    if said.isdecimal():
        return int(said)
    return int(job.get("resources", {}).get("gpus", 0)) * status.size.wanted or None


def _logged(paths: Sequence[Path]) -> dict[str, object]:
    own = [path for path in paths if path.name in ("70_driver_log_rank_0.txt", "70_driver_log_rank_0.err.txt")]
    # Of two the one that says anything: Python's logging writes to stderr alone.
    master = max(own, key=lambda path: path.exists() and path.stat().st_size > 0, default="")
    return {
        "logFiles": [f"{path.parent.name}/{path.name}" for path in paths],
        "all_log_path": [str(path) for path in paths],
        "master_log": str(master),
    }


def _became(status: Status) -> dict[str, object]:
    """Why it stands where it stands: a named cause where there is one, and the sentence."""
    found: dict[str, object] = {}
    failure = status.error if status.final else status.last_failure
    if failure is not None:
        found["result"] = failure.cause
    if STATUS[status.state] not in ("Completed", "Canceled"):
        found["sentence"] = status.sentence
    if status.progress is not None:
        found |= {"step": status.progress.step, "speed": round(status.progress.steps_per_second, 2) or None}
        found["metrics"] = dict(status.progress.metrics)
    return found


def moment(seconds: float) -> str:
    """A point in time: 2019-07-16T06:14:10.688519Z."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _hours(seconds: float) -> float:
    return round(max(0.0, seconds) / _HOUR, 2)
