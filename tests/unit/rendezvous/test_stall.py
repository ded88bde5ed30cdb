"""Stalls and stragglers, in virtual time, and what both machines make of them."""

from __future__ import annotations

from typing import Any

from petctl.rendezvous.core import member as mb
from petctl.rendezvous.core import messages as m
from petctl.rendezvous.core.events import Config, Event, Late, Reported, Tell
from petctl.rendezvous.core.machine import Coordinator
from petctl.rendezvous.core.messages import Header, Order, Progress, Report
from petctl.rendezvous.core.stall import SLOW_FOR, StepWatch, median, names


def told(heard: int, *steps: int, pace: float = 10.0, gap: float = 0.1, busy: float = 0.0) -> Progress:
    count = len(steps)
    return Progress(heard, steps, (pace,) * count, (gap,) * count, (busy,) * count, {"loss": 0.5}, 99.0)


def test_a_round_without_reports_never_stalls() -> None:
    watch = StepWatch(60.0)
    assert watch.deadline() is None
    assert watch.look(1e9) == [] and watch.stall is None


def test_silence_after_steps_is_a_stall_and_names_the_last_rank() -> None:
    watch = StepWatch(60.0)
    watch.hear("a", 0, told(1, 8, 8), 100.0)
    watch.hear("b", 2, told(1, 8, 7), 101.0)
    assert [kind for kind, _, _ in watch.look(101.0)] == ["training", "progress"]
    assert watch.deadline() == 161.0
    assert watch.look(160.9) == [] and watch.stall is None
    [(kind, sentence, data)] = watch.look(161.0)
    assert (kind, data) == ("stall", {"ranks": [3], "step": 7})
    assert "no step for 60 s: rank 3 stopped after step 7, others after step 8" in sentence
    assert watch.stall is not None and watch.stall.rank == 3
    assert watch.look(220.9) == [], "it is told once"
    watch.begin()
    assert watch.stall is None and watch.deadline() is None


def test_where_the_blamed_rank_does_not_answer_the_next_one_is_named() -> None:
    watch = StepWatch(60.0)
    watch.hear("a", 0, told(1, 8, 7), 100.0)
    watch.look(160.0)
    assert watch.stall is not None and watch.stall.rank == 1
    assert watch.deadline() == 220.0
    watch.look(220.0)
    assert watch.stall.rank == 0 and "no step for 120 s: rank 0 stopped after step 8" in watch.stall.sentence
    watch.look(280.0)
    assert watch.stall.rank == 1, "then all over again"


def test_the_same_report_again_is_no_sign_of_life() -> None:
    watch = StepWatch(60.0)
    watch.hear("a", 0, told(1, 8), 100.0)
    watch.hear("a", 0, told(1, 8), 150.0)
    assert watch.deadline() == 160.0
    watch.hear("a", 0, told(2, 8), 150.0)  # it reports, though not a step: an evaluation, perhaps
    assert watch.deadline() == 210.0


def test_slow_steps_get_ten_times_their_usual_gap() -> None:
    watch = StepWatch(60.0)
    watch.hear("a", 0, told(1, 8, gap=30.0), 0.0)
    watch.look(0.0)
    assert watch.deadline() == 300.0


def test_the_coordinators_own_lateness_counts_for_nobody() -> None:
    watch = StepWatch(60.0)
    watch.hear("a", 0, told(1, 8), 0.0)
    watch.late(30.0)
    assert watch.deadline() == 90.0


def test_zero_turns_it_off() -> None:
    watch = StepWatch(0.0)
    watch.hear("a", 0, told(1, 8), 0.0)
    assert watch.deadline() is None
    watch.look(1e9)
    assert watch.stall is None


def beat(watch: StepWatch, now: float, slow: float, own_work: bool = False) -> list[str]:
    """One second of a round of four ranks of which the last has another pace."""
    for rank in range(4):
        pace = slow if rank == 3 else 10.0
        shared = min(slow, 10.0)  # everybody waits for everybody in each step
        progress = told(int(now), int(now), pace=shared if own_work else pace, busy=1 / pace if own_work else 0.0)
        watch.hear(f"n{rank}", rank, progress, now)
    return [sentence for kind, sentence, _ in watch.look(now) if kind == "stragglers"]


def test_slow_nodes_are_named_once_the_slowest_first() -> None:
    watch = StepWatch(60.0)
    paces = {"a": (10.0, 6.0), "b": (2.0, 5.0), "c": (10.0, 10.0), "d": (10.0, 10.0)}
    for now in range(2 + int(SLOW_FOR)):
        for number, (node, pace) in enumerate(paces.items()):
            progress = Progress(now + 1, (now, now), pace, (0.1, 0.1), (0.0, 0.0))
            watch.hear(node, 2 * number, progress, float(now))
        watch.look(float(now))
    assert watch.stragglers == [1, 2, 3] and watch.slow_nodes() == ["b", "a"]
    watch.begin()
    assert watch.slow_nodes() == []


def test_a_slow_rank_is_named_once_and_taken_back_once() -> None:
    watch = StepWatch(60.0)
    said = [line for second in range(1, 30) for line in beat(watch, float(second), slow=5.0)]
    assert said == ["rank 3 on node n3 is slow: 50% of the median pace"]
    assert watch.stragglers == [3]
    assert beat(watch, 30.0, slow=8.5) == [], "at the edge it stays what it was"
    assert beat(watch, 31.0, slow=10.0) == ["no rank is slow any more"]
    assert watch.stragglers == []


def test_a_moment_of_slowness_is_not_news() -> None:
    watch = StepWatch(60.0)
    for second in range(1, 40):
        slow = 5.0 if second % SLOW_FOR else 10.0
        assert beat(watch, float(second), slow) == []


def test_ranks_in_lockstep_are_told_apart_by_their_own_work() -> None:
    watch = StepWatch(60.0)
    said = [line for second in range(1, 30) for line in beat(watch, float(second), slow=5.0, own_work=True)]
    assert said == ["rank 3 on node n3 is slow: 50% of the median pace"]


def test_status_is_the_lowest_rank_that_reports() -> None:
    watch = StepWatch(60.0)
    assert watch.status() is None
    watch.hear("a", 0, told(1, -1, 8), 0.0)
    watch.hear("b", 2, told(1, 9, 9), 0.0)
    status = watch.status()
    assert status is not None
    assert (status["step"], status["steps_per_second"], status["metrics"], status["time"]) == (8, 10, {"loss": 0.5}, 99)
    assert [(row["rank"], row["node"]) for row in status["ranks"]] == [(1, "a"), (2, "b"), (3, "b")]


def test_words_and_numbers() -> None:
    assert median([]) == 0 and median([0, 3.0]) == 3.0 and median([1.0, 2.0]) == 1.5
    assert names([4]) == "rank 4" and names([1, 2]) == "ranks 1, 2"
    assert names(list(range(100))) == "100 ranks (the first is 0)"


# -- what the machines make of it --------------------------------------------------------------------------------------


def here(number: int, heard: int, *steps: int, name: str = "0", state: str = m.RUNNING, **fields: Any) -> Report:
    progress = told(heard, *steps) if steps else None
    fields = {"state": state, "epoch": 1, "round": 1, "progress": progress, **fields}
    return Report(name, f"i-{name}", number, 1, f"host-{name}", Header(1, "c1"), **fields)


class Round:
    """A coordinator whose round runs on nodes 0 and 1, which are heard of every second."""

    def __init__(self, restarts: int = 1) -> None:
        config = Config(min_nodes=2, max_nodes=2, wanted=2, restarts=restarts, silence=5.0, stall_after=20.0)
        self.machine = Coordinator(config, 0.0, "c1")
        self.now, self.number = 0.0, 0
        self.orders: dict[str, Order] = {}
        self.events: list[Event] = []
        for name in ("0", "1"):
            self.say(name, state=m.PREPARED, port=4242)
        assert self.machine.phase == "running"

    def say(self, name: str, heard: int = 0, *steps: int, **fields: Any) -> None:
        self.number += 1
        self.machine.step(Reported(here(self.number, heard, *steps, name=name, **fields)), self.now)
        effects = self.machine.settle(self.now)
        self.orders.update({effect.node: effect.order for effect in effects if isinstance(effect, Tell)})
        self.events += [effect for effect in effects if isinstance(effect, Event)]

    def silence(self, seconds: int, heard: int, **fields: Any) -> None:
        """Both nodes live on; their workers stand at steps 8 and 7."""
        for _ in range(seconds):
            self.now += 1.0
            self.say("0", heard, 8, beat=True, **fields)
            self.say("1", heard, 7, beat=True)


def test_a_stall_is_told_to_all_members_and_charged_once_when_one_answers_for_it() -> None:
    story = Round()
    story.silence(20, heard=1)
    assert story.orders["0"].stall is None
    story.silence(1, heard=1)
    stall = story.orders["1"].stall
    assert stall is not None and stall.rank == 1 and story.orders["0"].stall == stall
    assert story.machine.phase == "running", "nothing is charged before the node has written the stacks down"
    failure = m.Failure("1", 1, 0, 124, message=stall.sentence, hung=True)
    story.say("1", 1, 7, state=m.FAILED, failure=failure)
    assert (story.machine.phase, story.machine.budget.spent, story.machine.round) == ("gathering", 1, 2)
    assert story.machine.reason.startswith("rank 1 on node 1 hangs: no step for 20 s: rank 1 stopped after step 7")
    assert [event.kind for event in story.events].count("stall") == 1


def test_the_machines_deadline_is_the_stall() -> None:
    story = Round()
    story.silence(1, heard=1)
    assert story.machine.steps.deadline() == 21.0
    story.machine.step(Late(3.0), story.now)
    assert story.machine.steps.deadline() == 24.0


def test_after_the_first_end_nobody_is_blamed_for_making_no_steps() -> None:
    story = Round()
    story.silence(1, heard=1)
    story.silence(40, heard=1, ended=True)
    assert story.machine.steps.stall is None and story.machine.phase == "running"


def test_steps_of_another_round_do_not_count() -> None:
    story = Round()
    story.say("0", 1, 8, round=9)
    assert story.machine.status()["progress"] is None
    story.say("0", 1, 8)
    assert story.machine.status()["progress"]["step"] == 8


# -- a node's side -----------------------------------------------------------------------------------------------------


def a_member() -> mb.Member:
    member = mb.Member("0", "i1", 1, "host", now=0.0)
    member.step(mb.Connected(), 0.0)
    member.step(mb.Received(Order(Header(1, "c1", 1), m.PREPARE, 1)), 0.0)
    member.step(mb.Received(Order(Header(1, "c1", 2), m.RUN, 1, place=m.Place(0, 1, 0, 1, "host", 4242))), 0.0)
    return member


def test_the_first_progress_is_reported_at_once_and_the_rest_with_heartbeats() -> None:
    member = a_member()
    [sent] = member.step(mb.Progressed(1, told(1, 8)), 0.1)
    assert isinstance(sent, mb.Send) and sent.report.progress == told(1, 8)
    assert member.step(mb.Progressed(1, told(2, 9)), 0.2) == []
    [beat] = member.step(mb.Tick(), 2.0)[-1:]
    assert isinstance(beat, mb.Send) and beat.report.progress == told(2, 9)
    assert member.step(mb.Progressed(7, told(3, 10)), 2.1) == [] and member.progress == told(2, 9)


def test_a_stall_is_acted_on_once() -> None:
    member = a_member()
    stalled = Order(Header(1, "c1", 3), m.RUN, 1, place=member.place, stall=m.Stall(0, "no step"))
    assert member.step(mb.Received(stalled), 1.0) == [mb.Dump(1, m.Stall(0, "no step"))]
    assert member.step(mb.Received(stalled), 1.1) == []
    other = Order(Header(2, "c2", 1), m.RUN, 1, place=member.place, stall=m.Stall(0, "still no step"))
    assert mb.Dump(1, m.Stall(0, "still no step")) in member.step(mb.Received(other), 1.2)


def test_a_stall_of_an_older_round_is_ignored() -> None:
    member = a_member()
    late = Order(Header(1, "c1", 3), m.RUN, 9, place=member.place, stall=m.Stall(0, "no step"))
    assert not [effect for effect in member.step(mb.Received(late), 1.0) if isinstance(effect, mb.Dump)]
