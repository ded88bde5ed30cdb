"""What a failure costs, when it is given back, and when it is the job's end."""

from __future__ import annotations

import dataclasses

import pytest

from petctl.rendezvous.core import messages as m
from petctl.rendezvous.core.budget import FALLS, Budget, Falls
from petctl.rendezvous.core.messages import Failure

MEMBERS = [("0", "i-0"), ("1", "i-1")]
SILENCE = 5.0
FAILURE = Failure("0", 0, 0, 3)


def charged(restarts: int = 2) -> Budget:
    budget = Budget(restarts, SILENCE)
    assert budget.charge(FAILURE, MEMBERS, now=10.0)
    return budget


def test_no_more_than_restarts_are_charged() -> None:
    budget = charged(restarts=1)
    assert not budget.charge(FAILURE, MEMBERS, now=11.0)
    assert (budget.spent, budget.sentence()) == (1, "1 of 1 restarts used")


@pytest.mark.parametrize(
    ("lost", "now", "given_back"),
    [
        (("1", "i-1"), 10.0 + SILENCE, True),
        (("1", "i-1"), 10.1 + SILENCE, False),  # too late to explain it
        (("1", "i-2"), 11.0, False),  # started anew: not the one that was a member
        (("2", "i-2"), 11.0, False),
    ],
)
def test_a_charge_is_given_back_for_a_member_lost_in_time(lost: tuple[str, str], now: float, given_back: bool) -> None:
    budget = charged()
    assert budget.refund(lost, now) is given_back
    assert budget.spent == (0 if given_back else 1)


def test_a_charge_is_given_back_once() -> None:
    budget = charged()
    assert budget.refund(MEMBERS[0], 11.0)
    assert not budget.refund(MEMBERS[1], 11.0)
    assert budget.spent == 0


def test_only_the_newest_charge_is_given_back() -> None:
    budget = charged()
    assert budget.charge(FAILURE, [("2", "i-2")], now=11.0)
    assert not budget.refund(MEMBERS[0], 12.0)
    assert budget.spent == 2


def test_the_first_of_the_last_failures_is_the_verdict() -> None:
    budget = Budget(0, SILENCE)
    first, second = Failure("0", 0, 0, 3), Failure("1", 1, 0, 4)
    assert budget.confirm_failure(first)
    assert not budget.confirm_failure(second), "the members have been asked already"
    assert budget.outcome([1, 0]) is None, "one has not answered"
    outcome = budget.outcome([1, 1])
    assert outcome is not None
    assert (outcome.state, outcome.code, outcome.failure) == (m.ENDED_FAILED, 3, first)


def test_a_pardoned_verdict_is_asked_about_anew() -> None:
    budget = Budget(0, SILENCE)
    budget.confirm_failure(Failure("0", 0, 0, 3))
    budget.clear_failure()
    assert budget.outcome([1]) is None
    assert budget.confirm_failure(Failure("1", 1, 0, 4))
    assert budget.outcome([1]) is None, "that was the answer to the question before"
    assert budget.outcome([2]) is not None


@pytest.mark.parametrize(
    ("failure", "retried"),
    [
        (Failure("0", 0, 0, 3), True),
        (Failure("0", 0, 0, 4), False),
        (Failure("0", 0, 0, 137, "SIGKILL"), True),
        (Failure("0", 0, 0, 128), False),
        (Failure("0", 0, 0, 124, hung=True), True),  # it did not exit
    ],
)
def test_only_some_exit_codes_are_restarted_from(failure: Failure, retried: bool) -> None:
    budget = Budget(2, SILENCE, [[3, 3], [129, 192]])  # as it is read from a record
    assert budget.charge(failure, MEMBERS, 10.0) is retried
    assert budget.spent == (1 if retried else 0)


LASTING = Failure("1", 1, 0, 127, message="no mpirun", cause="mpirun-missing", lasting=True)


@pytest.mark.parametrize(
    ("codes", "causes", "retried"),
    [
        ((), (), False),
        (((127, 127),), (), True),  # whoever names it wants it
        ((), ("mpirun-missing",), True),
        (((3, 3),), ("network",), False),
    ],
)
def test_what_would_come_again_is_restarted_from_only_where_it_is_named(
    codes: tuple[tuple[int, int], ...], causes: tuple[str, ...], retried: bool
) -> None:
    budget = Budget(100, SILENCE, codes, causes)
    assert budget.charge(LASTING, MEMBERS, 10.0) is retried
    assert budget.hopeless(LASTING) is not retried
    assert not budget.hopeless(FAILURE)


def test_a_verdict_says_that_a_restart_would_change_nothing() -> None:
    budget = Budget(100, SILENCE)
    budget.confirm_failure(LASTING)
    outcome = budget.outcome([1])
    assert outcome is not None and (outcome.state, outcome.code, outcome.failure) == (m.ENDED_FAILED, 127, LASTING)
    assert outcome.sentence == "node 1 could not start its workers: no mpirun (a restart would not help)"


@pytest.mark.parametrize("cause", ["missing-module", "syntax", "arguments", "relative-import", "no-stdin"])
def test_a_program_that_cannot_get_better_ends_the_job_at_once(cause: str) -> None:
    failure = Failure("0", 0, 0, 1, message="what it said", cause=cause)
    budget = Budget(3, SILENCE)
    assert not budget.charge(failure, MEMBERS, 10.0) and not budget.hopeless(failure)
    budget.confirm_failure(failure)
    outcome = budget.outcome([1])
    assert outcome is not None and outcome.sentence.endswith("what it said (a restart would not help)")
    assert Budget(3, SILENCE, (), (cause,)).charge(failure, MEMBERS, 10.0)
    assert Budget(3, SILENCE).charge(dataclasses.replace(failure, signal="SIGKILL"), MEMBERS, 10.0)


def test_a_verdict_says_that_its_code_is_not_retried() -> None:
    budget = Budget(2, SILENCE, ((3, 3),))
    budget.confirm_failure(Failure("0", 0, 0, 9, message="no"))
    outcome = budget.outcome([1])
    assert outcome is not None
    assert (outcome.state, outcome.code) == (m.ENDED_FAILED, 9)
    assert outcome.sentence == "rank 0 on node 0 exited with code 9: no (exit code 9 is not in retry_on)"


@pytest.mark.parametrize(
    ("failure", "retried"),
    [
        (Failure("0", 0, 0, 1, cause="network"), True),
        (Failure("0", 0, 0, 1, cause="missing-module"), False),
        (Failure("0", 0, 0, 1), False),  # nobody knows why
        (Failure("0", 0, 0, 3, cause="missing-module"), True),  # the code is enough
        (Failure("0", 0, 0, 124, hung=True, cause="hang"), True),
    ],
)
def test_causes_are_restarted_from_beside_exit_codes(failure: Failure, retried: bool) -> None:
    budget = Budget(2, SILENCE, [[3, 3]], ["network", "ecc"])  # as it is read from a record
    assert budget.charge(failure, MEMBERS, 10.0) is retried
    assert Budget(2, SILENCE, (), ("network",)).retries(failure) is (retried and failure.code != 3)


def test_a_verdict_names_the_cause_that_is_not_retried() -> None:
    budget = Budget(2, SILENCE, (), ("network",))
    budget.confirm_failure(Failure("0", 0, 0, 1, message="no", cause="no-space"))
    outcome = budget.outcome([1])
    assert outcome is not None
    assert outcome.sentence.endswith("code 1: no (exit code 1 by no-space is not in retry_on)")


def test_the_last_failure_of_a_retried_kind_says_nothing_of_codes() -> None:
    budget = Budget(0, SILENCE, ((3, 3),))
    assert not budget.charge(FAILURE, MEMBERS, 10.0)
    budget.confirm_failure(FAILURE)
    outcome = budget.outcome([1])
    assert outcome is not None and outcome.sentence == FAILURE.sentence()


def test_a_rank_that_takes_node_after_node_down_is_charged() -> None:
    falls = Falls()
    for loss in range(1, FALLS):
        assert falls.note({str(loss % 2): 0}, progress=False) == ("", False)
    assert falls.note({"1": 0}, progress=False) == ("1", False)
    assert falls.note({"0": 0}, progress=False) == ("", False), "counted from the charge on"


def test_a_node_that_goes_down_at_any_rank_is_charged() -> None:
    falls = Falls()
    for loss in range(1, FALLS):
        assert falls.note({"3": loss}, progress=False) == ("", False)
        assert falls.note({}, progress=False) == ("", False), "others that leave meanwhile do not hide it"
    assert falls.note({"3": 0}, progress=False) == ("3", True)


def test_a_pool_whose_machines_are_taken_away_one_by_one_is_not_charged() -> None:
    falls = Falls()
    for number in range(100):
        assert falls.note({str(number): number % 25}, progress=False) == ("", False)


def test_losses_with_progress_between_them_are_not_charged() -> None:
    falls = Falls()
    for loss in range(1, 40):
        assert falls.note({str(loss % 2): 0}, progress=loss % FALLS == 0) == ("", False)
