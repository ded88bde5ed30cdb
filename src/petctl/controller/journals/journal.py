"""The seam between a job's controller and what is kept of the job: its events, its newest status and its outcome.

    a directory    clusters/local/controller/journal.py: a file each, and the user's wish to end the job
    a container    container.py: stdout, the termination message, and clients that watch

Events are kept at once. A status is made not more often than readers can look, and one that differs only in the
workers' progress less often still. A journal decides nothing about the job, and never waits for a reader.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Mapping, Optional

from petctl.controller.journals.records import History, close_status
from petctl.job.events import new_event
from petctl.job.status import JobStatus
from petctl.rendezvous.core.messages import Outcome
from petctl.rendezvous.net.calls import Call

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle

INTERVAL = 0.05  # seconds between two pictures
PROGRESS_INTERVAL = 1.0  # ... and between two that differ only in the progress of the workers
EFFORT = 20  # with very many nodes a picture takes longer: spend at most a twentieth of the time on them


def as_it_was(status: JobStatus) -> JobStatus:
    """No news."""
    return status


class Journal:
    """`picture` makes the newest status of the last one whenever one is due; `status` is the last that was made."""

    outcome: Optional[Outcome] = None  # that an earlier controller has put on record
    mortal = False  # it is lost with the machine: nodes keep the history, too

    def __init__(self, status: JobStatus, events: Iterable[Dict[str, Any]]) -> None:
        self.history = History()
        for event in events:
            self.history.take(event)
        self.status = status
        self.picture: Callable[[JobStatus], JobStatus] = as_it_was
        self._timer: Optional[TimerHandle] = None
        self._next = 0.0
        self._kept: Optional[JobStatus] = None
        self._last: Optional[JobStatus] = None
        self._progress_at = 0.0
        self._closed = False

    def put_event(self, event: Dict[str, Any]) -> None:
        """Where an event goes."""
        raise NotImplementedError

    def put_status(self, last: bool) -> bool:
        """Where a new picture goes; whether it got there."""
        raise NotImplementedError

    def put_outcome(self, outcome: Outcome, facts: Mapping[str, Any]) -> Outcome:
        """Makes the job's end durable, before anything is told of it; the one that is on record, should it have ended
        before. `facts`: what a record that outlives all others has to tell besides."""
        raise NotImplementedError

    def cancelled(self) -> Optional[bool]:
        """Whether the user wished to end the job while no controller heard it, and (True) to kill it."""
        return None

    @property
    def began(self) -> float:
        """From when the job's time limit counts."""
        return self.history.started or time.time()

    def calls(self) -> Dict[str, Call]:
        """Control calls of this kind of journal."""
        return {}

    def totals(self) -> Dict[str, Any]:
        """What has been counted so far: few figures, for a caller that asks about many jobs."""
        history = self.history
        return {"rounds_run": history.ran, "nodes_lost": history.nodes_lost, "seconds_lost": history.seconds_lost}

    def event(self, kind: str, sentence: str, **data: Any) -> None:
        """Something happens: it is passed on at once, and then the status that follows from it."""
        event = new_event(kind, sentence, **data)
        self.history.take(event)
        self.put_event(event)
        self.touch()

    def touch(self) -> None:
        """Something may have changed: a new picture is due, soon."""
        if self._timer is None and not self._closed:
            from asyncio import get_running_loop  # a command that ends a job has no loop, and need not import one

            loop = get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._next), self._due, loop)

    def _due(self, loop: AbstractEventLoop) -> None:
        self._timer = None
        began = loop.time()
        self.write()
        now = loop.time()
        self._next = now + max(INTERVAL, EFFORT * (now - began))

    def write(self) -> None:
        """Makes a picture, and passes it on if it has changed."""
        self.status = self.history.next_status(self.status, self.picture(self.status))
        self._keep()

    def freeze(self) -> None:
        """Keeps the picture of this moment for the end: when the last node has gone, there is nothing left to see."""
        self.write()
        self._last = self.status

    def finish(self, outcome: Outcome, finished: float, **late: Any) -> None:
        """The last picture, with what became known after the end; none is made after it."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.status = replace(close_status(self._last or self.status, outcome, finished), **late)
        self._keep(last=True)

    def _keep(self, last: bool = False) -> None:
        if self.status == self._kept or (not last and self._only_progress() and time.monotonic() < self._progress_at):
            return  # the next heartbeat brings us back
        self._progress_at = time.monotonic() + PROGRESS_INTERVAL
        if self.put_status(last):
            self._kept = self.status

    def _only_progress(self) -> bool:
        """Has nothing else changed since the last picture?"""
        return self._kept is not None and replace(self.status, progress=None) == replace(self._kept, progress=None)
