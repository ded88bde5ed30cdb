"""The State of a training: what must survive a membership change, under the user's own names.

Every attribute of a State is a part of it, and the user's; what petctl.elastic itself notes about it is in its
Ledger. All ranks hold the same values at a commit: whoever is behind gets them from the one that is ahead.

The copies that commits make are in `commits.py`. It knows no sockets and no groups. Who wants to see each commit is the
Ledger's `gate` (the runner's: a commit is where a membership change may take place) or one of its `witnesses`
(checkpoints).
"""

from __future__ import annotations

from typing import Any, List, Optional

from petctl.elastic import place
from petctl.elastic.snapshots import gradients, parts, randomness
from petctl.elastic.snapshots.commits import Commits, Mark, Snapshot
from petctl.elastic.snapshots.gradients import UsedGradients
from petctl.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Gate(Protocol):
        """Stands at every commit; either call may end the round by raising Parked."""

        def arriving(self) -> None: ...
        def passed(self, commits: int) -> None: ...

    class Witness(Protocol):
        """Sees what happens to a State, in the thread that trains."""

        def entering(self, state: State, call: int) -> None:
            """A call of elastic.run begins with this State; it is this process's call number `call`."""

        def entered(self, state: State) -> None:
            """A round begins, and all its ranks have the same State."""

        def ended(self, state: State) -> None:
            """The next call begins: the last commit of the one that has ended is still there, and soon is not."""

        def beginning(self, state: State) -> None:
            """The State has no progress yet and is about to train: the time to load an older one."""

        def saved(self, state: State) -> Optional[Mark]:
            """A commit on disk that is newer than the State, if there is one."""

        def load_saved(self, state: State, mark: Mark) -> None:
            """Gives the State that commit, or does not offer it again."""

        def committed(self, state: State) -> None:
            """A commit has been made."""

        def parking(self, state: State, final: bool) -> None:
            """All ranks stand at the same commit, the groups still work, and the round is about to end as planned."""


class Ledger:
    """What petctl.elastic knows about a State: how far it is, and how it was at its last commits."""

    def __init__(self) -> None:
        self.mark = Mark(0, 0, 0)  # of the last commit
        self.world = 0  # the number of ranks that the values fit; 0: not said yet
        self.base = 0  # the epoch that this job's epochs count from
        self.keeping = False  # a copy at every commit, for a rollback
        self.gate: Optional[Gate] = None
        self.witnesses: List[Witness] = []
        self.history = Commits()
        self.same_numbers = True  # all ranks draw the same random numbers, as far as is known
        self.behind = False  # this rank has skipped calls: whatever State the others have is newer than its own
        self._used = UsedGradients()

    @property
    def commits(self) -> int:
        return self.mark.step

    def commit(self, state: State) -> None:
        """Counts one more commit, and copies it where a rollback may need it. An error leaves the last one whole."""
        epoch, number = place.epoch_and_round()
        mark = Mark(self.base + epoch, number, self.mark.step + 1)
        if self.keeping:
            self._take(state, mark)
        self.mark = mark

    def snapshot(self, state: State) -> Snapshot:
        """The State as of its last commit; a copy is made now if that commit has none yet."""
        newest = self.history.newest
        if newest is None or newest.mark != self.mark:
            newest = self._take(state, self.mark)
        return newest

    def is_committed(self) -> bool:
        """Whether the newest commit is whole; waits until that is known."""
        newest = self.history.newest
        return newest is None or self.history.settle(newest)

    def rollback(self, state: State) -> None:
        """Gives every part the values of the last commit that is whole, and this rank its own gradients of then."""
        snapshot = self.history.last_whole()
        if snapshot is not None:
            parts.wait_for_devices(snapshot.copies.values())  # what was cut off may still be running
            self.adopt(state, snapshot)

    def adopt(self, state: State, snapshot: Snapshot) -> None:
        """Makes a snapshot the State's own: its values, its progress and what a rollback goes back to."""
        own = snapshot is self.history.newest
        strange = set(snapshot.copies) ^ set(vars(state))
        if not own and strange:
            raise UsageError(
                f"elastic.State: this one has the parts {', '.join(sorted(vars(state)))}; the one to continue from, of "
                f"another rank or a checkpoint, {', '.join(sorted(snapshot.copies))}. Create all parts before "
                f"elastic.run"
            )
        for name, copy in snapshot.copies.items():
            vars(state)[name] = parts.restore(vars(state).get(name), copy)
        for name in strange:  # came after the commit
            del vars(state)[name]
        gradients.restore(vars(state).values(), snapshot.gradients)
        if snapshot.generators is not None:
            randomness.restore(snapshot.generators)
        self.mark, self.world, self.base = snapshot.mark, snapshot.world, snapshot.base
        if not own:
            self.history.add(snapshot)
            self.behind = False

    def take_end(self, state: State) -> Snapshot:
        """A copy of the State as it is now, in buffers of its own; the last commit stays what it is."""
        return self._copy(state, self.mark, self.history.retire())

    def _take(self, state: State, mark: Mark) -> Snapshot:
        snapshot = self._copy(state, mark, self.history.retire())
        self.history.add(snapshot)
        return snapshot

    def _copy(self, state: State, mark: Mark, old: Optional[Snapshot]) -> Snapshot:
        buffers = old.copies if old is not None else {}
        copies = {name: parts.take(name, part, buffers.get(name)) for name, part in vars(state).items()}
        unused = self._used.take(vars(state).values(), old.gradients if old is not None else None)
        snapshot = Snapshot(mark, self.world, copies, self.base, unused, randomness.capture())
        snapshot.events = parts.record_events(copies.values())
        return snapshot


class State:
    """Named parts: models, optimisers, schedulers, samplers, plain values.

    state = State(model=model, optimizer=optimizer, sampler=sampler, step=0); then state.model, state.step += 1, ...
    A DistributedDataParallel wrapper is no part: the training function wraps state.model anew whenever it is entered.
    """

    __slots__ = ("__dict__", "_ledger")
    _ledger: Ledger

    def __init__(self, **named: Any) -> None:
        object.__setattr__(self, "_ledger", Ledger())
        for name, part in named.items():
            setattr(self, name, part)

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(State, name):
            raise UsageError(f"elastic.State: a part cannot be called {name!r}; the State uses that name")
        self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this elastic.State has no part {name!r}; it has {', '.join(vars(self)) or 'none'}")

    @property
    def commits(self) -> int:
        """How many commits it has behind it."""
        return self._ledger.commits

    def commit(self) -> None:
        """A step is done: what comes after may be undone, this not. Also the place where planned changes happen."""
        ledger = self._ledger
        ledger.history.wait()
        if ledger.gate is not None:
            ledger.gate.arriving()
        ledger.commit(self)
        for witness in ledger.witnesses:
            witness.committed(self)
        if ledger.gate is not None:
            ledger.gate.passed(ledger.commits)


def ledger_of(state: State) -> Ledger:
    """For petctl.elastic's own modules; a State's attributes are the user's."""
    return state._ledger
