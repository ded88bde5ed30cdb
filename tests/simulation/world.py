"""Virtual time and a network that can be as bad as asked: delays, loss, reordering, silent cuts.

Nothing here knows what the messages mean. Everything is decided by one seeded generator, so a seed is a whole history.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from random import Random


class World:
    """A clock that jumps from one thing to the next, and the state of the network."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = Random(seed)
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.cuts: set[tuple[str, str]] = set()  # (node, coordinator) pairs that hear nothing of each other
        self.isolated: set[str] = set()  # nodes that hear nobody, their peers included
        self.delay = (0.001, 0.001)
        self.loss = 0.0

    def at(self, delay: float, action: Callable[[], None]) -> None:
        """Does something later."""
        self.at_time(self.now + delay, action)

    def at_time(self, moment: float, action: Callable[[], None]) -> None:
        """Does something at exactly this moment, or now if it has passed."""
        heapq.heappush(self._queue, (max(moment, self.now), next(self._numbers), action))

    def run_until(self, end: float) -> None:
        """Lets time pass."""
        queue = self._queue
        while queue and queue[0][0] <= end:
            self.now, _, action = heapq.heappop(queue)
            action()
        self.now = end

    def latency(self) -> float:
        """How long the next message is on its way; a wide range means reordering."""
        low, high = self.delay
        return low if low == high else self.random.uniform(low, high)

    def hears(self, node: str, coordinator: str) -> bool:
        """Can these two talk at all?"""
        return node not in self.isolated and (node, coordinator) not in self.cuts

    def delivers(self) -> bool:
        """Does the next message arrive?"""
        return not self.loss or self.random.random() >= self.loss


class Connection:
    """One connection of a node to one coordinator; each end can be closed before the other notices."""

    def __init__(self, world: World, node: str, coordinator: str) -> None:
        self.world, self.node, self.coordinator = world, node, coordinator
        self.node_end: Callable[[object], None] | None = None  # None: closed
        self.coordinator_end: Callable[[object], None] | None = None

    def to_coordinator(self, message: object) -> None:
        self._send(message, "coordinator_end")

    def to_node(self, message: object) -> None:
        self._send(message, "node_end")

    def close(self, end: str) -> None:
        """Closes one end; the other learns of it if the network lets it."""
        setattr(self, end, None)
        other = "node_end" if end == "coordinator_end" else "coordinator_end"
        self._send(None, other, reliable=True)

    def _send(self, message: object, end: str, reliable: bool = False) -> None:
        if not reliable and not self.world.delivers():
            return

        def arrive() -> None:
            receiver = getattr(self, end)
            if receiver is None or not self.world.hears(self.node, self.coordinator):
                return
            if message is None:
                setattr(self, end, None)
            receiver(message)

        self.world.at(self.world.latency(), arrive)
