"""What becomes of a job, as its objects tell it: how it ended, and why it does not run yet. Objects in, words out.

What happens inside a running job is the coordinator's to tell; here is what Kubernetes knows when nobody answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from petctl.clusters.agent_archive import OLD_PYTHON
from petctl.clusters.kubernetes import elastic_jobs
from petctl.clusters.kubernetes.names import CONTAINER, ID, by_age
from petctl.clusters.kubernetes.pods.pod_termination import end_of
from petctl.controller.journals.records import first_status
from petctl.controller.termination_message import parse_message
from petctl.errors import InternalError
from petctl.job.record import JobRecord
from petctl.job.status import JobStatus
from petctl.job.task import PROGRAM, Task
from petctl.kube.timestamps import seconds
from petctl.rendezvous.core.config import Config

OUTCOME = "petctl.dev/outcome"
"""Annotation of a job that was ended from outside, because its coordinator could not be asked."""
FAILED, IGNORED = (f"batch.kubernetes.io/job-index-{kind}failure-count" for kind in ("", "ignored-"))
"""Annotations of a pod: how many there were before it."""
PLACE = "batch.kubernetes.io/job-completion-index"
"""... and how many indices of its Job were given up before."""
_NO_START = ("StartError", "ContainerCannotRun")
_NO_PYTHON = ("executable file not found", "no such file or directory", OLD_PYTHON)
_NEEDS_PYTHON = "; if the image has no Python 3.9 or newer, set one that has it: options.kubernetes.agent_image"

Object = Mapping[str, Any]


def last_words(pods: Iterable[Object]) -> dict[str, Any] | None:
    """Those of the first coordinator that said how the job ended."""
    for pod in by_age(pods):
        for container in pod.get("status", {}).get("containerStatuses", ()):
            message = parse_message(container.get("state", {}).get("terminated", {}).get("message", ""))
            if message is not None:
                return message
    return None


def ended(owner: Object, pods: Iterable[Object]) -> dict[str, Any] | None:
    """The last words of the coordinator, or whatever stands for them; None while the job goes on."""
    message = last_words(pods)
    if message is not None:
        return message
    status = owner.get("status", {})
    for text in (status.get("outcome", ""), (owner["metadata"].get("annotations") or {}).get(OUTCOME, "")):
        message = parse_message(text)
        if message is not None:
            return message
    for condition in status.get("conditions", ()):
        if condition["status"] == "True":
            outcome = _elastic_end(owner, condition) if elastic_jobs.is_elastic(owner) else _job_end(condition)
            if outcome is not None:
                return {"outcome": outcome, "finished": seconds(condition.get("lastTransitionTime"))}
    return None


def _job_end(condition: Object) -> dict[str, Any] | None:
    if condition["type"] not in ("Complete", "Failed"):
        return None
    sentence = "its coordinator's pod is gone, so the job's outcome is unknown"
    if condition["type"] == "Failed":
        sentence = f"Kubernetes gave its coordinator up: {condition.get('message') or condition.get('reason')}"
    return {"state": "lost", "code": InternalError.code, "sentence": sentence}


def _elastic_end(owner: Object, condition: Object) -> dict[str, Any] | None:
    """One that its operator has ended without a coordinator."""
    if condition["type"] not in elastic_jobs.ENDS:
        return None
    state, code = elastic_jobs.ENDS[condition["type"]], owner["status"].get("exitCode")
    sentence = str(condition.get("message") or condition.get("reason") or state)
    return {"state": state, "code": int(state == "failed") if code is None else int(code), "sentence": sentence}


def was_replaced(owner: Object, pods: Sequence[Object]) -> bool:
    """Whether the job's coordinator is not its first one, so that workers may be at work without it."""
    if elastic_jobs.is_elastic(owner):
        return elastic_jobs.has_begun(owner)
    if all(_never_began(pod) for pod in pods) and pods:
        return False
    if owner.get("status", {}).get("failed"):
        return True
    return any(
        pod["metadata"].get("deletionTimestamp") or any(_number(pod, kind) for kind in (FAILED, IGNORED, PLACE))
        for pod in pods
    )


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
        created = seconds(owner["metadata"].get("creationTimestamp"))
        state, sentence = elastic_jobs.progress(owner, time.time(), created)
        return replace(status, state=state, sentence=sentence)
    return replace(status, state="starting", sentence=f"waiting: {reason or 'its coordinator is starting'}")


def runs(pod: Object) -> bool:
    """Whether its container runs, and is to go on."""
    return pod.get("status", {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


def _trains(pod: Object) -> bool:
    """Whether its workers are in a round: that is what makes it ready. One that has not said so may be."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return all(entry["status"] == "True" for entry in conditions if entry["type"] == "Ready")


def _why_none_runs(pods: Sequence[Object], refused: str) -> str:
    """What keeps a job's coordinator, the newest pod; what ended the one before will end this one too."""
    ended = [f"{end.pod} {end.words}" for end in map(end_of, pods) if end]
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
        if ID not in (owner["metadata"].get("annotations") or {}):  # not petctl's, which makes the record too
            name, command = job_id, elastic_jobs.command(owner)
    return JobRecord(
        id=job_id,
        name=name,
        cluster=cluster,
        submitted=seconds(owner["metadata"].get("creationTimestamp")),
        command=command,
        config=Config(least, most, wanted, restarts),
        task=Task(job_id, PROGRAM, []),
    )


def why_not_running(pod: Object) -> str:
    """Why a pod does not run, in plain words; empty when it does."""
    name = str(pod["metadata"]["name"])
    if pod.get("status", {}).get("phase") in (None, "Pending"):
        return why_blocked(pod, name) or f"{name} is being created"
    return why_blocked(pod, name)


def why_blocked(pod: Object, called: str) -> str:
    """What keeps a pod from starting, if it is more than the time that it takes; `called`: its name, or "it"."""
    status = pod.get("status", {})
    own = "its container" if called == "it" else f"the container of {called}"
    containers = list(chain(status.get("initContainerStatuses") or (), status.get("containerStatuses") or ()))
    for container in containers:
        waits = container.get("state", {}).get("waiting", {})
        if waits.get("reason") in ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"):
            return f"the image {container.get('image')} is not available ({waits.get('message') or waits['reason']})"
        if waits.get("reason") and waits["reason"] not in ("ContainerCreating", "PodInitializing"):
            return f"{own} cannot start: {waits.get('message') or waits['reason']}"
        said = _why_not_begun(container)
        if said:
            no_python = any(words in said for words in _NO_PYTHON) and container.get("name") == CONTAINER
            return f"{own} cannot start: {said}{_NEEDS_PYTHON if no_python else ''}"
    if status.get("phase") not in (None, "Pending"):
        return ""
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"no machine of the cluster can take {called}: {condition.get('message') or condition.get('reason')}"
    return ""


def never_woken(owner: Object) -> bool:
    """Whether it sleeps as its submitter made it: waking it would have been a change of its spec."""
    about = owner["metadata"]
    return about.get("generation") == 1 and ID in (about.get("annotations") or {})


def _never_began(pod: Object) -> bool:
    return any(map(_why_not_begun, pod.get("status", {}).get("containerStatuses") or ()))


def _why_not_begun(container: Object) -> str:
    """Why a container ended before it did anything; empty otherwise."""
    ended = container.get("state", {}).get("terminated", {})
    said = str(ended.get("message") or "").strip()
    if ended.get("reason") in _NO_START:
        return said or str(ended["reason"])
    return said if OLD_PYTHON in said else ""


def _number(pod: Object, annotation: str) -> int:
    text = str(pod["metadata"].get("annotations", {}).get(annotation, ""))
    return int(text) if text.isdecimal() else 0
