"""Virtual time and a network that can be as bad as asked: delays, loss, reordering, duplicates, silent cuts, also in
one direction only, or between peers.

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
        self.one_way: set[tuple[str, str]] = set()  # (sender, receiver): what one of them says is never heard
        self.peers: set[frozenset[str]] = set()  # pairs of nodes that reach the coordinator, but not each other
        self.duplicates = 0.0  # chance that a message arrives a second time
        self.unheard: dict[str, float] = {}  # node -> when a cut last swallowed something that was said to it or by it
        self.bad_until = 0.0  # until then the network was anything but good
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

    def passes(self, sender: str, receiver: str) -> bool:
        """Does what one says get to the other?"""
        return (sender, receiver) not in self.one_way

    def connects(self, node: str, coordinator: str) -> bool:
        """Can a connection be made? That takes both directions."""
        return self.hears(node, coordinator) and self.passes(node, coordinator) and self.passes(coordinator, node)

    def good(self, since: float) -> bool:
        """Has every message arrived soon that was not cut off, for so many seconds?"""
        quick = self.delay[1] <= 0.01 and not self.loss
        if not quick:
            self.bad_until = self.now
        return quick and self.now >= self.bad_until + since

    def delivers(self) -> bool:
        """Does the next message arrive?"""
        return not self.loss or self.random.random() >= self.loss


class Inbox:
    """What comes to a process: in its order also where the process stands still for a while, and then for longer."""

    def __init__(self, world: World, handle: Callable[[object], None]) -> None:
        self.world, self._handle = world, handle
        self.still_until = 0.0
        self._waiting: list[object] = []

    def stand_still(self, seconds: float) -> float:
        """Nothing is handled for so long; answers by how much longer that is than without it."""
        before = max(self.still_until, self.world.now)
        self.still_until = max(before, self.world.now + seconds)
        return self.still_until - before

    def put(self, event: object) -> None:
        """Handles it now, or behind all that came before."""
        if not self._waiting and self.world.now >= self.still_until:
            return self._handle(event)
        return self._keep(len(self._waiting), event)

    def put_first(self, event: object) -> None:
        """Handles it before all that waits."""
        self._keep(0, event)

    def _keep(self, place: int, event: object) -> None:
        self._waiting.insert(place, event)
        if len(self._waiting) == 1:
            self.world.at_time(self.still_until, self._go_on)

    def _go_on(self) -> None:
        if self.world.now < self.still_until:
            return self.world.at_time(self.still_until, self._go_on)
        events, self._waiting = self._waiting, []
        for event in events:
            self._handle(event)
        return None


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

        said_by, heard_by = (self.node, self.coordinator) if end == "coordinator_end" else (self.coordinator, self.node)

        def arrive() -> None:
            receiver = getattr(self, end)
            if receiver is None:
                return
            if not self.world.hears(self.node, self.coordinator) or not self.world.passes(said_by, heard_by):
                self.world.unheard[self.node] = self.world.now
                return
            if message is None:
                setattr(self, end, None)
            receiver(message)

        self.world.at(self.world.latency(), arrive)
        if message is not None and self.world.duplicates and self.world.random.random() < self.world.duplicates:
            self.world.at(self.world.latency(), arrive)
