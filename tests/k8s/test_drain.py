"""Machines that are drained: nodes leave one after the other, the next when the replacement of the last takes part."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.k8s.cluster.cluster import Cluster
from tests.k8s.cluster.waiting import until
from tests.k8s.operators import operator
from tests.k8s.user import User

pytestmark = [pytest.mark.root]
REPORTING = """
import itertools, time
from petctl import elastic
for step in itertools.count():
    elastic.report(step=step)
    time.sleep(0.1)
"""


def near(machine: str) -> dict[str, Any]:
    """The affinity of pods that go to this machine as long as it takes any."""
    there = {"key": "kubernetes.io/hostname", "operator": "In", "values": [machine]}
    term = {"weight": 100, "preference": {"matchExpressions": [there]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}


@contextlib.contextmanager
def drained(cluster: Cluster, machine: str, job: str) -> Iterator[None]:
    """The machine without the job's pods; afterwards it takes pods again."""
    options = (f"--pod-selector=petctl.dev/job={job}", "--delete-emptydir-data", "--timeout=180s")
    try:
        cluster.kubectl("drain", machine, *options)
        yield
    finally:
        cluster.kubectl("uncordon", machine)


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


@pytest.mark.long
@pytest.mark.parametrize("operated", [True, False], ids=["with operator", "without operator"])
def test_a_machine_with_everything_on_it_is_drained_step_by_step(user: User, tmp_path: Path, operated: bool) -> None:
    cluster, machine = user.cluster, user.cluster.nodes[0]
    with operator(cluster, user.namespace, tmp_path) if operated else contextlib.nullcontext():
        coordinator = {"spec": {"affinity": near(machine)}}
        user.configure(operator=operated, affinity=near(machine), coordinator=coordinator)
        (user.project / "reporting.py").write_text(REPORTING)
        job = user.submit("-n", "1:2:2", "reporting.py")
        user.running(job, 2)
        if not operated:  # as docs/kubernetes.md says
            selector = f"--selector=petctl.dev/job={job},petctl.dev/role=node"
            cluster.kubectl("create", "poddisruptionbudget", job, selector, "--min-available=1", user.there)
        until(lambda: [is_ready(pod) for pod in user.pods(job, "node")] == [True, True], "both nodes are ready", 60)
        pods = [*user.pods(job, "node"), *user.pods(job, "coordinator")]
        assert {pod["spec"]["nodeName"] for pod in pods} == {machine}
        with drained(cluster, machine, job):
            after = user.running(job, 2)
            pods = [*user.pods(job, "node"), *user.pods(job, "coordinator")]
            assert machine not in {pod["spec"]["nodeName"] for pod in pods}
        whole = [row for row in after["rounds"] if len(row["nodes"]) == 2]
        assert len(whole) >= 3, after["rounds"]  # at first, with one of them replaced, with both
        assert after["spent"] == 0
        assert user.petctl("cancel", "--kill", job).returncode == 0
        assert user.ended(job)["state"] == "cancelled"
        if operated:
            found = ("get", "poddisruptionbudgets", user.there, "--output=name")
            until(lambda: cluster.kubectl(*found) == "", "the budget of an ended job goes")
