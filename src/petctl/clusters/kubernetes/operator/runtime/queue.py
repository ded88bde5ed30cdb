"""Which keys want a look, and when. It knows neither what a key stands for nor what a look does.

    add, add_at  -->  waiting (a moment)  -->  ready (a line)  -->  take: being looked at  -->  done
                                                 ^                          |
                                                 '--- wished meanwhile -----'

A look answers every wish made before it began: a look decides from everything there is, and says itself when the next
is due. Wishes made during a look are kept.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Hashable
from typing import Generic, TypeVar

FIRST, LONGEST = 0.1, 60.0  # seconds that a key which failed waits, at first and at most
_STALE = 64  # wishes that no longer count may lie in the heap before it is made anew

Key = TypeVar("Key", bound=Hashable)
_Wish = tuple[float, int]  # the moment, and a number: no two are equal, so that keys are never compared


class Clock:
    """Time, and waiting for it; tests have one that does not wait."""

    def now(self) -> float:
        """As `time.monotonic()`."""
        return time.monotonic()

    def wait(self, turn: threading.Condition, seconds: float | None) -> None:
        """Until somebody notifies, or so long."""
        turn.wait(seconds)


class Queue(Generic[Key]):
    """Keys that want a look, each at most once at a time; any number of threads add and take."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._turn = threading.Condition()
        self._ready: dict[Key, None] = {}  # in the order of their coming
        self._wishes: dict[Key, _Wish] = {}
        self._heap: list[tuple[_Wish, Key]] = []  # of these, and of some that no longer count
        self._count = 0
        self._looked_at: set[Key] = set()
        self._again: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self.closed = False  # for reading only

    def add(self, key: Key) -> None:
        """Wants a look at once; while it is being looked at: once more afterwards."""
        with self._turn:
            self._add(key)

    def add_at(self, key: Key, moment: float) -> None:
        """Wants a look then (`time.monotonic()`), if nothing makes it have one earlier."""
        with self._turn:
            self._add_at(key, moment)

    def take(self) -> Key | None:
        """The next key, when there is one; None when the queue was closed. Whoever takes it says how it went."""
        with self._turn:
            while not self.closed:
                soon = self._collect_due()
                if self._ready:
                    key = next(iter(self._ready))
                    del self._ready[key]
                    self._wishes.pop(key, None)
                    self._looked_at.add(key)
                    return key
                self._clock.wait(self._turn, soon)
            return None

    def failed(self, key: Key, longest: float = LONGEST) -> None:
        """It is to be looked at again, after a pause that doubles with every failure in a row."""
        with self._turn:
            before = self._failures.get(key, 0)
            self._failures[key] = before + 1
            pause = min(FIRST * 2.0 ** min(before, 30), longest)
            self._add_at(key, self._clock.now() + pause)
            self._done(key)

    def succeeded(self, key: Key) -> None:
        """Its failures are forgotten."""
        with self._turn:
            self._failures.pop(key, None)
            self._done(key)

    def close(self) -> None:
        """Nothing more is given out: whoever waits gets None."""
        with self._turn:
            self.closed = True
            self._turn.notify_all()

    def _add(self, key: Key) -> None:
        if key in self._looked_at:
            self._again.add(key)
        elif key not in self._ready:
            self._ready[key] = None
            self._turn.notify_all()  # not one: who is woken by chance may be busy when the next moment has come

    def _add_at(self, key: Key, moment: float) -> None:
        if key in self._ready or (key in self._wishes and self._wishes[key][0] <= moment):
            return
        self._count += 1
        wish = self._wishes[key] = (moment, self._count)
        heapq.heappush(self._heap, (wish, key))
        if len(self._heap) > 2 * len(self._wishes) + _STALE:
            self._heap = [(wish, key) for key, wish in self._wishes.items()]
            heapq.heapify(self._heap)
        self._turn.notify_all()

    def _done(self, key: Key) -> None:
        self._looked_at.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._add(key)

    def _collect_due(self) -> float | None:
        """Lets in line whose moment has come; the seconds until the next one."""
        while self._heap:
            wish, key = self._heap[0]
            if self._wishes.get(key) == wish:
                left = wish[0] - self._clock.now()
                if left > 0:
                    return left
                del self._wishes[key]
                self._add(key)
            heapq.heappop(self._heap)
        return None
