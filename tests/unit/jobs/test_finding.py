"""Finding a job by its id, on clusters of which some may be away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from petctl.clusters import patience
from petctl.clusters.base import Listed
from petctl.clusters.kubernetes.backend import KubernetesBackend
from petctl.errors import NotFound
from petctl.jobs import get
from petctl.jobs.registry import Registry
from petctl.kube.failures import ServerUnreachable


def test_a_cluster_that_cannot_be_asked_is_named(home: Path) -> None:
    (home / "petctl.yaml").write_text("clusters: {west: {kind: kubernetes}, local: {slots: 2}}")
    with pytest.raises(NotFound, match=r"there is no job 'x-1234'(.|\n)*\ncannot reach west: "):
        get("x-1234")


def test_a_cluster_that_a_job_was_submitted_to_is_asked(home: Path) -> None:
    with pytest.raises(NotFound) as nobody:
        get("x-1234")
    assert "cannot reach" not in str(nobody.value)
    Registry(home / "PETCTL_HOME").know("k8s")
    assert Registry(home / "PETCTL_HOME").clusters() == ["k8s"]
    with pytest.raises(NotFound, match="cannot reach k8s"):
        get("x-1234")


@pytest.fixture
def away(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[ServerUnreachable]:
    """What the next questions to a cluster meet, before it knows x-1234."""
    monkeypatch.setattr(patience, "FIRST", 0.001)
    trouble = [ServerUnreachable("nobody answers")] * 3
    (home / "petctl.yaml").write_text("clusters: {west: {kind: kubernetes}}")

    def jobs(backend: KubernetesBackend, wanted: object) -> Iterator[Listed]:
        if trouble:
            raise trouble.pop()
        return iter([Listed("x-1234")])

    monkeypatch.setattr(KubernetesBackend, "list", jobs)
    return trouble


def test_who_follows_a_job_waits_for_a_cluster_that_is_away(away: list[ServerUnreachable]) -> None:
    with pytest.raises(NotFound, match="cannot reach west: nobody answers") as told:
        get("x-1234")
    assert (len(away), told.value.code) == (2, ServerUnreachable.code)  # nobody knows that there is no such job
    assert (get("x-1234", patient=True).cluster, away) == ("west", [])


def test_patience_has_an_end(away: list[ServerUnreachable], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "MOST", 0.0)
    with pytest.raises(NotFound, match="cannot reach west: nobody answers"):
        get("x-1234", patient=True)


def test_nobody_waits_for_a_cluster_that_is_not_configured_well(home: Path) -> None:
    (home / "petctl.yaml").write_text("clusters: {west: {kind: kubernetes}}")
    with pytest.raises(NotFound, match="cannot reach west: ") as told:
        get("x-1234", patient=True)
    assert told.value.code == NotFound.code


def test_nobody_waits_for_a_job_that_no_cluster_has(away: list[ServerUnreachable]) -> None:
    away.clear()
    with pytest.raises(NotFound, match="there is no job 'y-1234'"):
        get("y-1234", patient=True)
