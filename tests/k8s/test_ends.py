"""Pods that end because of what Kubernetes, or the kernel, does to them: what status, diagnose and run say of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.k8s.cluster.waiting import until
from tests.k8s.operators import operator
from tests.k8s.user import User

pytestmark = [pytest.mark.root]
GREEDY = "echo 1000 > /proc/1/oom_score_adj; exec dd if=/dev/zero of=/dev/shm/much bs=1M"
"""The kernel ends the pod's first process, and all with it, as it does everywhere that has memory.oom.group."""
LITTLE = ("--memory", "96MiB", "--shm-size", "96MiB")
KILLED = "was killed: it used more than its 96Mi of memory (OOMKilled)"


@pytest.fixture
def operated(user: User, tmp_path: Path) -> Iterator[User]:
    """A user in whose namespace an operator is at work."""
    with operator(user.cluster, user.namespace, tmp_path):
        user.configure(operator=True)
        yield user


def test_a_pod_that_is_killed_for_memory(user: User) -> None:
    job = user.submit(*LITTLE, "--", "sh", "-c", GREEDY)
    user.told(job, "node 0", KILLED)
    page = user.petctl("status", job).stdout
    assert "cause       host-out-of-memory: " in page and "ask for more memory (--memory)" in page, page
    found = json.loads(user.petctl("diagnose", "-o", "json", job).stdout)
    assert "host-out-of-memory" in [finding["cause"] for finding in found["findings"]], found
    assert user.petctl("cancel", "--kill", job).returncode == 0


def test_pods_of_an_elastic_job_that_are_killed_for_memory_end_it(operated: User) -> None:
    user = operated
    done = user.petctl("run", "-c", "k8s", *LITTLE, "--restarts", "1", "--name", "greedy", "--", "sh", "-c", GREEDY)
    assert done.returncode == 137, done.stderr
    assert f"{KILLED}, after 1 restarts" in done.stderr and "ask for more memory (--memory)" in done.stderr, done.stderr
    table = user.cluster.kubectl("get", "ej", user.there).splitlines()
    assert table[1].split()[-3:-1] == ["Failed", "host-out-of-memory"], table
    told = user.cluster.kubectl.get("events", "--field-selector=reason=HostOutOfMemory", user.there)["items"]
    assert told and all(KILLED in event["message"] for event in told)
    (listed,) = json.loads(user.petctl("list", "-c", "k8s", "-o", "json").stdout)
    found = json.loads(user.petctl("diagnose", "-o", "json", listed["id"]).stdout)
    assert found["root"]["cause"] == "host-out-of-memory"


def test_a_pod_that_has_to_leave_its_machine_is_remembered_when_it_is_gone(operated: User) -> None:
    user = operated
    job = user.submit("-n", "1", "steps.py")
    user.running(job, 1)
    (pod,) = user.pods(job, "node")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"]}}
    place = f"/api/v1/namespaces/{user.namespace}/pods/{pod['metadata']['name']}/eviction"
    user.cluster.kubectl("create", "--raw", place, "--filename=-", text=json.dumps(eviction))

    def ends() -> list[dict[str, str]]:
        found: list[dict[str, str]] = user.cluster.kubectl.get("ej", job, user.there)["status"].get("ends") or []
        return found

    (end,) = until(ends, "the operator remembers it", 60)
    assert (end["cause"], end["uid"]) == ("drained", pod["metadata"]["uid"])
    found = json.loads(user.petctl("diagnose", "-o", "json", job).stdout)
    assert [finding["cause"] for finding in found["findings"]] == ["drained"], found
    assert user.petctl("cancel", "--kill", job).returncode == 0
