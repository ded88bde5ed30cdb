"""The copies that a State's commits made: which of them is whole, and what a rollback goes back to.

On a GPU a copy is only queued when the call returns. The host runs ahead of the device, and when a peer is lost the
queue is full of steps that wait for it: once their collective is aborted they run to their end on garbage, the copies
among them. So each commit carries the events that its copies end with, and it counts only if these were done before the
collectives were aborted (`freeze`).

There are always two sets of buffers. A commit is copied into those of the last but one, after the last is known to be
whole: whatever happens while it is made, one whole commit is left. So the host is at most one commit ahead of the
device.

It knows no ranks and no groups. The device's events are handed in: anything with `query` and `synchronize`.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from petctl.elastic.snapshots import parts
from petctl.elastic.snapshots.randomness import Generators


class Mark(NamedTuple):
    """Which commit: the higher one is the newer one, however many steps a worker that was cut off has made."""

    epoch: int
    round: int
    step: int

    def __str__(self) -> str:
        return f"epoch-{self.epoch}-round-{self.round}-step-{self.step}"


class CutOff(RuntimeError):
    """The collectives that these values come from were aborted: nothing that came out of them counts."""

    def __init__(self) -> None:
        super().__init__("the round ended while the State was being transferred")


@dataclass
class Snapshot:
    """All parts at one commit."""

    mark: Mark
    world: int  # the number of ranks that the values were made for
    copies: Dict[str, parts.Copy]
    base: int = 0  # the epoch that this job's epochs count from: the last of the job whose checkpoint it went on from
    gradients: Optional[parts.Copy] = None  # those that no optimizer step has used
    generators: Optional[Generators] = None  # this rank's random numbers
    events: List[Any] = field(default_factory=list, compare=False)  # done when the copies are
    whole: Optional[bool] = field(default=None, compare=False)  # None: the copies are under way
    readers: int = field(default=0, compare=False)  # above 0: its buffers must not be written


class Commits:
    """The last two snapshots. The thread that trains makes them; any thread may freeze, hold or wait for one."""

    def __init__(self) -> None:
        self.newest: Optional[Snapshot] = None
        self._before: Optional[Snapshot] = None  # whole, or never used as a commit
        self._frozen = False
        self._lock = threading.Lock()

    # -- the thread that trains ----------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Waits until the newest snapshot is whole, or was cut off."""
        if self.newest is not None:
            self.settle(self.newest)

    def retire(self) -> Optional[Snapshot]:
        """The snapshot whose buffers the next one may use; waits until the newest one is whole, or raises CutOff."""
        if self.newest is not None and not self.settle(self.newest):
            raise CutOff
        with self._lock:
            retired, self._before = self._before, None
            return None if retired is None or retired.readers else retired

    def add(self, snapshot: Snapshot) -> None:
        """Makes it the newest; one that was made after the cut never counts."""
        with self._lock:
            snapshot.whole = False if self._frozen else (None if snapshot.events else True)
            if self.newest is None or self.newest.whole:
                self._before = self.newest
            self.newest = snapshot

    def last_whole(self) -> Optional[Snapshot]:
        """Drops a newest snapshot that is not whole; the one that is left."""
        if self.newest is not None and not self.settle(self.newest):
            self.newest, self._before = self._before, None
        return self.newest

    def check(self) -> None:
        """Raises CutOff where what the device has just computed may be garbage."""
        if self._frozen:
            raise CutOff

    def thaw(self) -> None:
        """A new round begins: what is committed from now on counts again."""
        with self._lock:
            self._frozen = False

    def forget(self) -> None:
        """Lets go of all copies: a call of elastic.run is over, and the next one begins with copies of its own."""
        with self._lock:
            self.newest = self._before = None

    # -- any thread ----------------------------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Call it before collectives are aborted: a snapshot that is not done by now never will be. Does not wait."""
        with self._lock:
            self._frozen = True
            if self.newest is not None and self.newest.whole is None:
                self.newest.whole = all(_is_done(event) for event in self.newest.events)

    def settle(self, snapshot: Snapshot) -> bool:
        """Waits until the copies are made; False: they were cut off."""
        if snapshot.whole is None:
            for event in snapshot.events:
                event.synchronize()
            with self._lock:
                if snapshot.whole is None:
                    snapshot.whole = not self._frozen
        return snapshot.whole

    @contextlib.contextmanager
    def hold(self, snapshot: Snapshot) -> Iterator[Snapshot]:
        """For a reader that takes its time: commits go on meanwhile, into other buffers."""
        with self._lock:
            snapshot.readers += 1
        try:
            yield snapshot
        finally:
            with self._lock:
                snapshot.readers -= 1


def _is_done(event: Any) -> bool:
    try:
        return bool(event.query())
    except RuntimeError:  # the device itself has failed
        return False
