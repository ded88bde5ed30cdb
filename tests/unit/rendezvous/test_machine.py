"""The coordinator's machine where a story would be longer than the rule it shows (see tests/simulation/scripts)."""

from __future__ import annotations

from typing import Any

import pytest

from petctl.rendezvous.core import messages as m
from petctl.rendezvous.core.budget import FALL_WITHIN
from petctl.rendezvous.core.events import (
    Config,
    Disconnected,
    End,
    Event,
    Expect,
    Late,
    Lost,
    Record,
    Recorded,
    Reported,
    Roster,
    Scale,
    Tell,
)
from petctl.rendezvous.core.machine import Coordinator
from petctl.rendezvous.core.messages import Failure, Header, Order, Outcome, Place, Progress, Report

CONFIG = Config(min_nodes=1, max_nodes=2, wanted=2, restarts=1)


def report(name: str, number: int = 1, header: Header | None = None, **fields: Any) -> Report:
    return Report(name, f"i-{name}", number, 1, f"host-{name}", header or Header(), **fields)


def orders(effects: list[object]) -> dict[str, Order]:
    return {effect.node: effect.order for effect in effects if isinstance(effect, Tell)}


class Story:
    """A machine and the nodes that answer it at once."""

    def __init__(self, **options: Any) -> None:
        self.machine = Coordinator(options.pop("config", CONFIG), 0.0, "c1", **{"epoch": 1, **options})
        self.now = 0.0
        self.number = 0
        self.effects: list[object] = []

    def say(self, name: str, **fields: Any) -> dict[str, Order]:
        self.number += 1
        fields.setdefault("header", self.machine.header())
        self.machine.step(Reported(report(name, self.number, **fields)), self.now)
        self.effects = self.machine.settle(self.now)
        return orders(self.effects)

    def running(self, *names: str) -> None:
        self.machine.step(Expect(names), self.now)
        for name in names:
            self.say(name)
        for name in names:
            self.say(name, state=m.PREPARED, epoch=1, round=1, port=4242 if name == names[0] else 0)
        assert self.machine.phase == "running", self.machine.sentence

    def at_work(self, name: str, state: str, **fields: Any) -> dict[str, Order]:
        place = self.machine.places[name][1]
        here = {"epoch": 1, "round": 1, "place": place, "place_epoch": 1, "place_round": 1}
        return self.say(name, state=state, **here, **fields)


def test_a_recovering_coordinator_never_makes_a_node_forget() -> None:
    story = Story(epoch=7, fresh=False)
    known = Header(3, "c0", 9, round=5, ran=4, spent=2, wanted=1)
    told = story.say("0", header=known, beat=True)["0"].header
    assert (told.round, told.ran, told.spent, told.wanted) == (5, 4, 2, 1)
    assert told.epoch == 7


def test_the_roster_ends_the_wait_for_members_that_are_gone() -> None:
    story = Story(epoch=2, fresh=False)
    place = Place(0, 2, 0, 2, "host-0", 4242)
    old = {"epoch": 1, "round": 1, "place": place, "place_epoch": 1, "place_round": 1}
    story.say("0", header=Header(1, "c0", 3, 1, 1, 0, 2), state=m.RUNNING, **old)
    assert story.machine.phase == "recovering"
    story.machine.step(Roster(("0",)), 0.1)
    assert orders(story.machine.settle(0.1))["0"].kind == m.PREPARE
    assert story.machine.round == 2


def test_the_backend_remembers_for_a_job_without_nodes() -> None:
    story = Story(epoch=4, fresh=False, memory=Header(round=6, ran=6, spent=1))
    story.machine.step(Roster(()), 0.0)
    story.machine.settle(0.1)
    assert (story.machine.round, story.machine.budget.spent) == (7, 1)


def test_the_outcome_is_recorded_before_anybody_is_told() -> None:
    story = Story()
    story.running("0", "1")
    story.machine.step(End(Outcome(m.CANCELLED, 130, "enough")), 1.0)
    effects = story.machine.settle(1.0)
    assert any(isinstance(e, Record) for e in effects)
    assert all(order.kind != m.CLOSE for order in orders(effects).values())
    story.machine.step(Recorded(), 1.1)
    assert {order.kind for order in orders(story.machine.settle(1.1)).values()} == {m.CLOSE}


def test_another_end_that_was_recorded_first_is_the_one_that_counts() -> None:
    story = Story()
    story.machine.step(End(Outcome(m.CANCELLED, 130, "enough")), 1.0)
    story.machine.settle(1.0)
    story.machine.step(Recorded(Outcome(m.SUCCEEDED, 0, "was done before")), 1.1)
    assert story.machine.outcome == Outcome(m.SUCCEEDED, 0, "was done before")


def test_the_last_failure_waits_until_every_member_has_proved_alive() -> None:
    story = Story(config=Config(1, 2, 2, restarts=0))
    story.running("0", "1")
    failure = Failure("0", 0, 0, 3)
    told = story.at_work("0", m.FAILED, failure=failure)
    assert told["1"].probe == 1 and story.machine.ending is None
    story.at_work("0", m.FAILED, failure=failure, probe=1)
    assert story.machine.ending is None, "node 1 has not answered yet"
    story.at_work("1", m.RUNNING, probe=1)
    assert story.machine.ending is not None and story.machine.ending.code == 3


def test_the_last_failure_is_forgiven_when_a_member_was_lost() -> None:
    story = Story(config=Config(1, 2, 2, restarts=0))
    story.running("0", "1")
    story.at_work("0", m.FAILED, failure=Failure("0", 0, 0, 3))
    story.machine.step(Disconnected("1", "i-1"), story.now)
    effects = story.machine.settle(story.now)
    assert story.machine.ending is None and story.machine.phase == "gathering"
    assert [e.node for e in effects if isinstance(e, Lost)] == ["1"]


def test_a_code_that_is_not_retried_waits_for_the_members_too() -> None:
    story = Story(config=Config(1, 2, 2, restarts=5, retry_on=((3, 3),)))
    story.running("0", "1")
    failure = Failure("0", 0, 0, 9)
    assert story.at_work("0", m.FAILED, failure=failure)["1"].probe == 1
    assert story.machine.ending is None and story.machine.budget.spent == 0
    story.at_work("0", m.FAILED, failure=failure, probe=1)
    story.at_work("1", m.RUNNING, probe=1)
    assert story.machine.ending is not None and story.machine.ending.code == 9
    assert story.machine.ending.sentence.endswith("(exit code 9 is not in retry_on)")


def test_a_code_that_is_not_retried_is_forgiven_when_a_member_was_lost() -> None:
    story = Story(config=Config(1, 2, 2, restarts=5, retry_on=((3, 3),)))
    story.running("0", "1")
    story.at_work("0", m.FAILED, failure=Failure("0", 0, 0, 9))
    story.machine.step(Disconnected("1", "i-1"), story.now)
    story.machine.settle(story.now)
    assert story.machine.ending is None and story.machine.phase == "gathering"
    assert story.machine.budget.spent == 0


def test_the_first_failure_says_whether_to_retry() -> None:
    story = Story(config=Config(1, 2, 2, restarts=5, retry_on=((137, 137),)))
    story.running("0", "1")
    report_of_1 = report("1", 90, state=m.FAILED, epoch=1, round=1, failure=Failure("1", 1, 0, 137, "SIGKILL"))
    report_of_0 = report("0", 91, state=m.FAILED, epoch=1, round=1, failure=Failure("0", 0, 0, 1))
    for told in (report_of_1, report_of_0):  # the second is a consequence of the first
        story.machine.step(Reported(told), story.now)
    story.machine.settle(story.now)
    assert story.machine.phase == "gathering" and story.machine.budget.spent == 1


def test_members_are_spared_by_what_they_cost() -> None:
    story = Story(config=Config(1, 3, 2))
    story.running("0", "1")
    story.say("5")  # stands by
    assert story.machine.cheapest(["0", "1", "5", "9"]) == ["9", "5", "1", "0"]
    story.machine.nodes["1"].release = True  # about to go
    assert story.machine.cheapest(["0", "1", "5"]) == ["1", "5", "0"]
    story.machine.step(Disconnected("0", "i-0"), story.now)
    story.machine.settle(story.now)
    assert story.machine.phase == "gathering"
    assert story.machine.cheapest(["0", "1", "5"]) == ["1", "0", "5"], "node 0 is gone"


def test_a_straggler_is_spared_before_its_peers() -> None:
    story = Story(config=Config(1, 3, 3))
    story.running("0", "1", "2")
    for now in range(1, 9):
        story.now = float(now)
        for name in "012":
            pace = 2.0 if name == "1" else 10.0
            story.at_work(name, m.RUNNING, progress=Progress(now, (now,), (pace,), (0.1,), (0.0,)))
    assert story.machine.cheapest(["0", "1", "2"]) == ["1", "2", "0"]


@pytest.mark.parametrize(("leaving", "why"), [(True, "node 1 leaves"), (False, "node 1 had lost the coordinator")])
def test_a_member_without_workers_ends_the_round_whatever_became_of_it(leaving: bool, why: str) -> None:
    story = Story()
    story.running("0", "1")
    story.at_work("1", m.IDLE, leaving=leaving)
    assert story.machine.reason.startswith(why) and not story.machine.planned


def test_a_failure_is_charged_and_named() -> None:
    story = Story()
    story.running("0", "1")
    story.at_work("1", m.FAILED, failure=Failure("1", 1, 0, 137, "SIGKILL"))
    said = [e.sentence for e in story.effects if isinstance(e, Event) and e.kind == "failure"]
    assert said == ["rank 1 on node 1 was killed by SIGKILL (1 of 1 restarts used)"]
    assert story.machine.budget.spent == 1


def unfit(name: str) -> Failure:
    return Failure(name, 0, 0, 127, message="there is no mpirun", cause="mpirun-missing", lasting=True)


@pytest.mark.parametrize("expected", [False, True])
def test_a_node_that_cannot_do_its_part_is_left_out_where_enough_others_are_there_or_come(expected: bool) -> None:
    least = 2 if expected else 1
    story = Story(config=Config(min_nodes=least, max_nodes=2, wanted=2, restarts=0))
    story.running("0", "1")
    if expected:
        story.machine.step(Expect(("2",)), story.now)
    story.at_work("0", m.RUNNING)
    story.at_work("1", m.FAILED, failure=unfit("1"))
    assert story.machine.phase == "running", "node 0 has not shown that it lives"
    story.at_work("0", m.RUNNING, probe=1)
    told = story.at_work("1", m.FAILED, failure=unfit("1"), probe=1)
    assert (
        told["0"].kind == m.PREPARE and told["0"].sentence == "node 1 could not start its workers: there is no mpirun"
    )
    assert {name: node.eligible for name, node in story.machine.nodes.items()} == {"0": True, "1": False}
    assert story.machine.budget.spent == 0
    row = story.machine.status()["nodes"][1]
    assert (row["state"], row["note"]) == ("unfit", "node 1 could not start its workers: there is no mpirun")
    assert [effect.kind for effect in story.effects if isinstance(effect, Event)] == ["failure", "round"]


def test_one_whose_connection_is_forgiven_counts_among_the_others() -> None:
    story = Story()
    story.running("0", "1")
    story.at_work("1", m.FAILED, failure=unfit("1"))
    story.at_work("0", m.RUNNING, probe=1)
    story.machine.step(Late(3.0), story.now)
    story.machine.step(Disconnected("0", "i-0"), story.now)
    story.at_work("1", m.FAILED, failure=unfit("1"), probe=1)
    assert story.machine.phase == "gathering" and story.machine.nodes["1"].unfit


def test_a_node_that_comes_anew_is_not_left_out_any_more() -> None:
    story = Story()
    story.running("0", "1")
    story.at_work("1", m.FAILED, failure=unfit("1"))
    story.at_work("0", m.RUNNING, probe=1)
    story.at_work("1", m.FAILED, failure=unfit("1"), probe=1)
    assert not story.machine.nodes["1"].eligible
    story.say("0", state=m.PREPARED, epoch=1, round=2, port=4242)
    story.say("1", state=m.PREPARED, epoch=1, round=2)
    assert story.machine.sentence == (
        "running on 1 node, 1 worker; node 1 could not start its workers: there is no mpirun"
    )
    story.machine.step(Disconnected("1", "i-1"), story.now)
    story.machine.settle(story.now)
    assert story.machine.sentence == "running on 1 node, 1 worker"
    story.say("1")
    assert story.machine.nodes["1"].eligible


def test_whoever_waits_for_others_is_told_of_the_node_that_is_left_out() -> None:
    story = Story()
    story.running("0", "1")
    story.at_work("1", m.FAILED, failure=unfit("1"))
    story.at_work("0", m.RUNNING, probe=1)
    story.at_work("1", m.FAILED, failure=unfit("1"), probe=1)
    story.machine.step(Disconnected("0", "i-0"), story.now)
    story.say("1", state=m.PREPARED, epoch=1, round=2)
    why = "node 1 could not start its workers: there is no mpirun"
    assert story.machine.sentence == f"waiting: 0 of 2 nodes, at least 1 are needed; {why}"
    story.now = CONFIG.join_timeout
    story.say("1", state=m.PREPARED, epoch=1, round=2)
    assert story.machine.sentence == (
        f"only 0 of at least 1 nodes joined in 600 s; {why}; raise join_timeout or lower the size"
    )


@pytest.mark.parametrize("least", [1, 2])
def test_where_too_few_can_do_their_part_the_job_ends_with_its_restarts_unused(least: int) -> None:
    story = Story(config=Config(min_nodes=least, max_nodes=2, wanted=2, restarts=100))
    story.running("0", "1")
    own = {} if least == 2 else {"failure": unfit("0")}
    state = m.FAILED if own else m.RUNNING
    story.at_work("1", m.FAILED, failure=unfit("1"))
    story.at_work("0", state, **own)
    story.at_work("0", state, probe=1, **own)
    story.at_work("1", m.FAILED, failure=unfit("1"), probe=1)
    (record,) = [effect for effect in story.effects if isinstance(effect, Record)]
    assert (record.outcome.state, record.outcome.code, record.outcome.failure) == (m.ENDED_FAILED, 127, unfit("1"))
    assert record.outcome.sentence.startswith("node 1 could not start its workers: there is no mpirun")
    assert story.machine.budget.spent == 0


def test_a_program_that_fails_ends_the_job_though_another_node_could_not_start_it() -> None:
    story = Story(config=Config(min_nodes=1, max_nodes=2, wanted=2, restarts=0))
    story.running("0", "1")
    story.at_work("0", m.FAILED, failure=Failure("0", 0, 0, 3))
    story.at_work("1", m.FAILED, failure=unfit("1"), probe=1)
    story.at_work("0", m.FAILED, failure=Failure("0", 0, 0, 3), probe=1)
    assert story.machine.ending is not None and story.machine.ending.code == 3


@pytest.mark.parametrize(("eager", "elastic"), [(True, True), (True, False), (False, True)])
def test_who_stands_by_starts_early_where_workers_can_park(eager: bool, elastic: bool) -> None:
    story = Story(config=Config(1, 3, 2, eager=eager))
    story.running("0", "1")
    assert story.say("2")["2"].early is False
    told = story.at_work("0", m.RUNNING, elastic=elastic)
    assert ("2" in told) is elastic
    assert story.say("2", beat=True)["2"].early is (eager and elastic)
    assert not story.at_work("0", m.RUNNING, elastic=elastic, beat=True)["0"].early


def test_join_timeout_ends_a_job_that_never_gets_enough_nodes() -> None:
    story = Story(config=Config(2, 2, 2, join_timeout=10.0))
    story.say("0", state=m.PREPARED, epoch=1, round=1)
    story.now = 10.0
    story.say("0", state=m.PREPARED, epoch=1, round=1)
    assert story.machine.ending is not None
    assert "only 1 of at least 2 nodes joined in 10 s" in story.machine.ending.sentence


@pytest.mark.parametrize("phase", ["gathering", "running"])
def test_deadlines_are_never_in_the_past(phase: str) -> None:
    story = Story()
    if phase == "running":
        story.running("0", "1")
    for now in (1.0, 5.1, 20.0, 700.0):
        story.machine.settle(now)
        due = story.machine.due
        assert due is None or due > now


def test_a_newer_coordinator_silences_this_one() -> None:
    story = Story()
    story.running("0", "1")
    assert story.say("0", header=Header(9, "c9", 1)) == {}
    assert story.machine.phase == "deposed" and story.machine.due is None


def test_a_replacement_does_not_take_answers_to_its_predecessor_for_its_own() -> None:
    story = Story(config=Config(1, 2, 2, restarts=0), epoch=2, fresh=False)
    before = {"epoch": 1, "round": 1, "place_epoch": 1, "place_round": 1, "probe": 1}
    header = Header(1, "c0", 3, 1, 1, 0, 2)
    places = [Place(rank, 2, rank, 2, "host-0", 4242) for rank in range(2)]
    for name, place in zip("01", places):
        story.say(name, header=header, state=m.RUNNING, place=place, **before)
    assert story.machine.phase == "running"
    story.say("0", state=m.FAILED, place=places[0], failure=Failure("0", 0, 0, 3), **before)
    assert story.machine.ending is None, "nobody has been asked whether it lives"
    story.say("0", state=m.FAILED, place=places[0], failure=Failure("0", 0, 0, 3), **{**before, "probe": 2})
    story.say("1", state=m.RUNNING, place=places[1], **{**before, "probe": 2})
    assert story.machine.ending is not None


def serving_story() -> Story:
    """Node 0 has the worker, node 1 nothing but a parameter server."""
    story = Story(config=Config(2, 2, 2, restarts=1, tasks=(1, 1)))
    story.running("0", "1")
    story.at_work("1", m.RUNNING, serving=True)
    assert story.machine.phase == "running", "the worker has not ended"
    return story


def test_a_job_has_succeeded_when_only_servers_are_left() -> None:
    story = serving_story()
    story.at_work("0", m.DONE, ended=True)
    assert story.machine.ending == Outcome(m.SUCCEEDED, 0, "all workers finished successfully")


def test_a_server_beside_the_last_worker_is_not_waited_for_either() -> None:
    story = serving_story()
    story.at_work("0", m.RUNNING, ended=True, serving=True)
    assert story.machine.ending is not None and story.machine.ending.state == m.SUCCEEDED


def test_a_lost_server_ends_the_round() -> None:
    story = serving_story()
    story.machine.step(Disconnected("1", "i-1"), story.now)
    story.machine.settle(story.now)
    assert story.machine.reason == "node 1 was lost: its connection closed"
    assert story.machine.phase == "gathering" and not story.machine.serving


def test_a_failed_server_is_a_failure_of_the_job() -> None:
    story = serving_story()
    story.at_work("1", m.FAILED, serving=True, failure=Failure("1", 1, 0, 1, task="ps 0"))
    assert story.machine.reason == "ps 0 (rank 1) on node 1 exited with code 1 (1 of 1 restarts used)"


@pytest.mark.parametrize("state", [m.RUNNING, m.FAILED])
def test_a_server_that_goes_in_the_moment_of_the_last_good_end_spoils_nothing(state: str) -> None:
    story = serving_story()
    failure = Failure("1", 1, 0, 1) if state == m.FAILED else None
    told = report("1", 90, state=state, epoch=1, round=1, serving=True, failure=failure)
    story.machine.step(Reported(told), story.now)
    story.machine.step(Disconnected("1", "i-1"), story.now)
    story.machine.step(Reported(report("0", 91, state=m.DONE, epoch=1, round=1)), story.now)
    story.machine.settle(story.now)
    assert story.machine.ending is not None and story.machine.ending.state == m.SUCCEEDED


def test_a_replaced_coordinator_knows_who_serves() -> None:
    story = Story(epoch=2, fresh=False, config=Config(2, 2, 2, tasks=(1, 1)))
    for name, rank in (("0", 0), ("1", 1)):
        place = Place(rank, 2, rank, 2, "host-0", 4242, procs=1)
        old = {"epoch": 1, "round": 1, "place": place, "place_epoch": 1, "place_round": 1}
        state, serving = (m.DONE, False) if rank == 0 else (m.RUNNING, True)
        story.say(name, header=Header(1, "c0", 3, 1, 1, 0, 2), state=state, serving=serving, **old)
    assert story.machine.ending is not None and story.machine.ending.state == m.SUCCEEDED


def test_the_coordinator_numbers_the_tasks_of_roles() -> None:
    story = Story(config=Config(2, 2, 2, tasks=(1, 0, 3)))
    story.running("0", "1")
    places = [place for _, place in story.machine.places.values()]
    assert [(place.first_rank, place.procs, place.world_size) for place in places] == [(0, 4, 6), (4, 2, 6)]
    assert [row["procs"] for row in story.machine.status()["nodes"]] == [4, 2]


def told(*steps: int) -> Progress:
    count = len(steps)
    return Progress(7, steps, (10.0,) * count, (0.1,) * count, (0.0,) * count)


def test_a_node_that_only_prepares_has_no_progress_to_tell() -> None:
    story = Story()
    story.running("0", "1")
    story.say("1", state=m.PREPARED, epoch=1, round=1, progress=told(1230))
    assert story.machine.steps.status() is None
    story.at_work("1", m.RUNNING, progress=told(3))
    assert story.machine.status()["progress"]["step"] == 3


def test_progress_of_more_ranks_than_the_place_has_is_not_believed() -> None:
    story = Story()
    story.running("0", "1")
    story.at_work("1", m.RUNNING, progress=told(1230, 1230))
    assert story.machine.steps.status() is None


def test_the_same_round_of_another_epoch_is_another_round() -> None:
    story = Story()
    story.running("0", "1")
    place = story.machine.places["1"][1]
    fields = {"epoch": 7, "round": 1, "place": place, "place_epoch": 7, "place_round": 1}
    story.say("1", state=m.FAILED, failure=Failure("1", 1, 0, 3), progress=told(1230), **fields)
    assert story.machine.phase == "running" and story.machine.budget.spent == 0
    assert story.machine.steps.status() is None


LOST_PEER = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4711"


def test_a_failure_that_speaks_of_peers_waits_for_one_that_does_not() -> None:
    story = Story()
    story.running("0", "1")
    story.at_work("0", m.FAILED, failure=Failure("0", 0, 0, 1, message=LOST_PEER))
    assert story.machine.phase == "running" and story.machine.budget.spent == 0
    assert "waiting up to 1 s for the root cause" in story.machine.sentence
    assert story.machine.due == story.now + 1.0
    story.at_work("1", m.FAILED, failure=Failure("1", 1, 0, 1, message="ValueError: a label is out of range"))
    assert story.machine.phase == "gathering" and story.machine.budget.spent == 1
    [event] = [e for e in story.effects if isinstance(e, Event) and e.kind == "failure"]
    assert event.data["failure"]["message"] == "ValueError: a label is out of range"
    assert event.sentence.endswith("rank 0 on node 0 failed before it, but may only have lost a peer")


def test_a_failure_that_speaks_of_peers_counts_when_nobody_else_fails() -> None:
    story = Story()
    story.running("0", "1")
    story.at_work("0", m.FAILED, failure=Failure("0", 0, 0, 1, message=LOST_PEER))
    story.machine.settle(0.99)
    assert story.machine.phase == "running"
    story.machine.settle(1.0)
    assert story.machine.phase == "gathering" and story.machine.budget.spent == 1
    assert LOST_PEER in story.machine.reason


def test_a_failure_that_speaks_of_peers_counts_at_once_when_all_have_told_their_end() -> None:
    story = Story()
    story.running("0", "1")
    story.at_work("0", m.FAILED, failure=Failure("0", 0, 0, 1, message=LOST_PEER))
    story.at_work("1", m.FAILED, failure=Failure("1", 1, 0, 2, message=LOST_PEER))
    assert story.machine.phase == "gathering" and "rank 0 on node 0" in story.machine.reason


def test_a_failure_that_a_node_still_weighs_is_waited_for() -> None:
    story = Story(config=Config(1, 1, 1, restarts=1))
    story.running("0")
    story.at_work("0", m.RUNNING, failure=Failure("0", 0, 0, 1, message=LOST_PEER))
    assert story.machine.phase == "running"
    story.at_work("0", m.FAILED, failure=Failure("0", 1, 1, 3, message="ValueError: x"))
    assert story.machine.phase == "gathering" and "rank 1 on node 0 exited with code 3" in story.machine.reason


def test_who_leaves_explains_a_failure_that_speaks_of_peers() -> None:
    story = Story()
    story.running("0", "1")
    story.at_work("0", m.FAILED, failure=Failure("0", 0, 0, 1, message=LOST_PEER))
    story.at_work("1", m.STOPPING, leaving=True)
    assert story.machine.phase == "gathering" and story.machine.reason == "node 1 leaves"
    assert story.machine.budget.spent == 0


def test_the_last_failure_is_named_by_its_root_cause() -> None:
    story = Story(config=Config(1, 2, 2, restarts=0))
    story.running("0", "1")
    story.at_work("0", m.FAILED, failure=Failure("0", 0, 0, 1, message=LOST_PEER))
    story.at_work("1", m.FAILED, failure=Failure("1", 1, 0, 3, message="ValueError: x"))
    story.at_work("0", m.FAILED, failure=Failure("0", 0, 0, 1, message=LOST_PEER), probe=1)
    story.at_work("1", m.FAILED, failure=Failure("1", 1, 0, 3, message="ValueError: x"), probe=1)
    assert story.machine.ending is not None and story.machine.ending.code == 3


def test_a_node_that_was_released_before_it_joined_is_released_when_it_joins() -> None:
    story = Story(config=Config(1, 3, 1))
    story.running("0")
    story.machine.step(Scale(3), 1.0)
    story.machine.step(Expect(("1", "2")), 1.0)
    story.machine.step(Scale(1, ("1", "2")), 1.05)
    story.machine.settle(1.05)
    assert story.say("1")["1"].kind == m.RELEASE
    assert story.say("2")["2"].kind == m.RELEASE


def test_a_released_node_is_released_again_when_it_comes_back() -> None:
    story = Story(config=Config(1, 2, 2))
    story.running("0", "1")
    story.machine.step(Scale(1, ("1",)), 1.0)
    story.machine.settle(1.0)
    story.machine.step(Disconnected("1", "i-1"), 1.1)
    story.machine.settle(1.1)
    assert story.say("1", state=m.STOPPING)["1"].kind == m.RELEASE


def test_a_node_that_is_expected_again_is_not_released() -> None:
    story = Story(config=Config(1, 2, 1))
    story.running("0")
    story.machine.step(Scale(1, ("1",)), 1.0)
    story.machine.step(Scale(2), 1.1)
    story.machine.step(Expect(("1",)), 1.1)
    story.machine.settle(1.1)
    assert story.say("1")["1"].kind != m.RELEASE


def test_the_next_life_of_a_released_node_is_not_released() -> None:
    story = Story(config=Config(1, 2, 1))
    story.running("0")
    story.machine.step(Scale(1, ("1",)), 1.0)
    assert story.say("1")["1"].kind == m.RELEASE
    later = Report("1", "i-1-later", 1, 1, "host-1", story.machine.header())
    story.machine.step(Reported(later), 2.0)
    assert orders(story.machine.settle(2.0))["1"].kind == m.STANDBY


def test_the_join_timeout_counts_from_when_there_are_too_few_nodes() -> None:
    story = Story(config=Config(2, 3, 3, join_timeout=10.0))
    story.machine.step(Expect(("0", "1", "2"), 60.0), 0.0)
    story.say("0")
    story.say("1")
    for name in ("0", "1"):
        story.say(name, state=m.PREPARED, epoch=1, round=1, port=4242)
    story.now = 4.0
    for name in ("0", "1"):
        story.say(name, state=m.PREPARED, epoch=1, round=1, port=4242)
    story.now = 9.0
    story.say("0", state=m.PREPARED, epoch=1, round=1, port=4242)
    story.machine.step(Disconnected("1", "i-1"), 9.0)
    story.machine.settle(9.0)
    assert story.machine.due is not None
    story.now = 11.0
    story.say("0", state=m.PREPARED, epoch=1, round=1, port=4242)
    assert story.machine.ending is None, "there were enough nodes until two seconds ago"
    for second in (14.0, 18.0):
        story.now = second
        story.say("0", state=m.PREPARED, epoch=1, round=1, port=4242)
    assert story.machine.ending is None
    story.now = 19.0
    story.say("0", state=m.PREPARED, epoch=1, round=1, port=4242)
    assert story.machine.ending is not None
    assert "only 1 of at least 2 nodes joined in 10 s" in story.machine.ending.sentence


def test_workers_that_take_long_to_stop_are_not_too_few_nodes() -> None:
    story = Story(config=Config(2, 2, 2, join_timeout=3.0, restarts=3))
    story.running("0", "1")
    story.at_work("0", m.FAILED, failure=Failure("0", 0, 0, 3))
    assert story.machine.phase == "gathering"
    for second in range(1, 6):
        story.now = float(second)
        story.say("0", state=m.PREPARED, epoch=1, round=2, port=4242)
        story.say("1", state=m.STOPPING, epoch=1, round=1)
    assert story.machine.ending is None and "is stopping workers" in story.machine.sentence


def test_a_leave_after_a_failure_gives_nothing_back() -> None:
    story = Story()
    story.running("0", "1")
    story.at_work("0", m.FAILED, failure=Failure("0", 0, 0, 3, message="ValueError: x"))
    assert story.machine.budget.spent == 1
    story.say("1", state=m.STOPPING, epoch=1, round=1, leaving=True)
    story.machine.step(Disconnected("1", "i-1"), 0.1)
    effects = story.machine.settle(0.1)
    assert [e.node for e in effects if isinstance(e, Lost)] == ["1"]
    assert story.machine.budget.spent == 1


def test_a_release_after_a_failure_gives_nothing_back() -> None:
    config = Config(1, 2, 2, restarts=1)
    story = Story(config=config)
    story.running("0", "1")
    story.at_work("0", m.FAILED, failure=Failure("0", 0, 0, 3, message="ValueError: x"))
    story.machine.step(Scale(2, ("1",)), 0.1)
    story.machine.step(Disconnected("1", "i-1"), 0.1)
    story.machine.settle(0.1)
    assert (story.machine.budget.spent, story.machine.budget.sentence()) == (1, "1 of 1 restarts used")


def test_the_coordinators_own_lateness_loses_no_refund() -> None:
    story = Story()
    story.running("0", "1")
    story.at_work("0", m.FAILED, failure=Failure("0", 0, 0, 3, message="ValueError: x"))
    assert story.machine.budget.spent == 1
    story.machine.step(Late(20.0), 20.0)
    story.machine.step(Disconnected("1", "i-1"), 21.0)
    story.machine.settle(25.0)
    assert story.machine.budget.spent == 0


def test_an_agent_whose_node_has_a_newer_one_is_told_to_go() -> None:
    story = Story()
    story.running("0", "1")
    newer = Report("1", "i-2", 1, 1, "host-1", story.machine.header())
    story.machine.step(Reported(newer), 1.0)
    story.machine.settle(1.0)
    stale = Report("1", "i-1", 9, 1, "host-1", story.machine.header())
    story.machine.step(Reported(stale), 1.1)
    [told] = [e for e in story.machine.settle(1.1) if isinstance(e, Tell) and e.incarnation == "i-1"]
    assert (told.order.kind, told.order.sentence) == (m.RELEASE, "a newer agent of node 1 joined")
    assert story.machine.nodes["1"].report.incarnation == "i-2"


def fall(story: Story, number: int, life: int, *steps: int, seconds: float = 1.0) -> list[object]:
    """Round `number` runs on node 0, whose agent then dies without a word."""
    story.number += 1
    own: dict[str, Any] = {
        "node": "0",
        "incarnation": f"i-{life:02}",
        "procs": 1,
        "address": "host-0",
        "header": story.machine.header(),
    }
    here: dict[str, Any] = {"epoch": 1, "round": number}
    story.machine.step(Reported(Report(number=story.number, **own)), story.now)
    story.machine.settle(story.now)
    story.number += 1
    report = Report(number=story.number, state=m.PREPARED, port=4242, **own, **here)
    story.machine.step(Reported(report), story.now)
    story.machine.settle(story.now)
    assert story.machine.phase == "running", story.machine.sentence
    if steps:
        story.number += 1
        place = story.machine.places["0"][1]
        at_work: dict[str, Any] = {"state": m.RUNNING, "place": place, "place_epoch": 1, "place_round": number}
        report = Report(number=story.number, progress=told(*steps), **at_work, **own, **here)
        story.machine.step(Reported(report), story.now)
        story.machine.settle(story.now)
    story.now += seconds
    story.machine.step(Disconnected("0", f"i-{life:02}"), story.now)
    return story.machine.settle(story.now)


def test_a_program_that_takes_its_node_down_every_time_is_charged() -> None:
    story = Story(config=Config(1, 1, 1, restarts=1))
    for life in range(1, 5):
        fall(story, life, life)
        assert story.machine.budget.spent == 0
    effects = fall(story, 5, 5)
    assert story.machine.budget.spent == 1
    [event] = [e for e in effects if isinstance(e, Event) and e.kind == "failure"]
    assert "node 0 (rank 0) was lost 5 times without progress; the program may" in event.sentence
    for life in range(6, 10):
        fall(story, life, life)
    fall(story, 10, 10)
    assert story.machine.ending is not None and story.machine.ending.state == m.ENDED_FAILED
    assert "node 0 (rank 0) was lost 5 times without progress" in story.machine.ending.sentence


def test_a_node_that_makes_progress_between_its_losses_is_not_charged() -> None:
    story = Story(config=Config(1, 1, 1, restarts=0))
    for life in range(1, 20):
        fall(story, life, life, life)
    assert story.machine.budget.spent == 0 and story.machine.ending is None


def test_a_round_that_ran_for_a_while_counts_as_progress() -> None:
    story = Story(config=Config(1, 1, 1, restarts=0))
    for life in range(1, 20):
        fall(story, life, life, seconds=FALL_WITHIN)
    assert story.machine.budget.spent == 0 and story.machine.ending is None
