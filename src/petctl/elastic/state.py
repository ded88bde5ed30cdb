"""The State of a training: what must survive a membership change, under the user's own names.

Every attribute of a State is a part of it, and the user's; what petctl.elastic itself notes about it is in its
Ledger. All ranks hold the same values at a commit: whoever is behind gets them from the one that is ahead.

It knows no sockets and no groups. Who wants to see each commit is the Ledger's `gate` (the runner's: a commit is
where a membership change may take place) or one of its `witnesses` (checkpoints).
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional

from petctl.elastic import parts
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

        def beginning(self, state: State) -> None:
            """The State has no progress yet and is about to train: the time to load an older one."""

        def committed(self, state: State) -> None:
            """A commit has been made."""

        def parking(self, state: State, final: bool) -> None:
            """All ranks stand at the same commit, the groups still work, and the round is about to end as planned."""


@dataclass
class Snapshot:
    """All parts at one commit."""

    commits: int
    world: int  # the number of ranks that the values were made for
    copies: Dict[str, parts.Copy]
    readers: int = field(default=0, compare=False)  # above 0: its buffers must not be written


class Ledger:
    """What petctl.elastic knows about a State: how far it is, and how it was at its last commit."""

    def __init__(self) -> None:
        self.commits = 0
        self.world = 0  # the number of ranks that the values fit; 0: not said yet
        self.keeping = False  # a copy at every commit, for a rollback
        self.gate: Optional[Gate] = None
        self.witnesses: List[Witness] = []
        self._newest: Optional[Snapshot] = None
        self._spare: Optional[Snapshot] = None
        self._lock = threading.Lock()

    def snapshot(self, state: State) -> Snapshot:
        """The State as of its last commit; a copy is made now if that commit has none yet."""
        if self._newest is None or self._newest.commits != self.commits:
            self._take(state)
        assert self._newest is not None
        return self._newest

    @contextlib.contextmanager
    def hold(self, state: State) -> Iterator[Snapshot]:
        """The same, for a reader that takes its time: commits go on meanwhile, into other buffers."""
        snapshot = self.snapshot(state)
        with self._lock:
            snapshot.readers += 1
        try:
            yield snapshot
        finally:
            with self._lock:
                snapshot.readers -= 1

    def rollback(self, state: State) -> None:
        """Gives every part the values of the last commit."""
        if self._newest is not None:
            self.adopt(state, self._newest)

    def adopt(self, state: State, snapshot: Snapshot) -> None:
        """Makes a snapshot the State's own: its values, its progress and what a rollback goes back to."""
        strange = set(snapshot.copies) ^ set(vars(state))
        if self._newest is not snapshot and strange:
            raise UsageError(
                f"elastic.State: this one has the parts {', '.join(sorted(vars(state)))}; the one to continue from, of "
                f"another rank or a checkpoint, {', '.join(sorted(snapshot.copies))}. Make all parts before elastic.run"
            )
        for name, copy in snapshot.copies.items():
            vars(state)[name] = parts.restore(vars(state).get(name), copy)
        for name in strange:  # came after the commit
            del vars(state)[name]
        self.commits, self.world, self._newest = snapshot.commits, snapshot.world, snapshot

    def _take(self, state: State) -> None:
        with self._lock:
            free = [old for old in (self._newest, self._spare) if old is not None and not old.readers]
        old = free[0].copies if free else {}
        copies = {name: parts.take(name, part, old.get(name)) for name, part in vars(state).items()}
        if self._newest is not None and self._newest.readers:
            self._spare = self._newest
        self._newest = Snapshot(self.commits, self.world, copies)


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
            raise UsageError(f"elastic.State: no part can be called {name!r}; that name is the State's own")
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
        if ledger.gate is not None:
            ledger.gate.arriving()
        ledger.commits += 1
        if ledger.keeping:
            ledger.snapshot(self)
        for witness in ledger.witnesses:
            witness.committed(self)
        if ledger.gate is not None:
            ledger.gate.passed(ledger.commits)


def ledger_of(state: State) -> Ledger:
    """For petctl.elastic's own modules; a State's attributes are the user's."""
    return state._ledger
