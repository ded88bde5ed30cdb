"""Rules of both machines that no history would miss, and that a mutant once survived without: one test each."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from petctl.rendezvous.core import member as node
from petctl.rendezvous.core import messages as m
from petctl.rendezvous.core.events import Config, Disconnected, Event, Expect, Late, Reported, Roster, Scale
from petctl.rendezvous.core.machine import SETTLES_WITHIN
from petctl.rendezvous.core.messages import Failure, Header, Order, Place, Progress, Report
from tests.unit.rendezvous.test_machine import LOST_PEER, Story, orders
from tests.unit.rendezvous.test_member import header, only, prepared, running


def test_a_refused_coordinator_is_not_heard() -> None:
    member = running()
    member.step(node.Received(Order(header(epoch=2, seq=1, leader="c2"), m.WAIT)), 1.0)
    effects = member.step(node.Received(Order(header(epoch=1, seq=99), m.WAIT)), 60.0)
    assert [type(effect) for effect in effects] == [node.Reconnect]
    assert (member.heard, member.contact) == (1.0, 1.0)
    assert any(isinstance(effect, node.Stop) for effect in member.step(node.Tick(), 61.0)), "it is fenced"


def test_no_planned_round_begins_while_a_verdict_is_pending() -> None:
    story = Story(config=Config(1, 2, 2, restarts=0))
    story.running("0", "1")
    story.at_work("0", m.FAILED, failure=Failure("0", 0, 0, 3))
    assert story.machine.budget.verdict is not None
    story.machine.step(Scale(1), 0.1)
    story.machine.settle(0.1)
    assert (story.machine.phase, story.machine.round) == ("running", 1)


def test_no_planned_round_begins_while_the_root_cause_is_waited_for() -> None:
    story = Story()
    story.running("0", "1")
    story.at_work("0", m.FAILED, failure=Failure("0", 0, 0, 1, message=LOST_PEER))
    story.machine.step(Scale(1), 0.1)
    story.machine.settle(0.1)
    assert (story.machine.phase, story.machine.round) == ("running", 1)


def test_a_report_that_was_overtaken_is_ignored() -> None:
    story = Story()
    story.running("0", "1")
    place = story.machine.places["0"][1]
    report = Report("0", "i-0", 50, 1, "host-0", story.machine.header(), m.RUNNING, 1, 1, place, 1, 1)
    story.machine.step(Reported(report), 0.1)
    story.machine.step(Reported(dataclasses.replace(report, number=49, state=m.FENCED)), 0.2)
    story.machine.settle(0.2)
    assert story.machine.phase == "running" and story.machine.nodes["0"].report.state == m.RUNNING


def test_a_member_that_is_done_may_go() -> None:
    story = Story()
    story.running("0", "1")
    story.at_work("0", m.RUNNING)
    story.at_work("1", m.DONE)
    story.machine.step(Disconnected("1", "i-1"), 0.1)
    story.machine.settle(0.1)
    assert (story.machine.phase, story.machine.round) == ("running", 1)
    story.at_work("0", m.DONE)
    assert story.machine.ending is not None and story.machine.ending.state == m.SUCCEEDED


def test_a_round_that_is_behind_is_not_acknowledged() -> None:
    member = prepared(round_number=3)
    assert member.step(node.Received(Order(header(seq=9), m.PREPARE, 2)), 1.0) == []
    assert (member.state, member.at) == (m.PREPARED, (1, 3))


def test_arrivals_that_nobody_asked_for_are_gathered() -> None:
    story = Story(config=Config(1, 3, 3, resize_interval=4.0))
    story.running("0")
    story.now = 2.0
    story.say("1", state=m.IDLE)
    assert story.machine.phase == "running", "there is room for one more"
    story.now = 5.9
    story.at_work("0", m.RUNNING)
    assert story.machine.phase == "running"
    assert story.machine.due == 6.0
    story.now = 6.0
    story.at_work("0", m.RUNNING)
    assert story.machine.phase == "gathering" and "1 more node" in story.machine.reason


def growing(**options: Any) -> Story:
    """A round of one node that began at 0, and a second node that would fill the job."""
    story = Story(config=Config(1, 2, 2, **options))
    story.running("0")
    story.say("1", state=m.IDLE)
    assert story.machine.phase == "running"
    return story


def test_growth_waits_for_the_time_that_a_first_step_takes() -> None:
    story = growing()
    assert story.machine.due == 5.0, "first the silence of the nodes"
    for story.now in (4.0, 8.0, 9.9):
        story.say("1", state=m.IDLE)
        story.at_work("0", m.RUNNING)
        assert story.machine.phase == "running"
    assert story.machine.due == SETTLES_WITHIN == 10.0
    story.machine.settle(10.0)
    assert story.machine.phase == "gathering" and "1 more node" in story.machine.reason


def test_growth_waits_for_the_first_step_where_steps_are_reported() -> None:
    story = growing()
    story.machine.steps.reports = True  # in a round before
    for story.now in (4.0, 8.0, 12.0):
        story.say("1", state=m.IDLE)
        story.at_work("0", m.RUNNING, progress=Progress(1, (-1,), (0.0,), (0.0,), (0.0,)))
        assert story.machine.phase == "running", "no step yet"
    story.at_work("0", m.RUNNING, progress=Progress(2, (7,), (0.0,), (0.0,), (0.0,)))
    assert story.machine.phase == "gathering" and "1 more node" in story.machine.reason


def test_growth_does_not_wait_for_ever_for_a_first_step() -> None:
    story = growing(resize_interval=3.0, silence=60.0)
    story.machine.steps.reports = True
    assert story.machine.due == 3.0
    story.machine.settle(3.0)
    assert story.machine.phase == "gathering"


def test_growth_that_was_asked_for_does_not_wait_for_a_step() -> None:
    story = growing()
    story.machine.step(Scale(2), 0.1)
    story.machine.settle(0.1)
    assert story.machine.phase == "gathering"


def test_what_a_first_step_tells_is_said_although_the_round_ends_by_it() -> None:
    story = growing()
    story.at_work("0", m.RUNNING, progress=Progress(1, (7,), (0.0,), (0.0,), (0.0,)))
    said = [event.kind for event in story.effects if isinstance(event, Event)]
    assert said == ["training", "progress", "round"]


def test_expected_nodes_are_not_waited_for_for_ever() -> None:
    story = Story()
    story.machine.step(Expect(("0", "1"), 4.0), 0.0)
    story.say("0")
    story.say("0", state=m.PREPARED, epoch=1, round=1, port=4242)
    assert story.machine.sentence == "waiting: 1 of 2 nodes, node 1 is expected"
    story.now = 4.0
    story.say("0", state=m.PREPARED, epoch=1, round=1, port=4242)
    assert story.machine.phase == "running" and list(story.machine.places) == ["0"]
    assert next(event.kind for event in story.effects if isinstance(event, Event)) == "overdue"


def test_a_round_that_a_member_has_left_for_another_is_not_continued() -> None:
    story = Story(epoch=2, fresh=False)
    known = Header(1, "c0", 3, 1, 1, 0, 2)
    for rank, (name, state, number) in enumerate([("0", m.RUNNING, 1), ("1", m.PREPARED, 2)]):
        place = Place(rank, 2, rank, 2, "host-0", 4242)
        fields: dict[str, Any] = {"place": place, "place_epoch": 1, "place_round": 1, "epoch": 1, "round": number}
        story.say(name, header=known, state=state, **fields)
    assert story.machine.phase == "gathering" and story.machine.round == 3


def test_the_last_call_is_waited_for() -> None:
    story = Story(config=Config(1, 2, 2, last_call=3.0))
    story.say("0")
    story.say("0", state=m.PREPARED, epoch=1, round=1, port=4242)
    assert story.machine.sentence == "waiting: 1 of 2 nodes, last call for more"
    assert story.machine.due == 3.0
    story.machine.settle(3.0)
    assert story.machine.phase == "running"


def test_nodes_of_the_roster_are_waited_for() -> None:
    story = Story(epoch=2, fresh=False)
    place = Place(0, 2, 0, 2, "host-0", 4242)
    old: dict[str, Any] = {"epoch": 1, "round": 1, "place": place, "place_epoch": 1, "place_round": 1}
    story.say("0", header=Header(1, "c0", 3, 1, 1, 0, 2), state=m.RUNNING, **old)
    story.machine.step(Roster(("0", "1")), 0.1)
    assert all(order.kind != m.PREPARE for order in orders(story.machine.settle(0.1)).values())
    assert story.machine.phase == "recovering"


def test_a_stop_that_was_answered_is_forgotten() -> None:
    member = running()
    member.step(node.Received(Order(header(seq=3), m.PREPARE, 2)), 1.0)
    report = only(member.step(node.WorkersStopped(), 1.5), node.Send).report
    assert report.state == m.PREPARED and member.stop_by is None


def test_a_node_whose_connection_is_lost_is_not_waited_for() -> None:
    story = Story()
    story.running("0", "1")
    story.machine.step(Late(10.0), 0.0)  # closed connections are forgiven for a while, and their nodes not given up
    story.machine.step(Disconnected("1", "i-1"), 0.0)
    story.at_work("0", m.FAILED, failure=Failure("0", 0, 0, 3))
    assert set(story.machine.nodes) == {"0", "1"} and story.machine.round == 2
    story.say("0", state=m.PREPARED, epoch=1, round=2, port=4242)
    assert story.machine.phase == "running" and set(story.machine.places) == {"0"}


def test_a_replacement_goes_on_with_the_newest_round_that_anybody_ran() -> None:
    story = Story(epoch=2, fresh=False)
    for name, ran in (("0", 3), ("1", 5), ("2", 4)):
        place = Place(0, 1, 0, 1, f"host-{name}", 4242)
        known = Header(1, "c0", ran, round=ran, ran=ran, wanted=1)
        state = m.RUNNING if name == "1" else m.FENCED
        report = Report(name, f"i-{name}", 1, 1, f"host-{name}", known, state, 1, ran, place, 1, ran)
        story.machine.step(Reported(report), 0.0)
    story.machine.settle(0.0)
    assert (story.machine.phase, story.machine.round, set(story.machine.places)) == ("running", 5, {"1"})


def test_a_node_without_a_place_is_shown_as_standing_by() -> None:
    story = Story(config=Config(1, 1, 1))
    story.running("0")
    story.say("1", state=m.PREPARED, epoch=1, round=1)
    story.at_work("0", m.RUNNING)
    assert {row["name"]: row["state"] for row in story.machine.status()["nodes"]} == {"0": "running", "1": "standby"}


@pytest.mark.parametrize(
    ("wanted", "late", "forgiven"),
    [
        (2, 0.3, False),
        (2, 2.9, False),
        (2, 3.0, True),  # 5 s without a word are too many for a node, which heard something up to a second before
        (4096, 0.3, False),  # a decision over so many nodes takes that long
        (4096, 2.1, True),
        (10_000, 4.9, False),
        (10_000, 5.0, True),
    ],
)
def test_only_a_lateness_that_can_have_closed_connections_forgives_them(
    wanted: int, late: float, forgiven: bool
) -> None:
    story = Story(config=Config(1, 10_000, wanted))
    story.running("0", "1")
    story.now = late
    story.machine.step(Late(late), story.now)
    story.say("0", state=m.RUNNING, epoch=1, round=1)
    story.machine.step(Disconnected("1", "i-1"), story.now)
    story.machine.settle(story.now)
    assert ("1" in story.machine.nodes) is forgiven
    story.machine.settle(story.now + story.machine.silence)
    assert "1" not in story.machine.nodes
