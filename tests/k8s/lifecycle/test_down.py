"""A cluster that goes down leaves nothing, also one whose `up` was killed. Run while no cluster is up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from tests.k8s.cluster import cgroups, fall, images, programs, settings
from tests.k8s.cluster.cluster import kubeconfig_of, state_directory
from tests.k8s.cluster.kubectl import Kubectl, pod
from tests.k8s.cluster.ledger import Ledger, start_of
from tests.k8s.cluster.waiting import until

pytestmark = [pytest.mark.root]
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def going_up() -> Iterator[subprocess.Popen[str]]:
    """An `up` under way."""
    if os.geteuid() != 0 or state_directory().exists() or os.environ.get("KUBECONFIG"):
        pytest.skip("needs root, and no cluster that is up; `make test-k8s` sees to that")
    words = [sys.executable, "-m", "tests.k8s.cluster", "up"]
    with subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
            run("down")


def run(verb: str) -> subprocess.CompletedProcess[str]:
    """What a person would do."""
    words = [sys.executable, "-m", "tests.k8s.cluster", verb]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=280)


def half_up() -> Ledger | None:
    """The ledger of an `up` that has begun with its second node."""
    started = (state_directory() / "node2" / "containerd.pid").exists()
    return Ledger.read(state_directory()) if started else None


def killed_half_way(process: subprocess.Popen[str]) -> Ledger:
    """End an `up` as nothing can prevent; what it had done by then."""
    book = until(half_up, "node2 has started its containerd", 120)
    process.kill()
    process.wait()
    assert book is not None
    return book


def test_nothing_is_left_of_an_up_that_was_killed(going_up: subprocess.Popen[str]) -> None:
    book = killed_half_way(going_up)
    before = fall.remains(book)
    for kind in ("process", "namespace net", "link petctl-node2", "control group", "directory"):
        assert any(thing.startswith(kind) for thing in before), (kind, before)
    done = run("down")
    assert done.returncode == 0, done.stderr
    assert fall.remains(book) == []


def test_up_removes_what_a_killed_one_left_and_down_all_there_is(going_up: subprocess.Popen[str]) -> None:
    first = killed_half_way(going_up)
    done = run("up")
    assert done.returncode == 0, done.stderr
    assert "removed what was left of an earlier cluster" in done.stderr
    assert not first.living()
    second = Ledger.read(state_directory())
    assert second is not None and second.record.ready
    kubectl = Kubectl(programs.program("kubectl"), kubeconfig_of(state_directory()))
    kubectl.apply([pod("sleeping", images.python("3.11"), ["sleep", "1000"], nodeName="node1")])
    kubectl("wait", "--for=condition=Ready", "pod/sleeping", "--timeout=90s")
    inside = cgroups.processes(settings.cgroup("node1"))
    assert inside
    done = run("down")
    assert done.returncode == 0, done.stderr
    assert fall.remains(second) == []
    assert [pid for pid in inside if start_of(pid) is not None] == []


def test_down_without_a_cluster_says_so(going_up: subprocess.Popen[str]) -> None:
    going_up.kill()
    going_up.wait()
    assert run("down").returncode == 0
    done = run("down")
    assert done.returncode == 0 and "there is no cluster" in done.stderr
