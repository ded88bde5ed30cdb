"""`run`: calls the training function, again in every round, with the same process and the same objects.

A round ends by an order of the agent (`control`), or by an error that the loss of a peer explains. Then the State
goes back to its last commit (unless it stands at one), the groups are taken down, and the worker rests until its next
place comes. Everything else that the training function raises is the script's own failure and goes through at once.

Without an agent (plain python, torchrun, any other launcher) there is one round, and `run` makes and takes down its
group.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any, Callable, Dict, Optional, TypeVar

from petctl.elastic import calls, channel, place
from petctl.elastic.control import Control, Parked
from petctl.elastic.groups import spread
from petctl.elastic.groups.groups import Groups, is_about_peers
from petctl.elastic.groups.wrappers import Wrappers
from petctl.elastic.state import State, ledger_of

Result = TypeVar("Result")
_calls = calls.Calls()  # of `run` in this process
HEARTBEAT_LIMIT = "PETCTL_HEARTBEAT_LIMIT"  # seconds after which the agents' side takes a silent node for lost


def run(
    train: Callable[[State], Result],
    state: State,
    *,
    backend: Optional[str] = None,
    on_resize: Optional[Callable[[int, int], None]] = None,
    timeout: Optional[float] = None,
) -> Result:
    """Calls train(state), in as many rounds as it takes, and returns its result.

    `backend` and `timeout` (seconds) are those of torch's process group. `on_resize(before, now)` is called on every
    rank when the State comes from a round with another number of ranks, before train is entered: the place to scale
    the learning rate.

    A script may call `run` several times, one after the other. A rank that joins while the others are in a later call
    does not train in those that are over: there `run` returns at once, with the State and the result of another rank.
    """
    ledger, number = ledger_of(state), _calls.begin()
    for witness in ledger.witnesses:
        witness.entering(state, number)
    if _calls.is_over():
        over: Result = _calls.skip(state)
        return over
    groups = Groups(backend, timeout, ledger.history.freeze, number)
    training = _Training(train, state, groups, on_resize)
    try:
        result: Result = training.run()
        return result
    finally:
        training.close()


class _Training:
    """One call of `run`."""

    def __init__(self, train: Any, state: State, groups: Groups, on_resize: Any) -> None:
        self._train, self._state, self._groups, self._on_resize = train, state, groups, on_resize
        self._ledger = ledger_of(state)
        connected = channel.connect() if _is_alone() else None
        self._control = Control(connected, groups, place.round_number()) if connected is not None else None
        self._wrappers = Wrappers()
        self._failed = True

    def run(self) -> Any:
        self._ledger.behind = _calls.skipped
        if not self._ledger.commits:
            for witness in self._ledger.witnesses:
                witness.beginning(self._state)
        if self._control is None:
            return self._round()
        self._ledger.keeping = True
        self._ledger.snapshot(self._state)
        self._ledger.gate = self._control
        if not place.round_number():  # started early: everything is ready, and there is no place yet
            self._rest(self._control, rollback=False)
        while True:
            try:
                return self._round()
            except Parked as parked:
                rollback = self._end_round(parked)
            except Exception as error:
                rollback = True
                self._groups.leave(broken=True)
                if not (self._control.cut_off or (is_about_peers(error) and self._control.await_park(_patience()))):
                    raise
                traceback.clear_frames(error.__traceback__)
            self._rest(self._control, rollback)

    def _round(self) -> Any:
        control = self._control
        self._ledger.history.thaw()
        if control is not None:
            control.arriving()
            if self._is_over():
                self._failed = False
                return _calls.skip(self._state)
        store = self._groups.join(under_petctl=control is not None)
        if self._groups.joined:
            self._wrappers.watch()
        spread.equalize(self._state, self._groups.joined)
        before, now = self._ledger.world, place.world_size()
        if self._on_resize is not None and before not in (0, now):
            self._on_resize(before, now)
        self._ledger.world = now
        if control is not None:
            _calls.in_step()
            for witness in self._ledger.witnesses:
                witness.entered(self._state)
            control.begin(self._ledger.commits, store, place.rank(), now)
        result = self._train(self._state)
        joined = control is not None and self._groups.joined
        end = calls.take_end(self._state, self._ledger.same_numbers) if joined else None
        self._groups.barrier()
        if end is not None:
            self._ledger.history.settle(end)
        self._ledger.history.check()  # an aborted barrier of NCCL returns as if all had come
        if control is not None:
            _calls.end(self._state, end, result)
        self._failed = False
        return result

    def _is_over(self) -> bool:
        """Waits for all ranks; whether the others have ended this call already. Ranks that are behind learn how."""
        while not self._groups.meet():
            self._groups.join_for_hand_over()
            _calls.hand_over()
            self._groups.barrier()
            self._groups.leave()
            self._groups.dispose()
            if _calls.is_over():
                return True
        return False

    def _end_round(self, parked: Parked) -> bool:
        """Leaves the groups, together with the others where that was agreed on; True: something must be undone."""
        traceback.clear_frames(parked.__traceback__)
        assert self._control is not None
        self._ledger.history.wait()
        broken = parked.rollback or self._control.cut_off
        if not broken:
            try:
                for witness in self._ledger.witnesses:
                    witness.parking(self._state, self._control.final)
                self._groups.barrier()
            except RuntimeError as error:
                if not is_about_peers(error):
                    raise
                broken = True  # a peer was lost here; this rank stands at its commit, if that was made in time
        self._groups.leave(broken)
        return parked.rollback or not self._ledger.is_committed()

    def _rest(self, control: Control, rollback: bool) -> None:
        """Waits for the next place. All is done before the agent hears of it: what it measures is what a loss costs."""
        control.returned()
        self._wrappers.drop()
        self._groups.dispose()
        if rollback:
            self._ledger.rollback(self._state)
        control.rest()
        _take_place(control.next_place())

    def close(self) -> None:
        self._ledger.gate = None
        self._ledger.keeping = False
        if self._control is not None:
            self._control.close()
        self._groups.close(broken=self._failed)
        self._wrappers.close()


def _is_alone() -> bool:
    """May this process leave a round and take another place? Not where torchrun or mpirun looks after it."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" and os.environ.get("PETCTL_LAUNCHER") != "mpi"


def _patience() -> float:
    """How long the agent may take to learn that a peer is lost; a second for the way."""
    return float(os.environ.get(HEARTBEAT_LIMIT) or 5.0) + 1.0


def _take_place(order: Dict[str, Any]) -> None:
    """Environment and output files of the new place."""
    os.environ.update(order["env"])
    for stream, path, number in ((sys.stdout, order.get("out"), 1), (sys.stderr, order.get("err"), 2)):
        if path:
            stream.flush()
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.dup2(descriptor, number)
            os.close(descriptor)
