"""The record of a job that was made with kubectl: what a submitter would have written down for it (`job.json`).

A job that petctl submitted has its record already, and that one counts. Reads no file and asks nobody.
"""

from __future__ import annotations

import shlex
from typing import Any

from petctl.clusters.kubernetes.jobrequest import KubernetesRequest
from petctl.clusters.kubernetes.operator.elasticjob import ElasticJob
from petctl.clusters.kubernetes.pods.manifests import RECOVERY, STATE
from petctl.errors import UsageError
from petctl.job.fields import encode
from petctl.job.record import JobRecord
from petctl.job.task import CHECKPOINTS, MPI, PLAIN, PROGRAM, SCRIPT, TORCHRUN, Task
from petctl.kube.objects import seconds
from petctl.rendezvous.core.config import Config


def record_of(job: ElasticJob, wanted: int) -> JobRecord:
    """What coordinator and nodes must know; UsageError says what the ElasticJob lacks."""
    task, words = _task(job), job.command
    config = Config(
        min_nodes=job.least,
        max_nodes=job.most,
        wanted=wanted,
        restarts=job.restarts,
        retry_on=job.retry_on,
        eager=task.can_be_warm,
        offers=task.launcher in (MPI, PLAIN),
        recover_within=RECOVERY,
    )
    nodes = f"{job.least}:{job.most}" if job.replicas is None else f"{job.least}:{job.replicas}:{job.most}"
    return JobRecord(
        id=job.id,
        name=job.name,
        cluster="",
        submitted=seconds(job.object["metadata"]["creationTimestamp"]),
        command=shlex.join(words),
        config=config,
        task=task,
        job=_wish(job, task, nodes),
        request=encode(KubernetesRequest(job.namespace, numbered=False)),
    )  # without max_time: that is the operator's own to keep, whatever becomes of coordinators


def _wish(job: ElasticJob, task: Task, nodes: str) -> dict[str, Any]:
    """As a job file, for `petctl resubmit`; its code is in the image."""
    first = {"script": task.words[0], "args": task.words[1:]} if task.kind == SCRIPT else {"program": task.words}
    return {
        **first,
        "name": job.name,
        "code": "none",
        "nodes": nodes,
        "procs": task.procs,
        "launcher": task.launcher,
        "warm": task.warm,
        "restarts": task.restarts,
        "grace": task.grace,
        "image": str(job.container.get("image") or ""),
        "options": {"kubernetes": {"pod": patch}} if (patch := job.patch()) else {},
        "env": {CHECKPOINTS: named} if (named := _named_checkpoints(job)) else {},
    }


def _named_checkpoints(job: ElasticJob) -> str:
    """The place for them that the container's environment names, if it is a plain path."""
    named = [str(one.get("value")) for one in job.container.get("env") or () if one.get("name") == CHECKPOINTS]
    return next((place for place in named if place.startswith("/")), "")


def _task(job: ElasticJob) -> Task:
    words, launcher = job.command, str(job.spec.get("launcher") or "elastic")
    kind, python = PROGRAM, ""
    if launcher == TORCHRUN:
        if len(words) < 2 or not words[1].endswith(".py"):
            raise UsageError(
                "the torchrun launcher runs a Python script; the first container's command must be "
                f"[python, SCRIPT.py, ...], not {shlex.join(words)}"
            )
        kind, python, words = SCRIPT, words[0], words[1:]
    return Task(
        job=job.id,
        kind=kind,
        words=words,
        procs=str(job.spec.get("procsPerNode") or 1),
        launcher=launcher,
        python=python,
        warm=bool(job.spec.get("warm", True)),
        grace=job.grace,
        restarts=job.restarts,
        min_nodes=job.least,
        max_nodes=job.most,
        log_dir=f"{STATE}/logs",
        output_dir=f"{STATE}/outputs",
        checkpoint_dir=_named_checkpoints(job) or f"{STATE}/checkpoints",
    )
