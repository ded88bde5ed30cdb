"""How long one who follows a job goes on without its cluster: an upgrade of that takes minutes, a job takes days."""

from __future__ import annotations

import time

from petctl.errors import PetctlError
from petctl.retry import Backoff

AWAY = 6  # `code` of errors that say: nobody answers there now
MOST = 300.0  # seconds
FIRST, LONGEST = 0.5, 5.0  # pauses between two attempts


class Patience:
    """One follower's. Whoever asks only once needs none: there the first failure is the answer."""

    def __init__(self, most: float | None = None) -> None:
        self._most = most
        self._ends: float | None = None
        self._backoff = Backoff(FIRST, LONGEST)

    def restored(self) -> None:
        """The cluster answers."""
        self._ends = None
        self._backoff.restart()

    def wait_and_retry(self, failure: PetctlError, deadline: float = float("inf")) -> None:
        """A moment later there may be an answer; raises the failure when that went on for too long."""
        now = time.monotonic()
        if self._ends is None:
            self._ends = now + (self._most or MOST)
        left = min(self._ends, deadline) - now
        if left <= 0:
            raise failure
        time.sleep(min(self._backoff.pause(), left))
