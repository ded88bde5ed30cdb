"""How calls of elastic.run that are over are kept, and what a rank that skips one gets. Without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from petctl.elastic import calls
from petctl.elastic.calls import Calls
from petctl.elastic.checkpoints import saved
from petctl.elastic.checkpoints.checkpoints import checkpoint
from petctl.elastic.state import State, ledger_of

DEADLINE = 20.0


class Model:
    """Something that keeps its own state."""

    def __init__(self) -> None:
        self.weight = 0

    def state_dict(self) -> dict[str, int]:
        return {"weight": self.weight}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.weight = state["weight"]


def ended(result: Any, state: State) -> Calls:
    """The calls of a process that has made one."""
    made = Calls()
    made.begin()
    made.end(state, calls.take_end(state, same_numbers=True), result)
    return made


def told(made: Calls) -> Calls:
    """The calls of a process that was told of these."""
    other = Calls()
    other.begin()
    other._ends = dict(made._ends)
    return other


def test_a_skipped_call_gives_the_state_of_its_end_not_of_its_last_commit() -> None:
    state = State(model=Model(), step=0)
    state.model.weight, state.step = 5, 5
    state.commit()
    state.step = 6
    made = ended(None, state)
    state.step = 0  # the script goes on
    fresh = State(model=Model(), step=0)
    newcomer = told(made)
    assert newcomer.is_over()
    assert newcomer.skip(fresh) is None
    assert (fresh.model.weight, fresh.step, fresh.commits) == (5, 6, 1)
    newcomer.begin()
    assert not newcomer.is_over() and newcomer.skipped


@pytest.mark.parametrize(
    "result", [None, 3.5, "text", (1, [2.0], {"three": {3}}), {"accuracy": 0.9, "losses": [3.0, 2.0, 1.0]}]
)
def test_plain_results_are_passed_on(result: Any) -> None:
    state = State(step=1)
    assert told(ended(result, state)).skip(State(step=0)) == result


def test_a_result_that_is_the_state_or_a_part_is_the_newcomers_own() -> None:
    state, fresh = State(model=Model(), step=1), State(model=Model(), step=0)
    found = told(ended((state.model, state, 7), state)).skip(fresh)
    assert found[0] is fresh.model and found[1] is fresh and found[2] == 7


@pytest.mark.parametrize("result", [Model(), [Model()], lambda: 0, open])
def test_any_other_result_is_none(result: Any) -> None:
    assert told(ended(result, State(step=1))).skip(State(step=0)) is None


def test_states_that_need_too_much_memory_are_not_kept_and_that_is_said_once(capsys: Any) -> None:
    made = Calls(room=1000)
    state = State(text="")
    for length in (10, 10, 2000, 10):
        made.begin()
        state.text = "x" * length
        made.end(state, calls.take_end(state, same_numbers=True), None)
        assert made.is_over()
    assert set(made._ends) == {4}
    made.begin()
    assert made._ends == {}
    assert capsys.readouterr().err.count("need too much memory") == 1


def test_each_call_that_uses_a_directory_has_its_own_place_there(tmp_path: Path) -> None:
    first, second = State(step=0), State(step=0)
    kept = [checkpoint(state, every=100, directory=str(tmp_path)) for state in (first, second)]
    for call, state, name in ((1, first, "."), (2, first, "run-2"), (5, second, "run-3")):
        own = kept[state is second]
        assert own is not None
        own.entering(state, call)
        assert own.directory == tmp_path / name
    other = State(step=0)
    elsewhere = checkpoint(other, every=100, directory=str(tmp_path / "elsewhere"))
    assert elsewhere is not None
    elsewhere.entering(other, 6)
    assert elsewhere.directory == tmp_path / "elsewhere"


def test_the_last_commit_of_a_call_is_written_when_the_next_one_begins(tmp_path: Path) -> None:
    state = State(step=0)
    kept = checkpoint(state, every=100, directory=str(tmp_path))
    assert kept is not None
    made = Calls()
    kept.entering(state, made.begin())
    ledger_of(state).keeping = True
    for _ in range(3):
        state.step += 1
        state.commit()
    made.end(state, calls.take_end(state, same_numbers=True), None)
    state.step = 0
    kept.entering(state, made.begin())
    assert kept.flush(DEADLINE)
    [mark] = saved.marks(tmp_path)
    assert saved.read(tmp_path, mark).mark.step == 3
    assert kept.directory == tmp_path / "run-2"
    kept.beginning(state)
    assert state.step == 0, "what another call has written is not this one's"
