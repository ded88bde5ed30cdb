"""The moments by which many nodes must be heard of. Pure: time is handed in.

To put a deadline off, which each heartbeat does, is one assignment: the heap hears of it only when the old moment has
come. So a heartbeat costs the same however many nodes there are, and the first deadline is known without a search.
"""

from __future__ import annotations

import heapq
from typing import Dict, List, Optional, Tuple


class Deadlines:
    """One deadline for each name."""

    def __init__(self) -> None:
        self._due: Dict[str, float] = {}
        self._queued: Dict[str, float] = {}  # where a name stands in the heap: never later than it is due
        self._heap: List[Tuple[float, str]] = []  # with entries of old, which `_queued` does not know any more

    def set(self, name: str, due: float) -> None:
        """Makes this the name's deadline."""
        self._due[name] = due
        if name not in self._queued or due < self._queued[name]:
            self._queued[name] = due
            heapq.heappush(self._heap, (due, name))

    def extend(self, name: str, due: float) -> None:
        """Puts a deadline off; never brings it forward."""
        self.set(name, max(due, self._due.get(name, due)))

    def extend_all(self, seconds: float) -> None:
        """Gives every name so much longer."""
        for name in self._due:
            self._due[name] += seconds

    def drop(self, name: str) -> None:
        """Forgets a name."""
        self._due.pop(name, None)
        self._queued.pop(name, None)

    def first(self) -> Optional[float]:
        """The earliest deadline."""
        while self._heap:
            queued, name = self._heap[0]
            if self._queued.get(name) != queued:
                heapq.heappop(self._heap)
            elif self._due[name] > queued:
                self._queued[name] = self._due[name]
                heapq.heapreplace(self._heap, (self._due[name], name))
            else:
                return queued
        return None

    def passed(self, now: float) -> List[str]:
        """The names whose deadline has passed, the longest overdue first; they are forgotten."""
        names: List[str] = []
        first = self.first()
        while first is not None and first <= now:
            names.append(self._heap[0][1])
            self.drop(names[-1])
            first = self.first()
        return names
