"""A State's parts, its commits, and what a rollback brings back; without torch."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from petctl.elastic import State
from petctl.elastic.control import Parked
from petctl.elastic.snapshots import parts
from petctl.elastic.state import ledger_of
from petctl.errors import UsageError


class Counter:
    """A part as libraries write them."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.count = state["count"]


def kept(**named: Any) -> State:
    state = State(**named)
    ledger_of(state).keeping = True
    ledger_of(state).snapshot(state)
    return state


def test_parts_are_attributes() -> None:
    state = State(step=0, names=["a"])
    state.step += 2
    state.loss = 0.5
    assert (state.step, state.names, state.loss) == (2, ["a"], 0.5)
    with pytest.raises(AttributeError, match="no part 'epoch'; it has step, names, loss"):
        _ = state.epoch


@pytest.mark.parametrize("name", ["commit", "commits", "_ledger"])
def test_the_states_own_names_are_no_parts(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        State(**{name: 1})


def test_a_rollback_brings_back_the_last_commit() -> None:
    counter = Counter()
    state = kept(counter=counter, step=0, history=[1])
    counter.count, state.step = 1, 1
    state.history.append(2)
    state.commit()
    counter.count, state.step, state.extra = 2, 2, "made after the commit"
    state.history.append(3)
    ledger_of(state).rollback(state)
    assert (state.counter.count, state.step, state.history, state.commits) == (1, 1, [1, 2], 1)
    assert state.counter is counter, "the same object, so what else refers to it stays right"
    assert not hasattr(state, "extra")


def test_a_rollback_before_the_first_commit_goes_to_the_beginning() -> None:
    state = kept(step=3)
    state.step = 4
    ledger_of(state).rollback(state)
    assert (state.step, state.commits) == (3, 0)


def test_a_rollback_can_be_repeated() -> None:
    state = kept(history=[1])
    for _ in range(3):
        state.history.append(9)
        ledger_of(state).rollback(state)
        assert state.history == [1]


def test_a_part_that_cannot_be_copied_is_named() -> None:
    with pytest.raises(UsageError, match=r"part 'lock'.*keep it out of the State"):
        kept(lock=threading.Lock())


def test_a_state_with_other_parts_is_refused() -> None:
    ahead = kept(step=1, model=2)
    ahead.commit()
    behind = State(step=0)
    with pytest.raises(UsageError, match=r"has the parts step; .* model, step"):
        ledger_of(behind).adopt(behind, ledger_of(ahead).snapshot(ahead))
    assert behind.step == 0


def test_what_is_held_is_not_changed_by_later_commits() -> None:
    state = kept(history=[0])
    ledger = ledger_of(state)
    with ledger.history.hold(ledger.snapshot(state)) as snapshot:
        for number in range(1, 4):
            state.history.append(number)
            state.commit()
        assert parts.restore(None, snapshot.copies["history"]) == [0]
    assert ledger.snapshot(state).mark.step == 3


def test_without_a_launcher_that_needs_it_nothing_is_copied() -> None:
    state = State(lock=threading.Lock())
    state.commit()
    assert state.commits == 1


def test_the_gate_stands_before_and_after_each_commit() -> None:
    seen: list[tuple[str, int]] = []

    class Gate:
        def arriving(self) -> None:
            seen.append(("arriving", state.commits))
            if state.step == 2:
                raise Parked(rollback=True)

        def passed(self, commits: int) -> None:
            seen.append(("passed", commits))

    state = kept(step=1)
    ledger_of(state).gate = Gate()
    state.commit()
    state.step = 2
    with pytest.raises(Parked):
        state.commit()
    assert seen == [("arriving", 0), ("passed", 1), ("arriving", 1)]
    assert state.commits == 1, "what was refused is no commit"
