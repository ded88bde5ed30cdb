"""The journal of a controller in a container: events are printed, the newest status is there for all to watch, and the
outcome is in the container's termination message. The next process of the container finds the events (`--state`).

Every status has a version, which no other status of the job has, whichever controller made it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Set, Tuple

from petctl.controller.journals.event_printer import Printer
from petctl.controller.journals.journal import Journal, as_it_was
from petctl.controller.termination_message import read_message, write_message
from petctl.job.events import append_event, new_event, read_events
from petctl.job.status import JobStatus
from petctl.rendezvous.core.messages import Outcome, decode_outcome
from petctl.rendezvous.net.calls import NUMBER, WHOLE, Call

WATCH_LIMIT = 30.0  # seconds that a watcher may wait for an answer
_PICTURES = 1 << 24  # of one coordinator; versions of two of them do not meet below that

log = logging.getLogger(__name__)


class ContainerJournal(Journal):
    """One job's journal, for all who read the container's output or ask its controller."""

    mortal = True

    def __init__(self, status: JobStatus, epoch: int, memory: Path, message: Path, printer: Printer) -> None:
        """`memory`: where events are kept for the next process; `message`: the container's termination message."""
        past = read_events(memory)
        super().__init__(status, past)
        self.version = epoch * _PICTURES
        self._began = float(past[0]["time"]) if past else time.time()
        self._memory, self._message, self._printer = memory, message, printer
        written = read_message(message)
        self.outcome = decode_outcome(written["outcome"]) if written else None
        self._finished = float(written["finished"]) if written else 0.0
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

    def put_outcome(self, outcome: Outcome, facts: Mapping[str, Any]) -> Outcome:
        self._finished = time.time()
        write_message(self._message, outcome, finished=self._finished, **facts)
        return outcome

    @property
    def began(self) -> float:
        """The job's first start, as far as this container knows it; else the container's."""
        return self._began

    def calls(self) -> Dict[str, Call]:
        return {"status": Call(self.now), "watch": Call(self.watch, {"seen": WHOLE, "within": NUMBER})}

    def now(self) -> Dict[str, Any]:
        """The status of this very moment, in its short form."""
        self.write()
        return self._short()

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

    async def close(self, outcome: Outcome, **late: Any) -> None:
        """The last picture, with what became known after the end: printed, and given to all who watch."""
        self.picture = as_it_was
        self.finish(outcome, self._finished, **late)
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
