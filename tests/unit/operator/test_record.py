"""The record of an ElasticJob that was made with kubectl."""

from __future__ import annotations

import pytest

from petctl.clusters.kubernetes.operator.record import record_of
from tests.unit.operator.world import World


@pytest.mark.parametrize(("launcher", "offers"), [("elastic", False), ("mpi", True), ("plain", True)])
def test_members_know_each_other_where_the_launcher_needs_that(launcher: str, offers: bool) -> None:
    record = record_of(World(launcher=launcher).read(), 1)
    assert (record.task.launcher, record.config.offers) == (launcher, offers)


@pytest.mark.parametrize(("named", "place"), [("/data/runs", "/data/runs"), ("$(DATA)/runs", "")])
def test_checkpoints_go_where_the_container_says(named: str, place: str) -> None:
    world = World()
    world.job["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "PETCTL_CHECKPOINT_DIR", "value": named}]
    record = record_of(world.read(), 1)
    assert record.task.checkpoint_dir == (place or "/petctl/state/checkpoints")
    assert record.job["env"] == ({"PETCTL_CHECKPOINT_DIR": place} if place else {})
