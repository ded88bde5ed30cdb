"""A cluster that is played: it does what a decision says, runs pods as far as it has room, and lets writers die.

Only for what a real cluster cannot be made to show in so many ways; the same things happen for real in tests/k8s.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from petctl.clusters.kubernetes.names import COORDINATOR, NODE
from petctl.clusters.kubernetes.operator import pods as make
from petctl.clusters.kubernetes.operator.actions import (
    CreateCoordinator,
    CreateNode,
    CreateService,
    Decision,
    Delete,
    DeleteBudget,
    DeleteJob,
    DeleteService,
    KeepNodes,
    Prepare,
    SpareReply,
    Tell,
)
from petctl.clusters.kubernetes.operator.elasticjob import ElasticJob, read_job
from petctl.clusters.kubernetes.operator.observation import Seen
from petctl.clusters.kubernetes.operator.pods import role_of
from petctl.clusters.kubernetes.operator.reconcile import decide
from petctl.clusters.kubernetes.operator.record import record_of
from petctl.kube.objects import written

Object = dict[str, Any]
START = 1_800_000_000.0


class Killed(Exception):
    """The operator, between two writes."""


class World:
    """One ElasticJob, its pods, and a clock that stands still until somebody moves it."""

    def __init__(self, room: int = 100, **spec: Any) -> None:
        container = {"name": "trainer", "image": "python:3.11", "command": ["python3", "train.py"]}
        template = {"spec": {"containers": [container]}}
        self.now, self.room, self.room_at = START, room, 0.0
        self.pods: dict[str, Object] = {}
        self.service = self.prepared = self.gone = False
        self.kept = 0  # by its PodDisruptionBudget
        self.told: list[Tell] = []
        self.release: list[str] = []  # whom the coordinator would rather spare than the last
        self.writes, self.killed_at = 0, -1
        self.look_at: float | None = None
        self.chapter = 0  # of a test's story
        self.job: Object = {
            "apiVersion": "petctl.dev/v1",
            "kind": "ElasticJob",
            "metadata": {
                "name": "hello",
                "namespace": "team",
                "uid": "u-1",
                "generation": 1,
                "creationTimestamp": written(START),
                "resourceVersion": "1",
            },
            "spec": {"template": template, **spec},
        }

    # -- the operator --------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Looks until there is nothing to do."""
        for _ in range(20):
            before = self.writes
            told: SpareReply | None = None
            for _ in range(3):
                decision = decide(self.seen(told), self.now)
                told = self._carry_out(decision)
                if told is None:
                    break
            self.look_at = decision.look_at
            if self.writes == before or self.gone:
                return
        raise AssertionError("it never comes to rest")

    def seen(self, told: SpareReply | None = None) -> Seen:
        pods = list(self.pods.values())
        return Seen(self.read(), pods, self.service, room_at=self.room_at, told=told, kept=self.kept)

    def read(self) -> ElasticJob:
        return read_job(copy.deepcopy(self.job))

    def _carry_out(self, decision: Decision) -> SpareReply | None:
        job, told = self.read(), None
        for step in decision.steps:
            if isinstance(step, Prepare):
                self._write(lambda: setattr(self, "prepared", True), not self.prepared)
                self._write(lambda: setattr(self, "service", True), not self.service)
        self._write(lambda: self.job.update(status=dict(decision.status)), decision.status != job.status)
        job = self.read()
        for step in decision.steps:
            if isinstance(step, CreateService):
                self._write(lambda: setattr(self, "service", True), not self.service)
            elif isinstance(step, CreateCoordinator):
                record = record_of(job, 1)
                self._create(make.coordinator_pod(job, record, step.number, step.alone))
            elif isinstance(step, CreateNode):
                self._create(make.node_pod(job, step.node, step.number))
            elif isinstance(step, Delete):
                self._write(lambda name=step.pod["metadata"]["name"]: self.delete(name))
            elif isinstance(step, DeleteService):
                self._write(lambda: setattr(self, "service", False))
            elif isinstance(step, (KeepNodes, DeleteBudget)):
                least = step.least if isinstance(step, KeepNodes) else 0
                self._write(lambda least=least: setattr(self, "kept", least))
            elif isinstance(step, DeleteJob):
                self._write(lambda: setattr(self, "gone", True))
            elif isinstance(step, Tell):
                self.told.append(step)
                told = SpareReply(step.wanted, step.nodes, tuple(self._spared(step)))
        return told

    def _spared(self, step: Tell) -> list[str]:
        surplus = len(step.nodes) - step.wanted
        chosen = [name for name in self.release if name in step.nodes]
        return [*chosen, *(name for name in reversed(step.nodes) if name not in chosen)][: max(surplus, 0)]

    def _create(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        about = {"uid": f"p-{self.writes}-{name}", "creationTimestamp": written(self.now)}
        made = {**pod, "metadata": {**pod["metadata"], **about}, "status": {"phase": "Pending"}}
        self._write(lambda: self.pods.setdefault(name, made), name not in self.pods)

    def _write(self, change: Any, needed: bool = True) -> None:
        """Killed before its n-th write, or after it."""
        if not needed:
            return
        if self.writes * 2 == self.killed_at:
            raise Killed
        change()
        self.writes += 1
        if self.writes * 2 - 1 == self.killed_at:
            raise Killed

    # -- the cluster ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Pods run as far as there is room; the others are refused."""
        running = sum(pod["status"]["phase"] == "Running" for pod in self.nodes())
        for pod in self.pods.values():
            if pod["status"]["phase"] != "Pending" or pod["metadata"].get("deletionTimestamp"):
                continue
            if role_of(pod) == NODE and running >= self.room:
                refusal = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
                since = next((c["lastTransitionTime"] for c in pod["status"].get("conditions", ())), written(self.now))
                pod["status"]["conditions"] = [{**refusal, "lastTransitionTime": since}]
                continue
            running += role_of(pod) == NODE
            pod["status"] = {"phase": "Running", "startTime": written(self.now)}

    def settle(self) -> None:
        """Operator and cluster take turns until nothing changes."""
        for _ in range(20):
            before = self.picture(), self.writes
            self.look()
            self.run()
            self.vanish()
            if (self.picture(), self.writes) == before:
                return
        raise AssertionError("it never comes to rest")

    def delete(self, name: str) -> None:
        """Somebody deletes a pod; it takes its time where it runs."""
        if name in self.pods:
            self.pods[name]["metadata"].setdefault("deletionTimestamp", written(self.now))

    def vanish(self, *but: str) -> None:
        """Pods that are being deleted are gone."""
        self.pods = {n: p for n, p in self.pods.items() if n in but or not p["metadata"].get("deletionTimestamp")}

    def end(self, name: str, code: int, message: str = "", reason: str = "", how: str = "") -> None:
        """A pod's container ends; `reason`: the pod's, `how`: the container's."""
        pod = self.pods[name]
        ended = {"exitCode": code, "finishedAt": written(self.now), "message": message}
        ended |= {"reason": how} if how else {}
        pod["status"] = {
            **pod["status"],
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"name": "petctl", "state": {"terminated": ended}}],
            **({"reason": reason} if reason else {}),
        }

    def finish(self, state: str = "succeeded", code: int = 0) -> None:
        """The job ends: nodes first, then the coordinator, with its last words."""
        for name in [pod["metadata"]["name"] for pod in self.nodes()]:
            self.end(name, 0)
        message = {"outcome": {"state": state, "code": code, "sentence": "that was it"}, "finished": self.now}
        self.end(self.coordinators()[-1]["metadata"]["name"], 0, json.dumps(message))

    # -- looking -------------------------------------------------------------------------------------------------------

    def of(self, role: str) -> Iterator[Object]:
        return (pod for pod in self.pods.values() if role_of(pod) == role)

    def nodes(self) -> list[Object]:
        return list(self.of(NODE))

    def coordinators(self) -> list[Object]:
        return list(self.of(COORDINATOR))

    @property
    def names(self) -> list[str]:
        return sorted(self.pods)

    @property
    def status(self) -> Object:
        return dict(self.job.get("status") or {})

    def holds(self, kind: str) -> bool:
        return any(c["type"] == kind and c["status"] == "True" for c in self.status.get("conditions", ()))

    def picture(self) -> str:
        """Everything but moments, and numbers that may have gaps."""
        status = {k: v for k, v in self.status.items() if k not in ("coordinators", "nodes", "told", "startTime")}
        status["conditions"] = [
            {k: v for k, v in entry.items() if k != "lastTransitionTime"} for entry in status.get("conditions", ())
        ]
        pods = Counter(
            str((role_of(pod), pod["status"]["phase"], bool(pod["metadata"].get("deletionTimestamp"))))
            for pod in self.pods.values()
        )
        return json.dumps([status, sorted(pods.items()), self.service, self.prepared, self.gone], sort_keys=True)
