"""The port on which rank 0 of the next round will listen, should this node have rank 0.

A parked worker opens its store at once and says where; for one that is yet to be started a port is held. Whether this
node gets rank 0 is the coordinator's decision.
"""

from __future__ import annotations

import socket
from typing import Callable, Optional

from petctl.agent.channel import Channel
from petctl.agent.workers import Workers


class MasterPort:
    """on_reserved(round, port) is called for each round that a port was asked for."""

    def __init__(self, workers: Workers, channel: Channel, on_reserved: Callable[[int, int], None]) -> None:
        self._workers, self._channel = workers, channel
        self._on_reserved = on_reserved
        self._held: Optional[socket.socket] = None
        self._binding = 0  # the round for which a parked worker opens its store

    def reserve(self, number: int) -> None:
        """Finds a port for round `number`; asked again while it does, it just goes on."""
        worker = self._workers.parked(0)
        if worker is None:
            self._hold(number)
        elif self._binding != number:
            self._binding = number
            self._channel.bind(worker, number, lambda port: self._bound(number, port))

    def _bound(self, number: int, port: int) -> None:
        if self._binding != number:
            return  # that round was given up meanwhile
        self._binding = 0
        if port:
            self._release()
            self._on_reserved(number, port)
        else:
            self._hold(number)

    def _hold(self, number: int) -> None:
        """Binds without listening: nobody else gets the port, and rank 0, which listens with SO_REUSEADDR, does."""
        self._release()
        self._held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("", 0))
        self._on_reserved(number, self._held.getsockname()[1])

    def _release(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None
