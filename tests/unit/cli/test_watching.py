"""`petctl status --watch` while its cluster is away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from petctl.cli.jobs import status as verb
from petctl.clusters import patience
from petctl.clusters.base import Cluster
from petctl.clusters.kubernetes.backend import KubernetesBackend
from petctl.clusters.managed import ManagedCluster
from petctl.job.status import NodeStatus
from petctl.jobs.api import JobHandle
from petctl.kube.failures import Forbidden, KubernetesError, ServerUnreachable
from tests.unit.clusters.kubernetes.test_cluster import JOB, RUNNING, Server, answers, coordinator, told

AWAY = ServerUnreachable("nobody answers")


@pytest.fixture
def server() -> Server:
    server = Server()
    server.pods = [coordinator()]
    return server


@pytest.fixture
def handle(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobHandle:
    monkeypatch.setattr(patience, "FIRST", 0.001)
    monkeypatch.setattr(patience, "LONGEST", 0.002)
    cluster = ManagedCluster(KubernetesBackend(tmp_path, {"name": "k8s"}))
    cluster.backend.__dict__["_api"] = server
    done = replace(RUNNING, sentence="it goes on", nodes=[NodeStatus(name, "running") for name in "01"])
    answers(cluster, monkeypatch, told(RUNNING), told(done, 2))
    return JobHandle(JOB, cast(Cluster, cluster))


def test_a_page_is_drawn_on_when_the_cluster_is_back(
    handle: JobHandle, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = handle.watch(None, 1000.0)
    monkeypatch.setattr(verb, "REDRAW_SECONDS", 0.0)  # it is away for longer than that
    server.trouble = [AWAY] * 5
    assert verb._next(handle, seen).sentence == "it goes on"
    assert server.trouble == []


def test_the_first_page_waits_for_the_cluster_too(handle: JobHandle, server: Server) -> None:
    server.trouble = [AWAY] * 5
    assert handle.watch(None, 1000.0).sentence == "all is well"


@pytest.mark.parametrize("failure", [Forbidden("may not"), KubernetesError("broken")])
def test_what_waiting_does_not_heal_is_told(handle: JobHandle, server: Server, failure: KubernetesError) -> None:
    seen = handle.watch(None, 1000.0)
    server.trouble = [failure]
    with pytest.raises(type(failure), match=str(failure)):
        verb._next(handle, seen)
