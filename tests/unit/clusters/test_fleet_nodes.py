"""The table of nodes: settled within the queue's own transactions, by whoever comes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from petctl.clusters.local.pools import nodes
from petctl.clusters.local.pools.description import sized
from petctl.clusters.local.pools.model import PREPARING, READY, UNUSABLE, GiveBack
from petctl.clusters.local.pools.nodes import Fleet, capacity_of, place_of, prepared, read_nodes, shortage, wish_of
from petctl.clusters.local.pools.spec import FleetDirectory, FleetSpec, Setup, write_spec
from petctl.clusters.local.queue.scheduler import ALIVE, Claim
from petctl.clusters.local.queue.slots import Slots
from petctl.errors import NotFound


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Team:
    """A cluster with its queue, in which every job is alive."""

    def __init__(self, home: Path) -> None:
        self.home, self.clock = home, Clock()
        self.fleet = Fleet(home, "team", self.clock)
        self.slots = Slots(home, "team", self.fleet)
        FleetDirectory(home, "team").path.mkdir(parents=True)
        self.write(FleetSpec("team"), nodes=0)

    def write(self, spec: FleetSpec, **size: float) -> None:
        self.spec = sized(spec, **size)
        write_spec(FleetDirectory(self.home, "team"), self.spec)

    def enter(self, job: str, minimum: int, wanted: int = 0) -> None:
        self.slots.enter(Claim(job, 0, minimum, wanted or minimum, 0, entered=self.clock.now))

    def look(self) -> list[str]:
        while self.slots.settle(lambda claim: ALIVE).decision:
            pass  # not all who are due begin at once
        with self.slots.transaction() as database:
            return [f"{node.number} {node.shown} {node.job}".strip() for node in read_nodes(database)]


@pytest.fixture
def team(tmp_path: Path) -> Team:
    return Team(tmp_path)


def test_a_job_is_given_nodes_in_the_transaction_that_grants_them(team: Team) -> None:
    team.write(team.spec, nodes=3)
    team.enter("a", 2)
    assert team.look() == ["0 running a", "1 running a", "2 idle"]
    team.slots.release("a")
    assert [node.shown for node in team.fleet.nodes] == ["idle"] * 3


def test_auto_scale_grows_in_the_moment_in_which_a_job_finds_too_few_nodes(team: Team) -> None:
    team.write(team.spec, min=0, max=2, idle_time=60)
    assert team.look() == []
    team.enter("a", 2)
    decision = team.slots.settle(lambda claim: ALIVE)
    assert decision.decision.grant == {"a": 2}
    team.slots.release("a")
    team.clock.now += 59
    assert team.look() == ["0 idle", "1 idle"]
    team.clock.now += 1
    assert team.look() == []


def test_leaving_nodes_go_with_the_slots_that_are_given_back(team: Team) -> None:
    team.write(team.spec, nodes=2)
    team.enter("a", 1, wanted=2)
    team.look()
    team.write(team.spec, nodes=1)
    assert team.look() == ["0 running a", "1 leaving a"]
    assert wish_of(team.home, "team", "a") == GiveBack("a", 1)
    team.slots.keep("a", 1, 2)
    assert wish_of(team.home, "team", "a") is None
    assert team.look() == ["0 running a"]


def test_a_job_that_waits_again_keeps_its_place(team: Team) -> None:
    team.write(team.spec, nodes=2)
    team.enter("a", 2)
    team.look()
    team.enter("b", 1)
    team.write(team.spec, nodes=1)
    team.look()
    assert wish_of(team.home, "team", "a") == GiveBack("a", 0)
    team.slots.requeue("a")
    assert team.look() == ["0 idle"]  # nobody overtakes it
    team.write(team.spec, nodes=3)
    assert team.look() == ["0 running a", "1 running a", "2 running b"]


def test_only_one_process_prepares_a_node(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []

    def start(directory: FleetDirectory, spec: FleetSpec, number: int, lock: int) -> None:
        held.append(os.dup(lock))  # as the process that would be started does

    monkeypatch.setattr("petctl.clusters.local.pools.setup._start_detached", start)
    team.write(FleetSpec("team", setup=Setup("true")), nodes=1)
    assert team.look() == team.look() == ["0 preparing"]
    assert len(held) == 1
    os.close(held[0])  # it was killed
    team.look()
    assert len(held) == 2
    assert FleetDirectory(team.home, "team").attempts(0).read_text() == "2\n"
    os.close(held[1])


def test_a_prepared_node_is_ready_or_has_a_reason(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("petctl.clusters.local.pools.setup.start", lambda *_: None)
    team.write(FleetSpec("team", setup=Setup("true")), nodes=2)
    team.look()
    with team.slots.transaction() as database:
        assert prepared(database, 0, "", 5.0)
        assert prepared(database, 1, "no disk", 5.0)
        assert not prepared(database, 1, "", 6.0)
        assert not prepared(database, 9, "", 6.0)
    assert [(node.state, node.reason) for node in team.fleet.nodes] == [(READY, ""), (UNUSABLE, "no disk")]
    assert shortage(team.home, "team", 2) == "1 unusable (see: petctl cluster nodes team)"
    assert shortage(team.home, "team", 3).endswith("the cluster is too small (petctl cluster resize team 3)")


def test_trouble_with_a_setup_process_is_not_the_jobs_trouble(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("no process to be had")

    monkeypatch.setattr("petctl.clusters.local.pools.setup._start_detached", broken)
    team.write(FleetSpec("team", setup=Setup("true")), nodes=1)
    assert team.look() == ["0 preparing"]
    assert team.fleet.nodes[0].state == PREPARING


def test_nodes_of_a_job_have_places_in_the_cluster(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("petctl.clusters.local.queue.queue.slots_of", lambda home, name: team.slots)
    team.write(team.spec, nodes=3)
    team.enter("a", 1)
    team.enter("b", 2)
    team.look()
    assert [place_of(team.home, "team", "b", member) for member in (0, 1, 7)] == [1, 2, 7]


def test_nobody_enters_a_cluster_that_is_being_deleted(team: Team) -> None:
    team.write(FleetSpec("team", deleting=True), nodes=1)
    with pytest.raises(NotFound, match="team was deleted"):
        team.enter("a", 1)
    shutil.rmtree(FleetDirectory(team.home, "team").path)
    with pytest.raises(NotFound, match="team was deleted"):
        team.look()
    assert not FleetDirectory(team.home, "team").path.exists()


def test_a_cluster_that_is_gone_has_no_capacity(team: Team) -> None:
    assert capacity_of(team.home, "team") is not None
    assert capacity_of(team.home, "other") is None
    team.write(FleetSpec("team", deleting=True), nodes=1)
    assert capacity_of(team.home, "team") is None
    FleetDirectory(team.home, "team").spec.unlink()
    assert team.look() == []
    assert nodes.counted(team.fleet.nodes)["idle"] == 0
