"""A pod coordinator's notice board: its events are printed and remembered, its newest status is there for all to watch.

Every picture has a version, which no other picture of the job has, whichever coordinator made it. It decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, Dict, List, Optional, Set, Tuple

from petctl.controller.status.event_printer import Printer
from petctl.controller.status.journal import Chronicle, as_it_was
from petctl.controller.status.records import append_event, new_event
from petctl.job.status import JobStatus
from petctl.rendezvous.core.messages import Outcome

WATCH_LIMIT = 30.0  # seconds that a watcher may wait for an answer
_PICTURES = 1 << 24  # of one coordinator; versions of two of them do not meet below that

log = logging.getLogger("petctl.coordinator")


class Board(Chronicle):
    """One job's chronicle, for whoever reads the container's output or asks the coordinator."""

    def __init__(
        self, status: JobStatus, events: List[Dict[str, Any]], epoch: int, memory: Path, printer: Printer
    ) -> None:
        super().__init__(status, events)
        self.version = epoch * _PICTURES
        self._memory, self._printer = memory, printer
        self._forgetful = False  # an event could not be remembered
        self._watchers: Set[asyncio.Future[None]] = set()
        self._packed: Tuple[Optional[JobStatus], Dict[str, Any]] = (None, {})  # the newest status, and its short form
        self._over = False

    def put_event(self, event: Dict[str, Any]) -> None:
        self._printer.print(event)
        try:
            append_event(self._memory, event)
            self._forgetful = False
        except OSError as error:
            if not self._forgetful:
                log.error("cannot store an event (%s): a replacement of this process will not know it", error)
            self._forgetful = True

    def put_status(self, last: bool) -> bool:
        self.version += 1
        self._wake()
        return True

    def now(self) -> Dict[str, Any]:
        """The status of this very moment, in its short form."""
        self.write()
        return self._short()

    def totals(self) -> Dict[str, Any]:
        """What has been counted so far: few figures, for a caller that asks about many jobs."""
        history = self.history
        lost = {"nodes_lost": history.nodes_lost, "seconds_lost": history.seconds_lost}
        return {"rounds_run": history.ran, **lost}

    async def watch(self, seen: int, within: float) -> Dict[str, Any]:
        """A picture other than `seen`, as soon as there is one, or the newest after `within` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(max(0.0, within), WATCH_LIMIT)
        while self.version == seen and not self._over and loop.time() < deadline:
            changed: asyncio.Future[None] = loop.create_future()
            self._watchers.add(changed)
            try:
                await asyncio.wait({changed}, timeout=deadline - loop.time())
            finally:
                self._watchers.discard(changed)
        return {"version": self.version, "status": self._short()}

    def _short(self) -> Dict[str, Any]:
        """The status in its short form, made once for all who watch."""
        if self._packed[0] is not self.status:
            self._packed = (self.status, self.status.pack())
        return self._packed[1]

    async def close(self, outcome: Outcome, finished: float, **late: Any) -> None:
        """The last picture, with what became known after the end: printed, and given to all who watch."""
        self.picture = as_it_was
        self.finish(outcome, finished, **late)
        self._over = True
        self._wake()
        self._printer.print(new_event("final", outcome.sentence, status=self.status.pack()), always=True)
        # A watcher wakes in the next turn of the loop; its answer is a task's result, which is sent two turns later.
        for _ in range(4):
            await asyncio.sleep(0)

    def _wake(self) -> None:
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_result(None)
