"""Ports on which workers of the next round will listen: held from before they start, so that they can be told of them.

MasterPort   the one of rank 0's store. A parked worker opens its store at once and says where; for one that is yet to
             be started a port is held. Whether this node gets rank 0 is the coordinator's decision.
TaskPorts    one for each task of a plain job (`roles.py`)
"""

from __future__ import annotations

import random
import socket
from typing import Callable, List, Optional

from petctl.agent.workers.channel import Channel
from petctl.agent.workers.workers import Workers

_LOWEST = 10_000
_FEWEST = 1_000  # ports that are worth choosing from
_TRIES = 50


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
        self._held = _bind(0, shared=True)
        self._on_reserved(number, self._held.getsockname()[1])

    def _release(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None


class TaskPorts:
    """Held until the tasks start, and then let go, so that they may bind them in whatever way they do.

    Between that and their bind nobody is given these ports by chance: they are none of those that the system hands out.
    """

    def __init__(self) -> None:
        self._held: List[socket.socket] = []

    def hold(self, count: int) -> List[int]:
        """So many free ports, in the place of those that were held before."""
        self.release()
        below = first_handed_out()
        while len(self._held) < count:
            self._held.append(_bind_below(below))
        return [held.getsockname()[1] for held in self._held]

    def release(self) -> None:
        """Lets all of them go."""
        for held in self._held:
            held.close()
        self._held.clear()


def first_handed_out() -> int:
    """The lowest port that the system gives to whoever asks for any."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def _bind_below(limit: int) -> socket.socket:
    if limit - _LOWEST >= _FEWEST:
        for _ in range(_TRIES):
            try:
                return _bind(random.randrange(_LOWEST, limit))
            except OSError:
                continue  # somebody has it
    return _bind(0)


def _bind(port: int, shared: bool = False) -> socket.socket:
    """Any port for 0. Unless it is `shared`, nobody can bind it too who asks for it by number."""
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if shared:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", port))
    except OSError:
        held.close()
        raise
    return held
