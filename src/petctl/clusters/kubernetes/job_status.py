"""What becomes of a job, as its objects tell it: how it ended, and why it does not run yet. Objects in, words out.

What happens inside a running job is the coordinator's to tell; here is what Kubernetes knows when nobody answers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from petctl.clusters.agent_archive import OLD_PYTHON
from petctl.clusters.kubernetes import elastic_jobs
from petctl.clusters.kubernetes.names import ABOUT, COMPLETION_INDEX, CONTAINER, ID
from petctl.clusters.kubernetes.pods.pod_termination import end_of
from petctl.controller.journals.records import first_status
from petctl.controller.termination_message import parse_message
from petctl.errors import InternalError
from petctl.job.fields import decode
from petctl.job.record import JobRecord
from petctl.job.status import JobStatus
from petctl.job.task import PROGRAM, Task
from petctl.kube import objects
from petctl.kube.objects import (
    Object,
    annotations_of,
    by_age,
    condition,
    created,
    ends,
    phase,
    runs,
    seconds,
    terminates,
    why_not_begun,
)
from petctl.rendezvous.core.config import Config

OUTCOME = "petctl.dev/outcome"
"""Annotation of a job that was ended from outside, because its coordinator could not be asked."""
FAILED, IGNORED = (f"batch.kubernetes.io/job-index-{kind}failure-count" for kind in ("", "ignored-"))
"""Annotations of a pod: how many there were before it; that of its index says how many indices were given up before."""
LONGEST = 4096
"""Bytes that an owner says about its job; of a longer command the record is read."""
_FACTS, _SIZES = ("name", "submitted", "command"), ("min_nodes", "wanted", "max_nodes", "restarts")
_NO_PYTHON = ("executable file not found", "no such file or directory", OLD_PYTHON)
_NEEDS_PYTHON = "; if the image has no Python 3.9 or newer, set one that has it: options.kubernetes.agent_image"


def last_words(pods: Iterable[Object]) -> dict[str, Any] | None:
    """Those of the first coordinator that said how the job ended."""
    return _first_message(end.get("message", "") for pod in by_age(pods) for _, end in ends(pod))


def _first_message(texts: Iterable[str]) -> dict[str, Any] | None:
    return next((message for message in map(parse_message, texts) if message is not None), None)


def ended(owner: Object, pods: Iterable[Object]) -> dict[str, Any] | None:
    """The last words of the coordinator, or whatever stands for them; None while the job goes on."""
    status = owner.get("status", {})
    message = last_words(pods) or _first_message((status.get("outcome", ""), annotations_of(owner).get(OUTCOME, "")))
    if message is not None:
        return message
    elastic = elastic_jobs.is_elastic(owner)
    for found in status.get("conditions", ()):
        if found["status"] == "True" and found["type"] in (elastic_jobs.ENDS if elastic else ("Complete", "Failed")):
            outcome = _elastic_end(status, found) if elastic else _job_end(found)
            return {"outcome": outcome, "finished": seconds(found.get("lastTransitionTime"))}
    return None


def _job_end(found: Object) -> dict[str, Any]:
    sentence = "its coordinator's pod is gone, so the job's outcome is unknown"
    if found["type"] == "Failed":
        sentence = f"Kubernetes gave its coordinator up: {found.get('message') or found.get('reason')}"
    return {"state": "lost", "code": InternalError.code, "sentence": sentence}


def _elastic_end(status: Object, found: Object) -> dict[str, Any]:
    """How an operator has ended its job without a coordinator."""
    state, code = elastic_jobs.ENDS[found["type"]], status.get("exitCode")
    sentence = str(found.get("message") or found.get("reason") or state)
    return {"state": state, "code": int(state == "failed") if code is None else int(code), "sentence": sentence}


def was_replaced(owner: Object, pods: Sequence[Object]) -> bool:
    """Whether the job's coordinator is not its first one, so that workers may be at work without it."""
    if elastic_jobs.is_elastic(owner):
        return elastic_jobs.has_begun(owner)
    if all(_never_began(pod) for pod in pods) and pods:
        return False
    if owner.get("status", {}).get("failed"):
        return True
    before = (FAILED, IGNORED, COMPLETION_INDEX)
    return any(terminates(pod) or any(_number(pod, kind) for kind in before) for pod in pods)


def waiting_status(
    record: JobRecord,
    owner: Object,
    pods: Sequence[Object],
    refused: str = "",
    nodes: Callable[[], Sequence[Object]] = tuple,
) -> JobStatus:
    """The status of a job whose coordinator cannot be asked now; `refused`: why it has no pod, or none that starts;
    `nodes`: lists the nodes' pods, called where they matter."""
    status = first_status(record)
    if owner["spec"].get("suspend"):
        sentence = f"queued: its {owner.get('kind') or 'Job'} is suspended"
        if not record.command:
            sentence = "its submission was interrupted; remove the rest with petctl rm --force"
        cut_short = not record.command or never_woken(owner)
        return replace(status, state="queued", sentence=sentence, cut_short=cut_short)
    reason = _why_none_runs(by_age(pods), refused)
    if was_replaced(owner, pods):
        alive = [pod for pod in nodes() if runs(pod)]
        waits = "its nodes are waiting" if alive else "no node is running"
        who = "its workers keep running" if any(map(_trains, alive)) else waits
        sentence = f"its coordinator is being replaced, and {who} meanwhile"
        return replace(status, state="recovering", sentence="; ".join(filter(None, [sentence, reason])))
    if elastic_jobs.is_elastic(owner) and not reason:
        state, sentence = elastic_jobs.progress(owner, time.time(), created(owner))
        return replace(status, state=state, sentence=sentence)
    return replace(status, state="starting", sentence=f"waiting: {reason or 'its coordinator is starting'}")


def _trains(pod: Object) -> bool:
    """Whether its workers are in a round: that is what makes it ready. One that has not said so may be."""
    return bool(condition(pod, "Ready").get("status", "True") == "True")


def _why_none_runs(pods: Sequence[Object], refused: str) -> str:
    """What keeps a job's coordinator, the newest pod; what ended the one before will end this one too."""
    ended = [f"{end.name} {end.words}" for end in map(end_of, pods) if end]
    if not pods or not (reason := why_not_running(pods[-1])):
        return ended[-1] if ended else "" if pods else refused
    blocked = [why for pod in pods if (why := why_blocked(pod, str(pod["metadata"]["name"])))]
    return blocked[-1] if blocked else "; ".join([*ended[-1:], refused or reason])


def bare_record(job_id: str, cluster: str, owner: Object) -> JobRecord:
    """What stands for the record of a job that has none yet, or none at all: its submission was cut short."""
    least = most = wanted = restarts = 0
    name, command = job_id.rpartition("-")[0], ""
    if elastic_jobs.is_elastic(owner):
        (least, most), wanted = elastic_jobs.bounds(owner), elastic_jobs.wanted(owner)
        restarts = int(owner["spec"].get("backoffLimit", 0))
        if ID not in annotations_of(owner):  # not petctl's, which makes the record too
            name, command = job_id, elastic_jobs.command(owner)
    return JobRecord(
        id=job_id,
        name=name,
        cluster=cluster,
        submitted=created(owner),
        command=command,
        config=Config(least, most, wanted, restarts),
        task=Task(job_id, PROGRAM, []),
    )


def about(record: JobRecord) -> dict[str, str]:
    """The annotation of a job's owner that tells lists what the job is; none where that is too long."""
    facts = {name: getattr(record, name) for name in _FACTS}
    facts["config"] = {name: getattr(record.config, name) for name in _SIZES}
    text = json.dumps(facts, separators=(",", ":"))
    return {ABOUT: text} if len(text) <= LONGEST else {}


def told_record(job_id: str, cluster: str, owner: Object) -> JobRecord | None:
    """As much of a job's record as its owner tells; None where it does not."""
    bare, told = bare_record(job_id, cluster, owner), annotations_of(owner)
    if ID not in told and elastic_jobs.is_elastic(owner):  # made with kubectl: it says all that there is
        return bare
    if owner["spec"].get("suspend") and never_woken(owner):  # cut short, or being made just now
        return None
    try:
        facts = json.loads(told[ABOUT])
        known = {name: facts[name] for name in _FACTS}
        return decode(JobRecord, {**vars(bare), **known, "config": {**vars(bare.config), **facts["config"]}})
    except (KeyError, ValueError, TypeError):
        return None


def why_not_running(pod: Object) -> str:
    """Why a pod does not run, in plain words; empty when it does."""
    name = str(pod["metadata"]["name"])
    return why_blocked(pod, name) or (f"{name} is being created" if phase(pod) == "Pending" else "")


def why_blocked(pod: Object, called: str) -> str:
    """What keeps a pod from starting, if it is more than the time that it takes; `called`: its name, or "it"."""
    return objects.why_blocked(pod, called, _why_not_begun)


def never_woken(owner: Object) -> bool:
    """Whether it sleeps as its submitter made it: waking it would have been a change of its spec."""
    return bool(owner["metadata"].get("generation") == 1) and ID in annotations_of(owner)


def _never_began(pod: Object) -> bool:
    return any(map(_why_not_begun, pod.get("status", {}).get("containerStatuses") or ()))


def _why_not_begun(container: Object) -> str:
    """Why a container ended before it did anything, with what to do where its image has no Python for the agent."""
    said = str(container.get("state", {}).get("terminated", {}).get("message") or "").strip()
    why = why_not_begun(container) or (said if OLD_PYTHON in said else "")
    no_python = container.get("name") == CONTAINER and any(words in why for words in _NO_PYTHON)
    return f"{why}{_NEEDS_PYTHON}" if no_python else why


def _number(pod: Object, annotation: str) -> int:
    text = str(annotations_of(pod).get(annotation, ""))
    return int(text) if text.isdecimal() else 0
