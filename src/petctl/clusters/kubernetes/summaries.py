"""All jobs of a namespace in a handful of requests, however many there are: owners, nodes' Jobs, pods.

What happens inside a job only its coordinator knows, and asking each would be a connection per job. A summary tells
what Kubernetes knows: how the job ended, why it waits, which nodes' pods are ready (that is: their workers have been in
a round for a moment, `agent/health/readiness.py`). It leaves out what only the job itself knows: rounds, ranks,
progress. The job's record is read only where its owner does not say what the job is (`about`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from petctl.clusters.base import Listed
from petctl.clusters.kubernetes import elastic_jobs, job_status
from petctl.clusters.kubernetes.coordinator_client import running
from petctl.clusters.kubernetes.job_owner import Owners
from petctl.clusters.kubernetes.names import (
    ABOUT,
    CONTAINER,
    COORDINATOR,
    ID,
    JOB,
    NODE,
    ROLE,
    by_age,
    node_of,
    object_name,
)
from petctl.clusters.kubernetes.pods import pod_termination
from petctl.clusters.kubernetes.pods.unschedulable import NOBODY_MAKES_IT
from petctl.clusters.printed import final_status
from petctl.controller.journals.records import first_status
from petctl.errors import InternalError, NotFound
from petctl.job.fields import decode
from petctl.job.record import JobRecord
from petctl.job.status import JobStatus, NodeStatus
from petctl.kube.api import Api, path
from petctl.kube.timestamps import seconds
from petctl.rendezvous.core.decide import natural

LONGEST = 4096
"""Bytes that an owner says about its job; of a longer command the record is read."""
_PHASES = {"Starting": "starting", "Running": "running", "Recovering": "recovering"}
_FACTS = ("name", "submitted", "command")
_UNKNOWN: dict[str, Any] = {"cwd": "", "code": "", "summary": True}  # what a record would tell

Object = Mapping[str, Any]
Pods = Sequence[dict[str, Any]]
AllPods = Mapping[tuple[str, str], Pods]


def about(record: JobRecord) -> dict[str, str]:
    """The annotation of a job's owner that tells lists what the job is; none where that is too long."""
    facts = {name: getattr(record, name) for name in _FACTS}
    facts["config"] = {name: getattr(record.config, name) for name in ("min_nodes", "wanted", "max_nodes", "restarts")}
    text = json.dumps(facts, separators=(",", ":"))
    return {ABOUT: text} if len(text) <= LONGEST else {}


class Summaries:
    """Those of one namespace."""

    def __init__(
        self, api: Api, namespace: str, owners: Owners, cluster: str, read_record: Callable[[str], JobRecord]
    ) -> None:
        self._api, self._namespace, self._owners = api, namespace, owners
        self._cluster, self._read_record = cluster, read_record

    def list(self, wanted: Callable[[str], bool]) -> Iterator[Listed]:
        """Every job, the wanted ones with a summary."""
        owners, nodes = self._owners.all()
        these = {job_id for job_id in owners if wanted(job_id)}
        pods = self._pods() if these else {}
        for job_id, owner in owners.items():
            if job_id not in these:
                yield Listed(job_id)
                continue
            try:
                yield Listed(job_id, self._summary(job_id, owner, nodes.get(object_name(job_id)), pods))
            except (InternalError, NotFound) as error:
                yield Listed(job_id, error=error)

    def _pods(self) -> AllPods:
        """By the job's label and the role."""
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for pod in self._api.list(path("pods", self._namespace), ROLE):
            labels = pod["metadata"].get("labels") or {}
            found.setdefault((str(labels.get(JOB)), str(labels.get(ROLE))), []).append(pod)
        return found

    def _summary(self, job_id: str, owner: Object, nodes_job: Object | None, pods: AllPods) -> JobStatus:
        record = self._record(job_id, owner)
        name = object_name(job_id)
        coordinators, nodes = pods.get((name, COORDINATOR), ()), pods.get((name, NODE), ())
        message = job_status.ended(owner, coordinators)
        if message is not None:
            status = final_status(record, message)
            if pod_termination.may_have_lost(status):
                status = pod_termination.explained(status, pod_termination.ends_of(_failed(nodes), owner))
        else:
            status = going_status(record, owner, coordinators, nodes, _wanted(record, owner, nodes_job))
            if nodes_job is None and not elastic_jobs.is_elastic(owner) and not owner["spec"].get("suspend"):
                status = replace(status, sentence=f"{status.sentence}; {NOBODY_MAKES_IT}", cut_short=True)
        known = _UNKNOWN if ABOUT in _annotations(owner) else {"summary": True}
        return replace(status, **known, cluster=self._cluster)

    def _record(self, job_id: str, owner: Object) -> JobRecord:
        bare = job_status.bare_record(job_id, self._cluster, owner)
        found = _annotations(owner)
        cut_short = bool(owner["spec"].get("suspend")) and job_status.never_woken(owner)  # or being made just now
        try:
            facts = {} if cut_short else json.loads(found[ABOUT])
            told = {name: facts[name] for name in _FACTS}
            return decode(JobRecord, {**vars(bare), **told, "config": {**vars(bare.config), **facts["config"]}})
        except (KeyError, ValueError, TypeError):
            pass
        if ID not in found and elastic_jobs.is_elastic(owner):  # made with kubectl: it says all that there is
            return bare
        try:
            return self._read_record(job_id)
        except NotFound:
            return bare


def going_status(record: JobRecord, owner: Object, coordinators: Pods, nodes: Pods, wanted: int) -> JobStatus:
    """The status of a job that has not ended, as its pods show it."""
    if owner["spec"].get("suspend") or not running(coordinators):
        status = job_status.waiting_status(record, owner, coordinators, "", lambda: nodes)
    else:
        status = replace(first_status(record), **_state(owner, coordinators, nodes, wanted))
    return replace(status, nodes=_rows(nodes), size=replace(status.size, wanted=wanted))


def _state(owner: Object, coordinators: Pods, nodes: Pods, wanted: int) -> dict[str, Any]:
    """State and sentence of a job whose coordinator runs."""
    newest = _newest(nodes)
    told = owner.get("status") or {}
    if elastic_jobs.is_elastic(owner) and told.get("phase") in _PHASES:  # its operator knows
        return {"state": _PHASES[told["phase"]], "sentence": str(told.get("message") or told["phase"])}
    ready = [pod for pod in newest if is_ready(pod)]
    if ready:
        since = min(_ready_since(pod) for pod in ready)
        return {"state": "running", "sentence": f"{len(ready)} of {wanted} nodes are ready", "since": since}
    why = next((why for pod in newest if (why := job_status.why_not_running(pod))), "")
    sentence = f"waiting: 0 of {wanted} nodes are ready{f'; {why}' if why else ''}"
    if any(map(_was_ready, nodes)) or job_status.was_replaced(owner, coordinators):
        return {"state": "recovering", "sentence": sentence}
    return {"state": "starting", "sentence": sentence}


def is_ready(pod: Object) -> bool:
    """Whether its workers are in a round."""
    return job_status.runs(pod) and _ready(pod).get("status") == "True"


def _ready(pod: Object) -> Object:
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((entry for entry in conditions if entry["type"] == "Ready"), {})


def _ready_since(pod: Object) -> float:
    return seconds(_ready(pod).get("lastTransitionTime"))


def _was_ready(pod: Object) -> bool:
    """Whether a node's workers have been in a round before: its pod has changed since its container began."""
    for container in pod.get("status", {}).get("containerStatuses") or ():
        begun = container.get("state", {}).get("running", {}).get("startedAt")
        if container.get("name") == CONTAINER and begun:
            return not is_ready(pod) and _ready_since(pod) > seconds(begun)
    return False


def _rows(nodes: Iterable[Object]) -> list[NodeStatus]:
    """The nodes whose pods have not ended."""
    rows = []
    for pod in _newest(nodes):
        runs = job_status.runs(pod)
        state = "running" if is_ready(pod) else "starting" if runs else "pending"
        rows.append(NodeStatus(node_of(dict(pod)), state, sentence=job_status.why_blocked(pod, "it")))
    return sorted(rows, key=lambda row: natural(row.name))


def _newest(nodes: Iterable[Object]) -> list[Object]:
    """The newest pod of each node, of those that have not ended."""
    alive = [pod for pod in nodes if pod.get("status", {}).get("phase") in (None, "Pending", "Running")]
    return list({node_of(dict(pod)): pod for pod in by_age(alive)}.values())


def _failed(nodes: Iterable[Object]) -> list[Object]:
    return [pod for pod in nodes if pod.get("status", {}).get("phase") == "Failed"]


def _wanted(record: JobRecord, owner: Object, nodes_job: Object | None) -> int:
    """How many nodes are wanted now: somebody may have scaled the job."""
    if elastic_jobs.is_elastic(owner):
        return elastic_jobs.wanted(owner)
    said = ((nodes_job or {}).get("spec") or {}).get("parallelism")
    return int(record.config.wanted if said is None else said)


def _annotations(owner: Object) -> Mapping[str, str]:
    return owner["metadata"].get("annotations") or {}
