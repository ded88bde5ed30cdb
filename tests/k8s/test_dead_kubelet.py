"""A kubelet that dies while its pods live on, and are reached: of two sides of one job only one goes on training."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.k8s.cluster.cluster import Cluster
from tests.k8s.cluster.waiting import until
from tests.k8s.operators import operator
from tests.k8s.test_drain import is_ready, near
from tests.k8s.user import User

pytestmark = [pytest.mark.root, pytest.mark.long, pytest.mark.timeout(420)]
WRITING = """
import os, socket, time
from petctl import elastic
step, line = 0, f"/shared/{os.environ['PETCTL_ROUND']}-{socket.gethostname()}"
while not os.path.exists("/shared/finish"):
    open(line, "w").write(f"{time.time()}")
    elastic.report(step=step)
    step += 1
    time.sleep(0.1)
"""


def trained_since(shared: Path, moment: float) -> set[str]:
    """The workers, as ROUND-POD, that have made a step since then."""
    return {path.name for path in shared.iterdir() if path.name != "finish" and path.stat().st_mtime > moment}


@contextlib.contextmanager
def without_kubelet(cluster: Cluster, name: str) -> Iterator[None]:
    """The machine's pods and network go on; nobody looks after them until the end of the block."""
    cluster.machine(name).stop("kubelet")
    try:
        yield
    finally:
        cluster.machine(name).start_again("kubelet")
        until(lambda: is_ready(cluster.kubectl.get("node", name)), "the machine is back", 60)


@pytest.mark.parametrize("operated", [True, False], ids=["with operator", "without operator"])
def test_only_one_side_goes_on(own_cluster: Cluster, user: User, tmp_path: Path, operated: bool) -> None:
    name, shared = own_cluster.nodes[0], tmp_path / "shared"
    shared.mkdir()
    volume = {"name": "shared", "hostPath": {"path": str(shared)}}
    container = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    with operator(own_cluster, user.namespace, tmp_path) if operated else contextlib.nullcontext():
        user.configure(
            operator=operated,
            affinity=near(name),
            coordinator={"spec": {"affinity": near(name)}},
            pod={"spec": {"volumes": [volume], "containers": [container]}},
        )
        (user.project / "writing.py").write_text(WRITING)
        job = user.submit("-n", "1:2:2", "writing.py")
        before = user.running(job, 2)
        pods = [*user.pods(job, "node"), *user.pods(job, "coordinator")]
        assert {pod["spec"]["nodeName"] for pod in pods} == {name}
        workers = trained_since(shared, 0)
        assert len(workers) == 2
        with without_kubelet(own_cluster, name):

            def replaced() -> dict[str, Any]:
                status = user.status(job)
                newer = status["epoch"] > before["epoch"] and status["state"] == "running"
                return status if newer and status["world_size"] == 2 else {}

            after = until(replaced, "the job runs under another coordinator", 180)
            met = time.time()
            assert after["round"] == before["round"]  # its workers went on, and found the new one
            until(lambda: trained_since(shared, met) >= workers, "the same workers go on")
            assert trained_since(shared, 0) == workers  # nobody else has ever trained
            (shared / "finish").touch()
            assert user.ended(job)["state"] == "succeeded"
