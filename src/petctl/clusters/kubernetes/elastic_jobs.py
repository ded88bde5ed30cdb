"""An ElasticJob as those see it who submit it and look at it: made from a job, and read. Pure.

What an operator makes of it is `petctl.clusters.kubernetes.operator`. Here is only what a user's petctl must know: its
bounds, the size that it has now, what it runs, and how far its operator says that it has come.
"""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING, Any

from petctl.clusters.kubernetes.names import CONTAINER, ID, labels, object_name
from petctl.clusters.kubernetes.pods.manifests import PodSettings
from petctl.clusters.kubernetes.pods.template_merge import patched
from petctl.job.task import MODULE, SCRIPT
from petctl.kube.objects import Object, annotations_of

if TYPE_CHECKING:  # operators read these too, and have the standard library only
    from petctl.job.spec import Job

GROUP, VERSION, KIND = "petctl.dev", "v1", "ElasticJob"
API_VERSION = f"{GROUP}/{VERSION}"
UNSEEN = 10.0
"""Seconds after which an operator, if there is one, has seen a new ElasticJob."""
MOST_NODES = 10_000
"""An ElasticJob cannot have more: each look at it costs time that other jobs wait for."""
RETRYABLE = ((130, 130), (137, 138), (143, 143))
"""Exit codes that `restartPolicy: ExitCode` restarts from: signals from outside, and 138, which is the user's own."""
ENDS = {"Succeeded": "succeeded", "Failed": "failed"}
"""Its conditions that are final."""
_STATES = {"Pending": "pending", "Suspended": "queued", "Recovering": "recovering"}
_BEGUN = ("Running", "Recovering")


def elastic_job(job_id: str, job: Job, wishes: PodSettings) -> dict[str, Any]:
    """The object that `submit` makes, asleep: its operator must not begin before the record and the code are there."""
    size = job.nodes
    patched({}, wishes.coordinator, "options.kubernetes.coordinator")  # what is wrong with it is told here
    spec: dict[str, Any] = {"minReplicas": size.min, "maxReplicas": size.max}
    if size.initial < size.max:  # somebody has said where to begin; otherwise it has as many as there is room for
        spec["replicas"] = size.initial
    if job.max_time:
        spec["activeDeadlineSeconds"] = math.ceil(job.max_time)
    spec |= {
        "suspend": True,
        "backoffLimit": job.restarts,
        "procsPerNode": int(job.procs) if job.procs.isdecimal() else job.procs,
        "launcher": job.launcher,
        "python": wishes.python,
        **({"agentImage": wishes.agent_image} if wishes.agent_image else {}),
        "warm": job.warm,
        "template": _template(job, wishes),
        **({"coordinator": dict(wishes.coordinator)} if wishes.coordinator else {}),
        **({"ttlSecondsAfterFinished": math.ceil(wishes.ttl)} if wishes.ttl is not None else {}),
    }
    metadata = {"name": object_name(job_id), "labels": labels(job_id), "annotations": {ID: job_id}}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def _template(job: Job, wishes: PodSettings) -> dict[str, Any]:
    """A node's pod without what the operator adds; what it runs is in the record, and here for people to see."""
    gpus = {wishes.gpu_resource or "nvidia.com/gpu": str(wishes.gpus)}
    container = {
        "name": CONTAINER,
        "image": wishes.image,
        **({"imagePullPolicy": wishes.pull_policy} if wishes.pull_policy else {}),
        "command": _words(job),
        **({"resources": {"limits": gpus}} if wishes.gpus else {}),
    }
    spec = {
        "containers": [container],
        "terminationGracePeriodSeconds": int(wishes.grace) + 10,
        **({"imagePullSecrets": [{"name": name} for name in wishes.pull_secrets]} if wishes.pull_secrets else {}),
    }
    template: dict[str, Any] = {"spec": spec}
    for said, patch in wishes.patches:
        template = patched(template, patch, said)
    return template


def _words(job: Job) -> list[str]:
    words, python = list(job.command.words), job.python or "python3"
    if job.command.kind == "shell":
        return ["sh", "-c", *words]
    if job.command.kind in (SCRIPT, MODULE):
        return [python, *(["-m"] if job.command.kind == MODULE else []), *words]
    return words


def is_elastic(owner: Object) -> bool:
    """Whether a job's owner is one of these, and no Job."""
    return owner.get("kind") == KIND


def id_of(owner: Object) -> str:
    """The job's id, as petctl shows it; one that was made with kubectl is called by its name."""
    return str(annotations_of(owner).get(ID) or owner["metadata"]["name"])


def bounds(owner: Object) -> tuple[int, int]:
    """The least and the most nodes that it may have."""
    spec = owner["spec"]
    least = int(spec.get("minReplicas") or spec.get("replicas") or 1)
    return least, int(spec.get("maxReplicas") or spec.get("replicas") or least)


def wanted(owner: Object) -> int:
    """How many it has, or should have, as far as anybody has said."""
    return int(owner["spec"].get("replicas") or owner.get("status", {}).get("wanted") or bounds(owner)[1])


def command(owner: Object) -> str:
    """What it runs, as somebody might have typed it."""
    containers = owner["spec"].get("template", {}).get("spec", {}).get("containers") or [{}]
    return shlex.join(map(str, [*containers[0].get("command", ()), *containers[0].get("args", ())]))


def has_begun(owner: Object) -> bool:
    """Whether its workers may be at work."""
    return owner.get("status", {}).get("phase") in _BEGUN


def progress(owner: Object, now: float, created: float) -> tuple[str, str]:
    """State and sentence of one that no coordinator can be asked about."""
    status = owner.get("status") or {}
    if not status.get("phase"):
        if now - created < UNSEEN:
            return "pending", "waiting: its operator has not seen it yet"
        return "pending", "waiting: no operator has seen it; to install one: petctl operator install"
    message = str(status.get("message") or "its coordinator is starting").removeprefix("waiting: ")
    return _STATES.get(status["phase"], "starting"), f"waiting: {message}"
