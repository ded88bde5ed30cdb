"""Workers that are started before their node has a place in a round: they import, build their model, park and wait.

Only for jobs whose workers are known to park (the coordinator says so), and only on nodes that would otherwise stand
by. The others train on meanwhile; once these workers are parked, taking the node in costs a moment. It is an offer: a
worker that ends, or does not park in time, is forgotten, and the node gets its workers as any other.

Until it has a place such a worker lives in round 0, and writes to files of its own.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from typing import Callable, List, Optional

from petctl.agent.workers.workers import Launch, Workers
from petctl.rendezvous.core.messages import Place

_PATIENCE = 120.0  # seconds for everything that a script does before it trains


def pretended_place(procs: int) -> Place:
    """Not the first node's: what a script does on rank 0 only must not be done here."""
    return Place(rank=1, nodes=2, first_rank=procs, world_size=2 * procs, master_addr="127.0.0.1", master_port=0)


class EarlyStart:
    """on_change is called when workers have begun, and when none of them is waited for any more."""

    def __init__(self, workers: Workers, on_change: Callable[[], None]) -> None:
        self._workers, self._on_change = workers, on_change
        self._loop = asyncio.get_running_loop()
        self._timer: Optional[asyncio.TimerHandle] = None
        workers.on_early = on_change

    @property
    def pending(self) -> bool:
        """Is any of them still on its way?"""
        return bool(self._workers.early)

    def begin(self, planned: List[Launch], log_dir: str, node: str) -> None:
        """Starts them, if any can be."""
        files = [os.path.join(log_dir, f"early-{node}-{launch.local_rank}") for launch in planned]
        launches = [
            dataclasses.replace(launch, out=f"{name}.out", err=f"{name}.err") for launch, name in zip(planned, files)
        ]
        try:
            self._workers.start_early(launches)
            self._timer = self._loop.call_later(_PATIENCE, self._give_up)
        except OSError:
            pass  # a worker that cannot be started is told about when it has a place
        self._on_change()

    def _give_up(self) -> None:
        self._workers.drop_early()
        self._on_change()
