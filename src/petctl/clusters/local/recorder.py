"""The supervisor's pen: appends events at once, and keeps status.json a picture of the moment.

The picture is replaced atomically, not more often than readers can look, and the last one is always written: it has
room of its own. Trouble with the disk costs the record, never the job. It must not decide anything, and it never waits
for a reader.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Callable, Dict, Optional

from petctl.clusters.local.jobdir import JobDirectory, read_json, write_json
from petctl.clusters.local.records import History, append_event, close_status, first_status, new_event, read_events
from petctl.errors import is_no_room

log = logging.getLogger("petctl.supervisor")

INTERVAL = 0.05  # seconds between two pictures
PROGRESS_INTERVAL = 1.0  # ... and between two that differ only in the progress of the workers
EFFORT = 20  # with very many nodes a picture takes longer: spend at most a twentieth of the time on them


class Recorder:
    """The supervisor's pen. `picture` is asked for the newest status fields whenever one is to be written."""

    def __init__(self, directory: JobDirectory, record: Dict[str, Any]) -> None:
        self.directory = directory
        self.history = History()
        for event in read_events(directory.events):
            self.history.take(event)
        self.status = read_json(directory.status) or first_status(record)
        self.picture: Callable[[], Dict[str, Any]] = dict
        self._timer: Optional[asyncio.TimerHandle] = None
        self._next = 0.0
        self._written: Optional[Dict[str, Any]] = None
        self._last: Optional[Dict[str, Any]] = None
        self._full = False  # the disk was, when last written to
        self._progress_at = 0.0

    def event(self, kind: str, sentence: str, **data: Any) -> None:
        """Writes an event down, at once, and then the status that follows from it."""
        event = new_event(kind, sentence, **data)
        self.history.take(event)
        try:
            append_event(self.directory.events, event)
        except OSError as error:
            self._complain(f"cannot write down an event ({error}): {sentence}", error)
        self.touch()

    def touch(self) -> None:
        """Something may have changed: a new picture is due, soon."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._next), self._due)

    def _due(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.write()
        now = loop.time()
        self._next = now + max(INTERVAL, EFFORT * (now - began))

    def write(self) -> None:
        """Replaces status.json, if the picture has changed."""
        history = self.history
        status = {**self.status, **self.picture(), "rounds": history.rounds, "started": history.started}
        status["last_failure"] = history.last_failure
        if status["state"] != self.status["state"]:
            status["since"] = time.time()
        self.status = status
        self._save()

    def freeze(self) -> None:
        """Keeps the picture of this moment for the end: when the last node has gone, there is nothing left to see."""
        self.write()
        self._last = self.status

    def finish(self, outcome: Dict[str, Any], finished: float, **late: Any) -> None:
        """The last picture, with what became known after the end; nothing is written after it."""
        if self._timer is not None:
            self._timer.cancel()
        self.status = {**close_status(self._last or self.status, outcome, finished), **late}
        self._save(last=True)

    def _save(self, last: bool = False) -> None:
        if self.status == self._written or (
            not last and self._only_progress() and time.monotonic() < self._progress_at
        ):
            return  # the next heartbeat brings us back
        self._progress_at = time.monotonic() + PROGRESS_INTERVAL
        try:
            write_json(self.directory.status, self.status, reserved=last)
        except OSError as error:
            self._complain(f"cannot write the status down: {error}", error)
            return
        self._full = False
        self._written = {**self.status, "rounds": list(self.status["rounds"])}

    def _only_progress(self) -> bool:
        """Has nothing else changed since the last picture?"""
        return self._written is not None and {**self.status, "progress": 0} == {**self._written, "progress": 0}

    def _complain(self, sentence: str, error: OSError) -> None:
        """Once about a full disk, on which the log is too; any other trouble each time."""
        full = is_no_room(error)
        if full and not self._full:
            log.error("%s; nothing more is written down until there is room, but for the end", sentence)
        elif not full:
            log.error("%s", sentence)
        self._full = full
