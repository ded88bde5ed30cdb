"""The one way in which integration tests wait for a fact that nobody announces."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable

DEADLINE = 30.0


def until(condition: Callable[[], Any], what: str, seconds: float = DEADLINE) -> Any:
    """The first true answer about processes or files; fails loudly at its deadline."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        threading.Event().wait(0.005)
