"""When a node shows that it takes part in a round."""

from __future__ import annotations

from pathlib import Path

import pytest

from petctl.agent.health.readiness import SETTLED, Readiness
from petctl.agent.node import clock
from petctl.rendezvous.core import messages as m
from petctl.rendezvous.core.member import Member


class Node:
    """A node whose state and clock the test sets."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.trains, self.path = 100.0, False, path
        monkeypatch.setattr(clock, "now", lambda: self.now)
        self.member = Member("0", "i", 1, "127.0.0.1", self.now)
        self.readiness = Readiness(str(path), lambda: self.trains)

    def ready(self) -> bool:
        self.readiness.look(self.member)
        return self.path.exists()

    def run(self, number: int) -> None:
        self.member.state, self.member.at, self.trains = m.RUNNING, (1, number), False


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    (tmp_path / "ready").touch()  # of an earlier process
    return Node(tmp_path / "ready", monkeypatch)


def test_a_node_that_is_in_no_round_is_not_ready(node: Node) -> None:
    assert not node.path.exists()
    for state in (m.IDLE, m.PREPARED, m.STOPPING, m.FAILED):
        node.member.state = state
        assert not node.ready()


def test_workers_that_say_nothing_count_after_a_while(node: Node) -> None:
    node.run(1)
    assert not node.ready()
    node.now += SETTLED
    assert node.ready()
    node.member.state = m.STOPPING
    assert not node.ready()
    node.run(2)
    assert not node.ready()
    node.now += SETTLED
    assert node.ready()
    node.member.state = m.DONE
    assert node.ready()


def test_elastic_workers_count_when_they_train(node: Node) -> None:
    node.run(1)
    node.member.elastic = True
    node.now += 10 * SETTLED
    assert not node.ready()
    node.trains = True
    assert node.ready()


def test_a_node_that_prepares_or_leaves_is_not_ready(node: Node) -> None:
    node.run(1)
    node.trains = True
    node.member.note = "preparing"
    assert not node.ready()
    node.member.note = ""
    assert node.ready()
    node.member.leaving = "the node received SIGTERM"
    assert not node.ready()


def test_a_full_disk_does_not_end_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path / "missing" / "ready", monkeypatch)
    node.run(1)
    node.trains = True
    assert not node.ready()
