"""A node's machine, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from petctl.rendezvous.core import member as node
from petctl.rendezvous.core import messages as m
from petctl.rendezvous.core.messages import Failure, Header, Order, Outcome, Place

PLACE = Place(0, 2, 0, 2, "host", 4242)


def header(epoch: int = 1, seq: int = 1, leader: str = "c1") -> Header:
    return Header(epoch, leader, seq, 1, 0, 0, 2)


def connected() -> node.Member:
    member = node.Member("0", "i1", 1, "host", now=0.0)
    member.step(node.Connected(), 0.0)
    return member


def prepared(round_number: int = 1) -> node.Member:
    member = connected()
    member.step(node.Received(Order(header(), m.PREPARE, round_number)), 0.1)
    assert member.state == m.PREPARED
    return member


def running() -> node.Member:
    member = prepared()
    effects = member.step(node.Received(Order(header(seq=2), m.RUN, 1, place=PLACE)), 0.2)
    assert [type(e) for e in effects] == [node.Start, node.Send]
    return member


def only(effects: list[Any], kind: type) -> Any:
    found = [e for e in effects if isinstance(e, kind)]
    assert len(found) == 1, effects
    return found[0]


def test_it_reports_itself_when_connected() -> None:
    member = node.Member("0", "i1", 3, "host", now=0.0)
    report = only(member.step(node.Connected(), 0.0), node.Send).report
    assert (report.node, report.procs, report.state, report.beat) == ("0", 3, m.IDLE, True)


def test_the_would_be_rank_0_reserves_before_it_acknowledges() -> None:
    member = connected()
    effects = member.step(node.Received(Order(header(), m.PREPARE, 1, reserve=True)), 0.1)
    assert effects[0] == node.Reserve(1)
    report = only(member.step(node.PortReserved(1, 4242), 0.2), node.Send).report
    assert (report.state, report.round, report.port) == (m.PREPARED, 1, 4242)


def test_workers_are_stopped_before_the_acknowledgement() -> None:
    member = running()
    effects = member.step(node.Received(Order(header(seq=3), m.PREPARE, 2)), 0.3)
    assert only(effects, node.Stop).grace == node.UNPLANNED_GRACE
    assert only(effects, node.Send).report.state == m.STOPPING
    assert only(member.step(node.WorkersStopped(), 0.4), node.Send).report.state == m.PREPARED


def test_a_planned_change_gives_the_whole_grace() -> None:
    effects = running().step(node.Received(Order(header(seq=3), m.PREPARE, 2, planned=True)), 0.3)
    assert only(effects, node.Stop).grace == 30.0


@pytest.mark.parametrize(
    "order",
    [
        Order(header(seq=2), m.RUN, 2, place=PLACE),
        Order(header(epoch=2, seq=1), m.RUN, 1, place=PLACE),
    ],
    ids=["another round", "another epoch"],
)
def test_it_starts_only_what_it_has_acknowledged(order: Order) -> None:
    assert not any(isinstance(e, node.Start) for e in prepared().step(node.Received(order), 0.2))


@pytest.mark.parametrize("stale", [header(epoch=0), header(epoch=1, leader="c9")], ids=["lower", "other leader"])
def test_it_refuses_another_coordinator_of_no_higher_epoch(stale: Header) -> None:
    member = running()
    before = (member.state, member.header)
    effects = member.step(node.Received(Order(stale, m.CLOSE, outcome=Outcome("failed", 1, "no"))), 0.3)
    assert [type(e) for e in effects] == [node.Reconnect]
    assert (member.state, member.header) == before


def test_an_overtaken_order_is_ignored() -> None:
    member = running()
    assert member.step(node.Received(Order(header(seq=1), m.PREPARE, 9)), 0.3) == []


def test_losing_the_coordinator_changes_nothing_until_fence_after() -> None:
    member = running()
    member.step(node.Disconnected(), 1.0)
    assert member.step(node.Tick(), 59.0) == []
    assert only(member.step(node.Tick(), 60.3), node.Stop)
    member.step(node.WorkersStopped(), 60.4)
    assert member.state == m.FENCED


def test_a_silent_coordinator_is_left() -> None:
    member = running()
    assert any(isinstance(e, node.Reconnect) for e in member.step(node.Tick(), 5.3))


def test_leaving_tells_the_others_first_and_goes_when_workers_have_stopped() -> None:
    member = running()
    effects = member.step(node.Terminate("preempted"), 1.0)
    assert [type(e) for e in effects] == [node.Send, node.Stop]
    assert only(effects, node.Send).report.leaving
    last = member.step(node.WorkersStopped(), 2.0)
    assert only(last, node.Exit).outcome is None
    assert member.step(node.Tick(), 3.0) == [] and member.deadline() is None


def test_a_failure_is_told_once_and_the_rest_is_stopped() -> None:
    member = running()
    failure = Failure("0", 0, 0, 1)
    effects = member.step(node.WorkerFailed(1, failure), 1.0)
    assert only(effects, node.Send).report.failure == failure
    assert only(effects, node.Stop)
    assert member.step(node.WorkerFailed(1, failure), 1.1) == []


def test_late_news_of_an_older_round_is_ignored() -> None:
    member = running()
    assert member.step(node.WorkerFailed(0, Failure("0", 0, 0, 1)), 1.0) == []
    assert member.step(node.WorkerEnded(0, True), 1.0) == []
    assert member.state == m.RUNNING


def test_the_first_end_and_the_last_end_are_told() -> None:
    member = running()
    assert only(member.step(node.WorkerEnded(1, False), 1.0), node.Send).report.ended
    assert member.step(node.WorkerEnded(1, False), 1.1) == []
    assert only(member.step(node.WorkerEnded(1, True), 1.2), node.Send).report.state == m.DONE


def test_a_node_that_is_not_part_of_the_round_stops_its_workers() -> None:
    effects = running().step(node.Received(Order(header(epoch=2, leader="c2"), m.STANDBY)), 1.0)
    assert only(effects, node.Stop)


def test_close_stops_workers_then_exits_with_the_outcome() -> None:
    member = running()
    outcome = Outcome(m.CANCELLED, 130, "cancelled by the user")
    assert only(member.step(node.Received(Order(header(seq=3), m.CLOSE, outcome=outcome)), 1.0), node.Stop).grace == 30
    assert only(member.step(node.WorkersStopped(), 2.0), node.Exit).outcome == outcome


@pytest.mark.parametrize(
    ("event", "planned", "final"),
    [
        (node.Received(Order(header(seq=3), m.PREPARE, 2)), False, False),
        (node.Received(Order(header(seq=3), m.PREPARE, 2, planned=True)), True, False),
        (node.Received(Order(header(seq=3), m.STANDBY)), False, False),
        (node.WorkerFailed(1, Failure("0", 0, 0, 1)), False, False),
        (node.Tick(), False, False),
        (node.Terminate(), True, True),
        (node.Received(Order(header(seq=3), m.RELEASE)), True, True),
        (node.Received(Order(header(seq=3), m.CLOSE, outcome=Outcome(m.CANCELLED, 130, "enough"))), True, True),
        (node.Received(Order(header(seq=3), m.CLOSE, outcome=Outcome(m.ENDED_FAILED, 1, "no"))), False, True),
    ],
    ids=["broken", "changed", "stand by", "failed", "fenced", "preempted", "released", "cancelled", "job failed"],
)
def test_a_stop_says_whether_it_is_planned_and_whether_workers_are_needed_again(
    event: object, planned: bool, final: bool
) -> None:
    stop = only(running().step(event, 61.0), node.Stop)
    assert (stop.planned, stop.final) == (planned, final)


def test_warming_is_told_when_it_changes_and_with_every_report() -> None:
    member = connected()
    assert only(member.step(node.Warming(True), 0.1), node.Send).report.warming
    assert member.step(node.Warming(True), 0.2) == []
    assert only(member.step(node.Connected(), 0.3), node.Send).report.warming
    assert not only(member.step(node.Warming(False), 0.4), node.Send).report.warming


def test_a_node_that_stands_by_starts_its_workers_early_once() -> None:
    member = connected()
    effects = member.step(node.Received(Order(header(), m.STANDBY, early=True)), 0.1)
    assert only(effects, node.StartEarly)
    assert only(effects, node.Send).report.warming, "until the driver says that it is not"
    assert member.step(node.Received(Order(header(), m.STANDBY, early=True)), 0.2) == []
    assert not only(member.step(node.Warming(False), 0.3), node.Send).report.warming


def test_a_node_with_workers_starts_none_early() -> None:
    effects = running().step(node.Received(Order(header(seq=3), m.STANDBY, early=True)), 0.3)
    assert only(effects, node.Stop) and not any(isinstance(e, node.StartEarly) for e in effects)


def test_that_workers_can_park_is_told_once_and_with_every_report() -> None:
    member = running()
    assert only(member.step(node.Elastic(), 0.3), node.Send).report.elastic
    assert member.step(node.Elastic(), 0.4) == []
    assert only(member.step(node.Connected(), 0.5), node.Send).report.elastic


def test_a_beat_that_is_due_is_not_lost_when_another_event_comes_first() -> None:
    member = running()
    due = member.deadline()
    assert due is not None
    member.step(node.Received(Order(header(seq=3), m.RUN, 1, place=PLACE)), due + 0.1)
    assert member.deadline() == due
    assert only(member.step(node.Tick(), due + 0.1), node.Send).report.beat


def test_deadlines_are_never_in_the_past() -> None:
    member = running()
    for now in (1.0, 5.3, 60.5, 61.0, 700.0):
        member.step(node.Tick(), now)
        due = member.deadline()
        assert due is None or due > now


def test_a_round_that_stands_still_where_the_last_one_did_is_looked_into_again() -> None:
    """A script that hangs at the same step every time gives the same sentence every time."""
    member = running()
    stall = m.Stall(0, "no step for 60 s: rank 0 stopped after step 8")
    told = Order(header(seq=3), m.RUN, 1, place=PLACE, stall=stall)
    assert only(member.step(node.Received(told), 1.0), node.Dump).stall == stall
    assert member.step(node.Received(told), 1.1) == []  # said again, in the same round
    member.step(node.WorkerFailed(1, Failure("0", 0, 0, 1)), 1.2)
    member.step(node.Received(Order(header(seq=4), m.PREPARE, 2)), 1.3)
    member.step(node.WorkersStopped(), 1.4)
    member.step(node.Received(Order(header(seq=5), m.RUN, 2, place=PLACE)), 1.5)
    assert member.state == m.RUNNING
    again = Order(header(seq=6), m.RUN, 2, place=PLACE, stall=stall)
    assert only(member.step(node.Received(again), 9.0), node.Dump) == node.Dump(2, stall)


def test_a_node_that_only_serves_runs_on_and_can_still_fail() -> None:
    member = running()
    assert member.step(node.Serving(7), 0.3) == []  # of another round
    assert only(member.step(node.WorkerEnded(1, last=False), 0.3), node.Send).report.ended
    report = only(member.step(node.Serving(1), 0.4), node.Send).report
    assert (report.state, report.serving, member.alive) == (m.RUNNING, True, True)
    effects = member.step(node.WorkerFailed(1, Failure("0", 0, 0, 1)), 0.5)
    assert only(effects, node.Send).report.state == m.FAILED


def test_who_served_in_a_round_has_to_say_so_again_in_the_next() -> None:
    member = running()
    member.step(node.Serving(1), 0.3)
    member.step(node.Received(Order(header(seq=3), m.PREPARE, 2)), 0.4)
    assert not only(member.step(node.WorkersStopped(), 0.5), node.Send).report.serving


def test_servers_get_their_whole_grace_when_the_job_has_succeeded() -> None:
    member = running()
    member.step(node.Serving(1), 0.3)
    over = Order(header(seq=3), m.CLOSE, outcome=Outcome(m.SUCCEEDED, 0, "all workers finished successfully"))
    stop = only(member.step(node.Received(over), 0.4), node.Stop)
    assert (stop.grace, stop.planned, stop.final) == (30.0, True, True)
    assert only(member.step(node.WorkersStopped(), 0.5), node.Exit).outcome == over.outcome


def test_a_node_has_as_many_workers_as_its_place_says() -> None:
    member = prepared()
    place = Place(0, 2, 0, 5, "host", 4242, procs=3)
    effects = member.step(node.Received(Order(header(seq=2), m.RUN, 1, place=place)), 0.2)
    assert only(effects, node.Send).report.procs == 3


def test_the_progress_of_a_round_is_not_told_in_the_next_one() -> None:
    member = running()
    progress = m.Progress(9, (1230,), (10.0,), (0.1,), (0.0,))
    assert only(member.step(node.Progressed(1, progress), 1.0), node.Send).report.progress == progress
    member.step(node.Received(Order(header(seq=3), m.PREPARE, 2)), 2.0)
    report = only(member.step(node.WorkersStopped(), 2.1), node.Send).report
    assert (report.state, report.round, report.progress) == (m.PREPARED, 2, None)


LOST_PEER = Failure("0", 0, 0, 1, message="RuntimeError: gloo: Connection closed by peer")
OWN = Failure("0", 1, 1, 3, message="ValueError: a label is out of range")


def test_a_failure_that_speaks_of_peers_waits_for_the_other_workers_of_the_node() -> None:
    member = running()
    effects = member.step(node.WorkerFailed(1, LOST_PEER, last=False), 1.0)
    assert [type(e) for e in effects] == [node.Send], "the others may still tell the root cause: nobody stops them"
    report = only(effects, node.Send).report
    assert (report.state, report.failure) == (m.RUNNING, LOST_PEER)
    report = only(member.step(node.WorkerFailed(1, OWN, last=False), 1.1), node.Send).report
    assert (report.state, report.failure) == (m.FAILED, OWN)


def test_a_failure_that_speaks_of_peers_counts_after_a_while() -> None:
    member = running()
    member.step(node.WorkerFailed(1, LOST_PEER, last=False), 1.0)
    due = member.deadline()
    assert due is not None and due <= 2.0
    effects = member.step(node.Tick(), 2.0)
    assert member.state == m.FAILED and member.failure == LOST_PEER
    assert only(effects, node.Stop).grace == 5.0


def test_a_failure_that_speaks_of_peers_counts_when_no_worker_is_left() -> None:
    for last in (node.WorkerFailed(1, LOST_PEER, last=True), node.WorkerEnded(1, last=True)):
        member = running()
        member.step(node.WorkerFailed(1, LOST_PEER, last=False), 1.0)
        member.step(last, 1.1)
        assert member.state == m.FAILED and member.failure == LOST_PEER


def test_a_node_whose_workers_cannot_be_ended_gives_itself_up() -> None:
    member = running()
    stop = only(member.step(node.Received(Order(header(seq=3), m.PREPARE, 2)), 1.0), node.Stop)
    last = 1.0 + stop.grace + node.UNKILLABLE_AFTER
    member.step(node.Received(Order(header(seq=4), m.WAIT)), last - 0.1)
    assert not any(isinstance(e, node.Exit) for e in member.step(node.Tick(), last - 0.1))
    due = member.deadline()
    assert due is not None and due <= last
    leaves = only(member.step(node.Tick(), last), node.Exit)
    assert leaves.stuck and leaves.outcome is None
    assert leaves.why == "its workers were killed but did not end within 25 s"


def test_a_node_whose_workers_cannot_be_ended_does_not_wait_at_the_end_of_the_job() -> None:
    member = running()
    outcome = Outcome(m.ENDED_FAILED, 3, "rank 0 failed")
    member.step(node.Received(Order(header(seq=3), m.CLOSE, outcome=outcome)), 1.0)
    leaves = only(member.step(node.Tick(), 1.0 + 5.0 + node.UNKILLABLE_AFTER), node.Exit)
    assert leaves.stuck and leaves.outcome == outcome


def test_workers_that_ended_late_are_no_reason_to_go() -> None:
    member = running()
    member.step(node.Received(Order(header(seq=3), m.PREPARE, 2)), 1.0)
    member.step(node.WorkersStopped(), 20.0)
    assert not any(isinstance(e, node.Exit) for e in member.step(node.Tick(), 60.0))
