"""What a heartbeat costs and how often it comes, however many nodes a job has."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from petctl.rendezvous.core import heartbeat
from petctl.rendezvous.core import member as node
from petctl.rendezvous.core import messages as m
from petctl.rendezvous.core.deadlines import Deadlines
from petctl.rendezvous.core.events import Config, Disconnected, Event, Reported, Scale, Tell
from petctl.rendezvous.core.messages import Header, Order, Report
from tests.unit.rendezvous.test_machine import Story, orders, told
from tests.unit.rendezvous.test_member import connected, only

NODES = [str(number) for number in range(50)]


class Watched(dict[str, Any]):
    """Counts how often all of its entries are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[str]:
        self.looks += 1
        return super().__iter__()

    def items(self) -> Any:
        self.looks += 1
        return super().items()

    def values(self) -> Any:
        self.looks += 1
        return super().values()


def herd() -> tuple[Story, Watched]:
    """Fifty nodes that run, and have been told so."""
    story = Story(config=Config(1, len(NODES), len(NODES)))
    story.running(*NODES)
    for name in NODES:
        story.at_work(name, m.RUNNING)
    story.machine.nodes = watched = Watched(story.machine.nodes)
    return story, watched


def beat(story: Story, name: str, **fields: Any) -> list[object]:
    before = story.machine.nodes[name].report
    report = dataclasses.replace(before, number=before.number + 1000, beat=True, **fields)
    story.machine.step(Reported(report), story.now)
    return story.machine.settle(story.now)


def test_a_heartbeat_without_news_looks_at_no_other_node() -> None:
    story, watched = herd()
    story.now = 1.0
    effects = beat(story, "7")
    assert [(type(effect), effect.node) for effect in effects if isinstance(effect, Tell)] == [(Tell, "7")]
    assert watched.looks == 0


def test_progress_is_taken_in_without_a_look_at_all_nodes_each_time() -> None:
    story, watched = herd()
    beat(story, "7", progress=told(1))
    watched.looks = 0
    for step in range(2, 50):
        story.now += 0.01
        beat(story, "7", progress=dataclasses.replace(told(step), heard=step))
    assert watched.looks == 0
    progress = story.machine.status()["progress"]
    assert progress is not None and progress["step"] == 49


def test_news_in_a_heartbeat_are_decided_on_at_once() -> None:
    story, _ = herd()
    effects = beat(story, "7", state=m.FENCED)
    assert story.machine.phase == "gathering"
    assert set(orders(effects)) == set(NODES)


def test_a_node_that_was_silent_is_lost_at_its_own_time() -> None:
    story, _ = herd()
    for story.now in (4.0, 8.0):
        for name in NODES[1:]:
            beat(story, name)
    lost = [effect.data["node"] for effect in story.machine.settle(8.0) if isinstance(effect, Event)]
    assert lost == [] and story.machine.due == 13.0, "node 0 was lost at 5.0, while the others were heard"
    assert "0" not in story.machine.nodes


@pytest.mark.parametrize(
    ("nodes", "interval", "lost_after"), [(1, 1, 5), (64, 1, 5), (1024, 1, 5), (4096, 2.048, 6.144), (10_000, 5, 15)]
)
def test_heartbeats_of_a_large_job_come_less_often(nodes: int, interval: float, lost_after: float) -> None:
    assert heartbeat.interval(5.0, nodes) == pytest.approx(interval)
    assert heartbeat.lost_after(5.0, nodes) == pytest.approx(lost_after)
    assert nodes / heartbeat.interval(5.0, nodes) <= heartbeat.BEATS_PER_SECOND


def order(wanted: int, seq: int = 1) -> node.Received:
    return node.Received(Order(Header(1, "c1", seq, wanted=wanted), m.WAIT))


def test_a_node_beats_as_often_as_the_wanted_size_says() -> None:
    member = connected()
    member.step(order(10_000), 0.1)
    first = only(member.step(node.Tick(), 1.0), node.Send)  # was due before the size was known
    assert first.report.beat and member.deadline() == 6.0
    member.step(order(10_000), 6.0)
    assert member.step(node.Tick(), 11.0) and member.connected, "three beats are waited for, not five seconds"
    effects = member.step(node.Tick(), 21.0)
    assert only(effects, node.Reconnect).why == "no heartbeat from the coordinator for 15 s"


def test_a_job_that_gets_small_is_heard_often_at_once() -> None:
    member = connected()
    member.step(order(10_000), 0.1)
    member.step(node.Tick(), 1.0)
    member.step(order(2, seq=2), 1.5)
    assert member.deadline() == 2.5


def test_nobody_is_fenced_between_two_heartbeats_of_a_large_job() -> None:
    member = node.Member("0", "i1", 1, "host", now=0.0, fence_after=5.0)
    member.step(order(10_000), 0.0)
    assert member.fence_at == 15.0


def test_the_coordinator_gives_nodes_of_a_large_job_longer() -> None:
    story = Story(config=Config(1, 10_000, 10_000))
    story.running("0", "1")
    story.at_work("0", m.RUNNING)
    story.machine.settle(14.9)
    assert set(story.machine.nodes) == {"0", "1"} and story.machine.due == 15.0
    story.machine.step(Scale(2), 14.9)
    story.now = 14.95
    beat(story, "0")
    effects = story.machine.settle(15.0)
    assert [e.sentence for e in effects if isinstance(e, Event) and e.kind == "lost"] == [
        "node 1 is gone: no heartbeat for 5 s"
    ]
    assert story.machine.due == 19.95


def test_the_first_deadline_is_that_of_all() -> None:
    random, deadlines, known = Random(4), Deadlines(), {}
    for step in range(5000):
        name, now = str(random.randrange(40)), step / 10
        action = random.randrange(5)
        if action == 0:
            deadlines.set(name, now + random.uniform(0, 20))
            known[name] = deadlines._due[name]
        elif action in (1, 2):
            due = now + random.uniform(0, 20)
            deadlines.extend(name, due)
            known[name] = max(due, known.get(name, due))
        elif action == 3 and random.random() < 0.3:
            deadlines.drop(name)
            known.pop(name, None)
        elif random.random() < 0.02:
            deadlines.extend_all(3.0)
            known = {key: due + 3.0 for key, due in known.items()}
        assert deadlines.first() == min(known.values(), default=None)
        passed = sorted((due, key) for key, due in known.items() if due <= now)
        assert deadlines.passed(now) == [key for _, key in passed]
        known = {key: due for key, due in known.items() if due > now}
    assert len(deadlines._heap) <= 200, "entries of old are dropped"


def test_a_connection_that_closes_brings_the_deadline_forward() -> None:
    story, _ = herd()
    story.machine.step(Disconnected("3", "i-3"), 1.0)
    story.machine.settle(1.0)
    assert "3" not in story.machine.nodes and story.machine.phase == "gathering"


def test_only_what_has_changed_travels_and_nothing_of_it_is_lost() -> None:
    random, before = Random(1), None
    known: dict[str, Any] = {}
    for number in range(1, 300):
        fields: dict[str, Any] = {
            "state": random.choice(m.STATES),
            "port": random.choice([0, 4242]),
            "note": random.choice(["", "unpacking code"]),
            "failure": random.choice([None, m.Failure("0", 0, 0, 3)]),
            "progress": random.choice([None, told(number)]),
            "beat": random.random() < 0.5,
        }
        report = Report("0", "i1", number, 1, "host", Header(1, "c1", number // 10), **fields)
        encoded = m.encode(report)
        travels = m.changes(encoded, known)
        before, known = m.decode_report(travels, before), encoded
        assert before == report
    order = Order(Header(1, "c1", 3), m.RUN, 2, place=m.Place(0, 1, 0, 1, "host", 1, ("a",) * 1000))
    seen: dict[str, Any] = {}
    for new in (order, dataclasses.replace(order, probe=2), Order(Header(1, "c1", 4), m.PREPARE, 3), order):
        sent = m.encode(new, m.decode_order(seen) if seen else None)
        seen = {**seen, **sent}
        assert m.decode_order(seen) == new
    assert m.encode(order, order) == {}
