"""A list of a namespace's jobs asks Kubernetes, not the jobs: it agrees with their statuses, and many jobs cost no more
requests than one."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from petctl.clusters.kubernetes.backend import KubernetesBackend
from petctl.clusters.managed import ManagedCluster
from petctl.jobs.status import Status
from petctl.kube.api import Api
from petctl.kube.kubeconfig import find_access
from tests.k8s.cluster.waiting import until
from tests.k8s.user import User


class Counted:
    """The user's cluster, and how many requests were made."""

    def __init__(self, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KUBECONFIG", str(user.kubeconfig))
        settings = {"name": "k8s", "namespace": user.namespace}
        self.requests: list[str] = []
        self.cluster = ManagedCluster(KubernetesBackend(user.home, settings))
        self.cluster.backend.__dict__["_api"] = Api(find_access(settings), self.requests.append)

    def list(self) -> dict[str, Status]:
        self.requests.clear()
        found = self.cluster.statuses(lambda job_id: True)
        return {listed.id: listed.status for listed in found if listed.status is not None}


def shown(status: Status) -> tuple[Any, ...]:
    """What a list's table shows, but for the round."""
    nodes = [(node.name, node.state) for node in status.nodes if node.state == "running"]
    return status.state, nodes, status.size.wanted, status.command, round(status.submitted)


def test_a_list_agrees_with_the_statuses_and_costs_no_more_for_many_jobs(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(user, monkeypatch)
    running = [user.submit("-n", "2", "steps.py")]
    counted.list()
    for_one = len(counted.requests)
    running.append(user.submit("-n", "1:1:2", "steps.py"))
    failed, unschedulable = user.submit("--restarts", "0", "--", "false"), user.submit("--cpu", "1000", "steps.py")
    for job, nodes in zip(running, (2, 1), strict=True):
        user.running(job, nodes)
    user.ended(failed)
    until(lambda: [counted.list()[job].state for job in running] == ["running"] * 2, "pods that are ready", 120)
    assert user.petctl("scale", running[1], "2").returncode == 0
    user.running(running[1], 2)
    until(lambda: len(shown(counted.list()[running[1]])[1]) == 2, "the second pod", 120)

    begun = time.monotonic()
    listed, took = counted.list(), time.monotonic() - begun
    assert len(counted.requests) == for_one <= 4, counted.requests
    counted.requests.clear()
    begun = time.monotonic()
    statuses = {job: counted.cluster.status(job) for job in listed}
    print(
        f"\na list: {for_one} requests, {took:.3f} s; {len(listed)} statuses: {len(counted.requests)} requests and a "
        f"connection for each that runs, {time.monotonic() - begun:.3f} s"
    )
    assert set(listed) == {*running, failed, unschedulable}
    for job in (*running, failed):
        assert shown(listed[job]) == shown(statuses[job])
    assert listed[failed].exit_code == statuses[failed].exit_code == 1
    assert listed[unschedulable].state == statuses[unschedulable].state == "starting"
    assert "no machine of the cluster can take" in listed[unschedulable].sentence

    user.petctl("cancel", *running, unschedulable)
    for job in (*running, unschedulable):
        user.ended(job)
    assert {status.state for job, status in counted.list().items() if job != failed} == {"cancelled"}
    (first, *_) = json.loads(user.petctl("list", "-c", "k8s", "-o", "json").stdout)
    assert first["summary"] and first["state"] == "cancelled"
