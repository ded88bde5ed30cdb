"""Commits whose copies are made later than the call returns, as on a GPU: which of them count."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from petctl.elastic.checkpoints import saved
from petctl.elastic.checkpoints.checkpoints import checkpoint
from petctl.elastic.control import Parked
from petctl.elastic.snapshots import parts
from petctl.elastic.snapshots.commits import CutOff, Mark
from petctl.elastic.state import State, ledger_of

DEADLINE = 20.0


class Event:
    """A device's event that is done when the test says so."""

    def __init__(self, done: bool = True) -> None:
        self._done = threading.Event()
        self.waited_for = threading.Event()
        if done:
            self._done.set()

    def finish(self) -> None:
        self._done.set()

    def query(self) -> bool:
        return self._done.is_set()

    def synchronize(self) -> None:
        self.waited_for.set()
        assert self._done.wait(DEADLINE)


class Device:
    """Where the copies of commits are made: each in time, late, or never."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[Event] = []
        self.slow = False
        monkeypatch.setattr(parts, "record_events", self._record)

    def _record(self, copies: Any) -> list[Event]:
        self.events.append(Event(done=not self.slow))
        return [self.events[-1]]

    def finish_all(self) -> None:
        for event in self.events:
            event.finish()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


def training(**named: Any) -> State:
    state = State(**named)
    ledger_of(state).keeping = True
    ledger_of(state).snapshot(state)
    return state


def step(state: State, number: int) -> None:
    state.step = number
    state.commit()


def test_a_commit_that_is_done_before_the_cut_counts(device: Device) -> None:
    state = training(step=0)
    step(state, 1)
    device.slow = True
    step(state, 2)
    device.finish_all()
    ledger_of(state).history.freeze()
    state.step = 99
    ledger_of(state).rollback(state)
    assert (state.step, state.commits) == (2, 2)


def test_a_commit_that_is_done_only_after_the_cut_never_counts(device: Device) -> None:
    state = training(step=0)
    step(state, 1)
    device.slow = True
    step(state, 2)
    ledger_of(state).history.freeze()
    device.finish_all()  # the aborted collective lets the queue run to its end, on garbage
    ledger_of(state).rollback(state)
    assert (state.step, state.commits) == (1, 1)
    ledger_of(state).history.thaw()
    device.slow = False
    step(state, 2)
    step(state, 3)
    ledger_of(state).rollback(state)
    assert (state.step, state.commits) == (3, 3)


def test_the_copies_of_a_commit_are_not_overwritten_before_the_next_is_whole(device: Device) -> None:
    """The host waits at the second commit: it is at most one ahead of its device."""
    state = training(step=0)
    device.slow = True
    step(state, 1)
    ahead = threading.Thread(target=step, args=(state, 2))
    ahead.start()
    try:
        assert device.events[-1].waited_for.wait(DEADLINE)
        assert state.commits == 1 and ahead.is_alive()
    finally:
        device.finish_all()
        ahead.join(DEADLINE)
        device.finish_all()
    assert state.commits == 2


def test_who_waits_for_the_device_at_a_commit_is_parked_when_it_is_cut_off(device: Device) -> None:
    class Gate:
        cut = False

        def arriving(self) -> None:
            if self.cut:
                raise Parked(rollback=True)

        def passed(self, commits: int) -> None: ...

    state = training(step=0)
    gate = ledger_of(state).gate = Gate()
    step(state, 1)
    device.slow = True
    step(state, 2)
    seen: list[BaseException] = []

    def go_on() -> None:
        try:
            step(state, 3)
        except Parked as parked:
            seen.append(parked)

    ahead = threading.Thread(target=go_on)
    ahead.start()
    try:
        assert device.events[-1].waited_for.wait(DEADLINE)
        gate.cut = True
        ledger_of(state).history.freeze()
    finally:
        device.finish_all()
        ahead.join(DEADLINE)
    assert len(seen) == 1 and isinstance(seen[0], Parked)
    ledger_of(state).rollback(state)
    assert (state.step, state.commits) == (1, 1)


def test_a_commit_made_after_the_cut_never_counts(device: Device) -> None:
    state = training(step=0)
    step(state, 1)
    ledger_of(state).history.freeze()
    step(state, 2)  # nobody was at the gate yet
    with pytest.raises(CutOff):
        step(state, 3)
    ledger_of(state).rollback(state)
    assert (state.step, state.commits) == (1, 1)


def test_only_whole_commits_become_checkpoints(device: Device, tmp_path: Path) -> None:
    state = training(step=0)
    kept = checkpoint(state, every=1, directory=str(tmp_path))
    assert kept is not None
    step(state, 1)
    assert kept.flush(DEADLINE)
    device.slow = True
    step(state, 2)
    assert not kept.flush(0.01), "it waits for the device"
    ledger_of(state).history.freeze()
    device.finish_all()
    assert kept.flush(DEADLINE)
    assert [mark.step for mark in saved.marks(tmp_path)] == [1]


class Part:
    """One whose state can be had only together with all other ranks."""

    def __init__(self) -> None:
        self.value = 0
        self.fails = False

    def state_dict(self) -> dict[str, int]:
        if self.fails:
            raise RuntimeError("a peer is lost")
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.value = state["value"]


def test_a_commit_that_fails_in_the_middle_changes_nothing_of_the_last_one() -> None:
    first, second = Part(), Part()
    state = training(first=first, second=second, step=0)
    for number in range(1, 4):
        first.value = second.value = number
        step(state, number)
    first.value = second.value = 4
    second.fails = True
    with pytest.raises(RuntimeError, match="a peer is lost"):
        step(state, 4)
    assert state.commits == 3
    second.fails = False
    ledger_of(state).rollback(state)
    assert (first.value, second.value, state.step, state.commits) == (3, 3, 3, 3)


def test_a_commit_has_the_epoch_and_round_that_it_was_made_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETCTL_EPOCH", "2")
    monkeypatch.setenv("PETCTL_ROUND", "7")
    state = training(step=0)
    step(state, 1)
    assert ledger_of(state).mark == Mark(2, 7, 1)
    monkeypatch.setenv("PETCTL_ROUND", "8")
    assert ledger_of(state).mark == Mark(2, 7, 1), "a round without a commit makes nothing newer"
    step(state, 2)
    assert ledger_of(state).mark == Mark(2, 8, 2)
