"""A coordinator's events on its stdout, one JSON object per line, for a reader who may be slow.

The coordinator never waits for its reader: what does not fit is counted, and an event of its own says how many.
"""

from __future__ import annotations

import json
from typing import Any, Dict

from petctl.agent.logs.async_writer import Outlet
from petctl.job.events import new_event
from petctl.text import counted

BEHIND_LIMIT = 4 << 20  # bytes that were not taken yet


class Printer:
    """Prints events. `torn`: a process before this one may have left half a line."""

    def __init__(self, fd: int = 1, limit: int = BEHIND_LIMIT, torn: bool = False) -> None:
        self._outlet = Outlet(fd, limit, _missed, "petctl-events")
        self._outlet.start()
        if torn:
            self._outlet.offer(b"\n", 0)

    def print(self, event: Dict[str, Any], always: bool = False) -> None:
        """One event; `always`: also where it does not fit."""
        self._outlet.offer(_line(event), 1, always)

    def finish(self, patience: float) -> None:
        """Nothing more comes; what is left is delivered, if its reader takes it within so many seconds."""
        self._outlet.end()
        self._outlet.wait(patience)


def _line(event: Dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def _missed(count: int) -> bytes:
    return _line(new_event("dropped", f"{counted(count, 'event')} not printed: the reader is slow", count=count))
