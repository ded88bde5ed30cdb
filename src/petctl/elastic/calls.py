"""The calls of elastic.run that have ended in this process, and how a rank that has not made them gets past them.

A script may call elastic.run several times, and calls are counted. A new worker begins at the script's first line, so
at call 1, while the others may be in call 2: they cannot go back, and it cannot train call 1 alone. So every rank keeps
how each call ended: the State as it was when the training function returned, and what that returned. Where the ranks of
a round find themselves in different calls, those that are ahead hand this over by broadcast. The ranks behind then
return from their call at once, run the script's own code up to the next one, and meet the others there.

The newest (epoch, round) decides which rank hands over, as for commits: a rank that finished a call while it was cut
off does not override the others, and has to begin again. So has the whole group where the end of a call was not kept:
with sharded parts, or when the kept States would need more than a quarter of the machine's memory.

When ranks meet is the runner's business; the group they speak over is that of `groups`.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from typing import Any, Dict, List, Optional, Tuple

from petctl.elastic import place
from petctl.elastic.checkpoints.pickles import SafeUnpickler
from petctl.elastic.groups import spread
from petctl.elastic.snapshots.commits import Snapshot
from petctl.elastic.snapshots.parts import Copy
from petctl.elastic.state import State, ledger_of
from petctl.errors import UsageError

RESULT = "(result)"  # among the copies of a State's parts: what the training function returned
LOCAL_RANKS = "LOCAL_WORLD_SIZE"


class BeginAgain(RuntimeError):
    """This rank's process cannot take part any more; a new one can."""


class Calls:
    """The calls of one process, numbered from 1."""

    def __init__(self, room: Optional[int] = None) -> None:
        self.number = 0  # the call that this process is in, or has ended last
        self.skipped = False  # the calls before this one were not made here
        self._trained: Tuple[int, int] = (0, 0)  # epoch and round in which this process was last in step with others
        self._ends: Dict[int, Snapshot] = {}
        self._last: Optional[State] = None  # of the call that has ended last
        self._room = _room() if room is None else room  # bytes for all ends together
        self._used = 0
        self._full = False

    def begin(self) -> int:
        """Counts one more call; the memory that the one before needs from here on is the host's, and one copy."""
        self.number += 1
        last, self._last = self._last, None
        if last is not None:
            ledger = ledger_of(last)
            for witness in ledger.witnesses:
                witness.ended(last)
            ledger.history.forget()
            self._move_to_host(self.number - 1)
        return self.number

    def in_step(self) -> None:
        """Call it when all ranks of the present round have the same State."""
        self._trained = place.epoch_and_round()
        self.skipped = False

    def end(self, state: State, final: Optional[Snapshot], result: Any) -> None:
        """Keeps how the present call ended; without a snapshot it cannot be handed over."""
        self._last = state
        if final is None or any(copy.sharded for copy in final.copies.values()):
            return
        kept = _copy_result(state, result)
        if kept is not None:
            final.copies[RESULT] = kept
        self._ends[self.number] = final

    def is_over(self) -> bool:
        """Whether the present call has ended for the other ranks, and this one knows how."""
        return self.number in self._ends

    def skip(self, state: State) -> Any:
        """Gives the State the values it had when the present call ended; what the training function returned."""
        end = self._ends[self.number]
        copies = {name: copy for name, copy in end.copies.items() if name != RESULT}
        ledger = ledger_of(state)
        ledger.adopt(state, Snapshot(end.mark, end.world, copies, end.base, None, end.generators))
        ledger.history.forget()
        self.skipped = True
        return _load_result(state, end.copies[RESULT]) if RESULT in end.copies else None

    def hand_over(self) -> None:
        """All ranks of the group call this together: those that are behind learn how the calls they missed ended."""
        distributed = sys.modules["torch"].distributed
        ranks = _exchange([*self._trained, self.number])
        newest = max(ranks)
        source = ranks.index(newest)
        if self.number > newest[2]:
            raise BeginAgain(
                f"this rank finished call {newest[2]} of elastic.run, but other ranks went on training in it in "
                f"a newer round ({newest[1]}): this process restarts"
            )
        first = min(number for _, _, number in ranks)
        missing: List[Any] = [None]
        if distributed.get_rank() == source and all(number in self._ends for number in range(first, self.number)):
            missing = [list(range(first, self.number))]
        distributed.broadcast_object_list(missing, source)
        if missing[0] is None:
            raise BeginAgain(
                f"this rank is in call {self.number} of elastic.run, others are in another one, and the State at "
                f"the end of an earlier call was not kept. All ranks restart from their checkpoints"
            )
        for number in missing[0]:
            end = self._ends[number] if distributed.get_rank() == source else None
            end = spread.broadcast(end, end.generators if end is not None else None, source)
            if number >= self.number and number not in self._ends:
                end.whole = True
                self._ends[number] = end
                self._used += _size(end)
        self._trained = max(self._trained, newest[:2])

    def _move_to_host(self, number: int) -> None:
        end = self._ends.get(number)
        if end is None:
            return
        self._used += _size(end)
        if self._used > self._room:
            self._ends.clear()
            if self._full:
                return
            self._full = True
            print(
                "petctl.elastic: the States at the end of all calls of elastic.run need too much memory and are not "
                "kept. If a rank is lost from now on, all ranks restart from their checkpoints",
                file=sys.stderr,
                flush=True,
            )
            return
        for name, copy in end.copies.items():
            if name != RESULT:
                copy.tensors = [tensor.cpu() for tensor in copy.tensors]


def take_end(state: State, same_numbers: bool) -> Optional[Snapshot]:
    """Copies the State as the training function left it; None where a part cannot be copied, or has no room."""
    try:
        end = ledger_of(state).take_end(state)
    except (UsageError, MemoryError, sys.modules["torch"].cuda.OutOfMemoryError):
        return None
    if not same_numbers:
        end.generators = None  # each rank draws its own
    return end


def _exchange(numbers: List[int]) -> List[Tuple[int, int, int]]:
    torch = sys.modules["torch"]
    own = torch.tensor(numbers)
    everybody = [torch.empty_like(own) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(everybody, own)
    return [tuple(one.tolist()) for one in everybody]


def _size(end: Snapshot) -> int:
    copies = end.copies.values()
    tensors = [tensor for copy in copies for tensor in copy.tensors]
    return sum(len(copy.skeleton) for copy in copies) + int(sum(one.numel() * one.element_size() for one in tensors))


def _room() -> int:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return memory // 4 // max(1, int(os.environ.get(LOCAL_RANKS) or 1))


# -- what the training function returned -------------------------------------------------------------------------------


def _copy_result(state: State, result: Any) -> Optional[Copy]:
    """Plain values, tensors, the State and its parts, in any container; None for all else."""
    file, tensors = io.BytesIO(), []  # type: ignore[var-annotated]
    try:
        _ResultPickler(file, state, tensors).dump(result)
        copy = Copy(file.getvalue(), [tensor.detach().clone() for tensor in tensors])
        _load_result(state, copy)
    except (pickle.PickleError, TypeError, AttributeError, RecursionError):
        return None
    return copy


def _load_result(state: State, copy: Copy) -> Any:
    return _ResultUnpickler(io.BytesIO(copy.skeleton), state, copy.tensors).load()


class _ResultPickler(pickle.Pickler):
    """Parts of the State are named, not copied: the rank that reads it has its own."""

    def __init__(self, file: io.BytesIO, state: State, tensors: List[Any]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._state, self._tensors = state, tensors
        torch = sys.modules.get("torch")
        self._tensor = torch.Tensor if torch is not None else ()

    def persistent_id(self, value: Any) -> Any:
        if value is self._state:
            return ""
        if hasattr(value, "state_dict"):
            return next((name for name, part in vars(self._state).items() if part is value), None)
        if isinstance(value, self._tensor):
            self._tensors.append(value)
            return len(self._tensors) - 1
        return None


class _ResultUnpickler(SafeUnpickler):
    def __init__(self, file: io.BytesIO, state: State, tensors: List[Any]) -> None:
        super().__init__(file)
        self._state, self._tensors = state, tensors

    def persistent_load(self, reference: Any) -> Any:
        if isinstance(reference, str):
            return vars(self._state)[reference] if reference else self._state
        return self._tensors[reference]
