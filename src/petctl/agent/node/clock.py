"""The clock of a node's machine: it counts the time of a suspend, which the event loop's own clock does not.

A node that slept is without a coordinator for all that time, and its workers must be fenced when it wakes. So a timer
is looked at again every second: its own clock may have stood still.
"""

from __future__ import annotations

import asyncio
import time
from typing import Callable, Optional

LOOK_EVERY = 1.0  # seconds
_SOON = 0.01  # seconds between two rings at the least: a deadline that stays in the past must not spin


def now() -> float:
    """Seconds since the machine was started, those of its sleep included."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Alarm:
    """Rings at a moment of that clock, and at least every second until then."""

    def __init__(self, ring: Callable[[], None], clock: Callable[[], float] = now) -> None:
        self._ring, self._clock = ring, clock
        self._timer: Optional[asyncio.TimerHandle] = None

    def set(self, moment: Optional[float]) -> None:
        """Another moment from now on; None: it does not ring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if moment is not None:
            pause = min(max(moment - self._clock(), _SOON), LOOK_EVERY)
            self._timer = asyncio.get_running_loop().call_later(pause, self._ring)
