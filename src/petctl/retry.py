"""Pauses between attempts, and when to give up. What is worth another attempt, callers know.

Standard library only.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Optional

from petctl.errors import GivenUp


class Backoff:
    """Pauses of one series of attempts: each twice as long as the one before, up to the longest.

    `within`: seconds for all attempts together. `least`: pauses are shortened by chance to this part of them at most,
    so that many callers do not come back at the same moment.
    """

    def __init__(self, first: float, longest: float, within: float = float("inf"), least: float = 1.0) -> None:
        self._first, self._longest, self._within, self._least = first, longest, within, least
        self.restart()

    def restart(self) -> None:
        """Begins again, after progress."""
        self._pause, self._end = self._first, time.monotonic() + self._within

    def pause(self) -> float:
        """Returns the next pause."""
        pause, self._pause = self._pause, min(2 * self._pause, self._longest)
        return pause * random.uniform(self._least, 1.0)

    def wait(self, problem: Exception, given_up: Optional[threading.Event] = None) -> None:
        """Waits before the next attempt; raises the problem where that would begin too late, and GivenUp once that is
        set."""
        if time.monotonic() + self._pause > self._end:
            raise problem from None
        if given_up is None:
            time.sleep(self.pause())
        elif given_up.wait(self.pause()):
            raise GivenUp
