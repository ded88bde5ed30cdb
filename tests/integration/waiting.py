"""The one way in which integration tests wait for a fact that nobody announces, and how those that run at the same time
keep out of each other's way."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable

DEADLINE = 60.0  # nothing that is waited for takes a tenth of that on a calm machine


def until(condition: Callable[[], Any], what: str, seconds: float = DEADLINE) -> Any:
    """The first true answer about processes or files; fails loudly at its deadline."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        threading.Event().wait(0.005)


def own_part(numbers: range) -> range:
    """Every fourth of these, others than those of the test run's other processes: nobody else tries a port of them."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    return numbers[int(worker[2:] or 0) % 4 :: 4]
