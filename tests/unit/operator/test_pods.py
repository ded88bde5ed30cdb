"""The pods that an operator makes, as manifests."""

from __future__ import annotations

from typing import Any

import pytest

from petctl.clusters.kubernetes.operator.pods import coordinator_pod, node_pod
from petctl.clusters.kubernetes.operator.record import record_of
from petctl.errors import UsageError
from tests.unit.operator.world import World

LIMITS = {"cpu": "1", "memory": "256Mi"}


def coordinator(piece: dict[str, Any] | None) -> dict[str, Any]:
    """The pod of the first coordinator of a job whose `spec.coordinator` is this."""
    world = World()
    if piece is not None:
        world.job["spec"]["coordinator"] = piece
    job = world.read()
    found: dict[str, Any] = coordinator_pod(job, record_of(job, 1), 0, alone=False)
    return found


def test_a_coordinator_has_limits_where_a_quota_demands_them() -> None:
    (usual,) = coordinator(None)["spec"]["containers"]
    assert "limits" not in usual["resources"]
    (container,) = coordinator({"spec": {"containers": [{"resources": {"limits": LIMITS}}]}})["spec"]["containers"]
    assert container["resources"] == {**usual["resources"], "limits": LIMITS}
    assert {**container, "resources": 0} == {**usual, "resources": 0}, "and is what it was otherwise"


def test_limits_of_the_coordinator_are_not_the_nodes() -> None:
    world = World()
    world.job["spec"]["coordinator"] = {"spec": {"containers": [{"resources": {"limits": LIMITS}}]}}
    (container,) = node_pod(world.read(), 0, 0)["spec"]["containers"]
    assert "limits" not in (container.get("resources") or {})


def test_a_piece_that_is_none_is_named() -> None:
    with pytest.raises(UsageError, match=r"spec\.coordinator"):
        coordinator({"spec": {"containers": "all"}})
