"""What is done for a sweep, from its events alone."""

from __future__ import annotations

from typing import Any

import pytest

from petctl.errors import UsageError
from petctl.sweeps.decide import AHEAD, CANCELLED, Decision, Submission, check_conditions, decide, rules_of
from petctl.sweeps.history import History
from petctl.sweeps.record import Limits

NOW = 1000.0


class Story:
    """A history that is told in short words."""

    def __init__(self, points: int, **limits: Any) -> None:
        self.history, self.rules = History(points), rules_of(Limits(**limits))

    def tell(self, kind: str, point: int = 0, attempt: int = 1, **facts: Any) -> Story:
        named = {"id": f"s-{point}-{attempt}", "point": point} if point else {}
        self.history.take({"kind": kind, "time": 0.0, **named, **facts})
        return self

    def run(self, point: int, attempt: int = 1) -> Story:
        return self.tell("submit", point, attempt).tell("accepted", point, attempt)

    def seen(self, point: int, *values: float, **facts: Any) -> Story:
        readings = [(step, {"loss": value, "step": step}) for step, value in enumerate(values, 1)]
        return self.tell("seen", point, state="running", started=0.0, readings=readings, **facts)

    def end(self, point: int, state: str = "succeeded", attempt: int = 1) -> Story:
        return self.tell("ended", point, attempt, state=state)

    def decide(self) -> Decision:
        return decide(self.history, self.rules, NOW)


def test_points_are_submitted_in_order_up_to_the_limit() -> None:
    story = Story(5, jobs=2)
    assert story.decide().submit == (Submission(1, 1), Submission(2, 1))
    story.run(1).run(2)
    assert story.decide() == Decision()
    story.end(1)
    assert story.decide().submit == (Submission(3, 1),)


def test_without_a_limit_not_all_of_many_are_in_line_at_once() -> None:
    assert len(Story(200).decide().submit) == AHEAD


def test_one_of_which_nobody_knows_whether_it_was_accepted_is_submitted_again() -> None:
    story = Story(2, jobs=1).tell("submit", 1)
    assert story.decide().submit == (Submission(1, 1),)
    assert story.tell("submit", 1).decide().submit == (Submission(1, 1),)
    assert story.tell("accepted", 1).decide().submit == ()


def test_it_is_over_when_all_have_ended() -> None:
    story = Story(2).run(1).run(2).end(1)
    assert not story.decide().over
    assert story.end(2, "cancelled").decide() == Decision(over=True)


def test_a_failed_point_is_tried_again_before_others() -> None:
    story = Story(3, jobs=1, retries=1).run(1).end(1, "failed")
    assert story.decide().submit == (Submission(1, 2),)
    story.run(1, 2).end(1, "lost", attempt=2)
    assert story.decide().submit == (Submission(2, 1),)  # no retries are left


@pytest.mark.parametrize("state", ["cancelled", "refused", "removed", "succeeded"])
def test_what_a_retry_cannot_mend_is_not_tried_again(state: str) -> None:
    assert Story(1, retries=3).run(1).end(1, state).decide().over


def test_a_submission_that_was_cut_short_is_made_again_and_is_no_retry() -> None:
    story = Story(2, jobs=1).run(1).end(1, "cut short")
    assert story.decide().submit == (Submission(1, 2),)
    assert story.run(1, 2).decide().submit == ()
    assert story.end(1, "failed", 2).decide().submit == (Submission(2, 1),)
    story = Story(1, retries=1).run(1).end(1, "failed").run(1, 2).end(1, "cut short", 2)
    assert story.history.state(1) == "waiting"
    assert story.decide().submit == (Submission(1, 3),)
    assert story.run(1, 3).end(1, "failed", 3).decide().over


def test_the_user_can_ask_for_new_attempts() -> None:
    story = Story(2, retries=1).run(1).end(1, "failed").run(1, 2).end(1, "failed", 2).run(2).end(2)
    assert story.decide().over
    assert story.history.state(1) == "failed"
    story.tell("retry", points=[1])
    assert story.history.state(1) == "waiting"
    assert story.decide().submit == (Submission(1, 3),)
    story.run(1, 3).end(1, "failed", 3)
    assert story.decide().submit == (Submission(1, 4),)  # with retries of their own
    assert story.run(1, 4).end(1, "failed", 4).decide().over


def test_a_retry_that_comes_after_a_point_began_anew_by_itself_does_not_double_it() -> None:
    story = Story(1, retries=1).run(1).end(1, "failed").run(1, 2).tell("retry", points=[1])
    assert story.decide() == Decision()
    assert story.end(1, attempt=2).decide().over


def test_a_cancelled_sweep_stops_what_runs_and_submits_nothing() -> None:
    story = Story(4, jobs=3).run(1).run(2).end(1).tell("submit", 3).tell("cancel")
    assert story.decide() == Decision(stop=(("s-2-1", CANCELLED),), drop=("s-3-1",))
    story.end(2, "cancelled").end(3, "cancelled")
    assert story.decide().over
    assert [story.history.state(number) for number in range(1, 5)] == ["succeeded", *["cancelled"] * 3]
    assert story.tell("resume").decide().submit == (Submission(4, 1),)


def test_stop_when() -> None:
    story = Story(2, stop_when=["loss>10", "loss=nan"]).run(1).run(2).seen(1, 5.0).seen(2, 5.0)
    assert story.decide().stop == ()
    story.seen(1, 11.0)
    assert [job for job, _ in story.decide().stop] == ["s-1-1"]
    story.tell("stop", 1, why="loss>10").seen(2, float("nan"))
    assert [job for job, _ in story.decide().stop] == ["s-1-1", "s-2-1"]  # until it has ended
    story.end(1, "cancelled")
    assert story.history.state(1) == "stopped"
    assert [job for job, _ in story.decide().stop] == ["s-2-1"]


def test_a_point_that_was_stopped_is_not_tried_again() -> None:
    story = Story(1, retries=2, stop_when=["loss>1"]).run(1).tell("stop", 1, why="x").end(1, "failed")
    assert story.decide().over


def test_until_ends_the_sweep() -> None:
    story = Story(4, jobs=2, until="loss<0.5").run(1).run(2).seen(1, 3.0, 0.4)
    decision = story.decide()
    assert decision.reached == "point 1 has reached loss<0.5"
    assert {job for job, _ in decision.stop} == {"s-1-1", "s-2-1"}
    assert decision.submit == ()
    story.tell("reached", why=decision.reached)
    assert story.decide().reached == ""
    story.end(1).end(2, "cancelled")
    assert story.decide().over
    assert story.history.state(3) == "skipped"


def test_the_median_rule() -> None:
    limits = {"metric": "loss", "early_stop": "median", "warm_up": "3"}
    story = Story(5, **limits)
    for point in range(1, 5):
        story.run(point)
    story.seen(1, 4.0, 3.0, 2.0, 1.0).seen(2, 5.0, 4.0, 3.0, 2.0).seen(3, 6.0, 5.0, 4.0).seen(4, 9.0, 9.0)
    assert story.decide().stop == ()  # it warms up
    story.tell("seen", 4, state="running", started=0.0, readings=[(3, {"loss": 9.0})])
    ((job, why),) = story.decide().stop
    assert job == "s-4-1"
    assert why == "loss 9 is worse than the median of 3 others, 4"


def test_the_median_of_few_says_nothing_and_better_may_be_more() -> None:
    story = Story(3, metric="loss", early_stop="median").run(1).run(2).run(3)
    story.seen(1, 1.0).seen(2, 1.0).seen(3, 9.0)
    assert story.decide().stop == ()
    best = Story(4, metric="loss", early_stop="median", goal="max")
    for point, value in enumerate([1.0, 1.0, 1.0, 9.0], 1):
        best.run(point).seen(point, value)
    assert best.decide().stop == ()


def test_of_very_many_points_some_are_enough_for_a_median() -> None:
    story = Story(2001, metric="loss", early_stop="median")
    for point in range(1, 2002):
        story.run(point).seen(point, 9.0 if point == 2001 else 1.0)
    ((job, why),) = story.decide().stop
    assert (job, why) == ("s-2001-1", "loss 9 is worse than the median of 400 others, 1")


def test_a_warm_up_in_seconds() -> None:
    for warm_up, stopped in (("999s", 1), ("1001s", 0)):
        story = Story(4, metric="loss", early_stop="median", warm_up=warm_up)
        for point, value in enumerate([1.0, 1.0, 1.0, 9.0], 1):
            story.run(point).seen(point, value)
        assert len(story.decide().stop) == stopped


@pytest.mark.parametrize(
    "limits",
    [
        {"jobs": -1},
        {"early_stop": "median"},
        {"early_stop": "mean", "metric": "x"},
        {"warm_up": "3"},
        {"metric": "x", "early_stop": "median", "warm_up": "soon"},
        {"stop_when": ["loss"]},
        {"stop_when": ["loss>big"]},
        {"until": ">3"},
        {"regex": "loss"},
        {"regex": "("},
        {"regex": r"loss (\S+)", "early_stop": "median"},
    ],
)
def test_limits_that_cannot_be_meant(limits: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        rules_of(Limits(**limits))


def test_conditions_on_numbers_that_nobody_tells_are_refused() -> None:
    step = r"(?P<step>\d+) (\S+)"
    check_conditions(Limits(metric="loss", until="acc>1", stop_when=["norm>9"]))  # whatever it may report
    check_conditions(Limits(regex=step, metric="acc", until="acc>1", stop_when=["step>9"]))
    with pytest.raises(UsageError, match="acc>1: --metric-regex finds metric, and no acc; name the metric with"):
        check_conditions(Limits(regex=r"(\S+)", until="acc>1"))
    with pytest.raises(UsageError, match="finds metric and step, and no loss"):
        check_conditions(Limits(regex=step, stop_when=["loss>1"]))
    with pytest.raises(UsageError, match="no step"):
        check_conditions(Limits(regex=r"(\S+)", stop_when=["step>9"]))
    assert rules_of(Limits(regex=r"(\S+)", until="acc>1")).until  # a sweep that was begun so can still be seen
