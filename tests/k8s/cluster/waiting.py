"""Waiting for a fact that nobody announces, with a deadline."""

from __future__ import annotations

import threading
import time
from typing import Callable, TypeVar

from tests.k8s.cluster.failure import ClusterError

Answer = TypeVar("Answer")


def until(condition: Callable[[], Answer], what: str, seconds: float = 60.0, pause: float = 0.05) -> Answer:
    """The first true answer; `what` is named where none comes in time."""
    end = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= end:
            raise ClusterError(f"not within {seconds:.0f} s: {what}")
        threading.Event().wait(pause)
