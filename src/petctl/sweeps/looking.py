"""One look at the jobs of a sweep that are under way, as events of its history: states, and numbers.

Polite: a cluster is asked one question for all jobs. Where it answers with summaries, a job itself is asked when it has
ended, and for its numbers now and then, the less often the longer it runs; by a few threads, never by more. Numbers are
written down as seldom, so that a sweep of days stays a small file; conditions see all that are read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from petctl.clusters.base import Cluster, Listed, find_cluster
from petctl.clusters.patience import AWAY
from petctl.errors import InternalError, NotFound, PetctlError, StoreError
from petctl.home import petctl_home
from petctl.jobs.api import JobHandle
from petctl.jobs.status import Status, damaged_status
from petctl.sweeps.history import CUT_SHORT, REMOVED, Attempt
from petctl.sweeps.measure import Downsampled, Reading, parse_pattern, printed, reported
from petctl.sweeps.record import Limits

AT_ONCE = 8  # statuses that are asked for, where that is a request over the network
PAUSE, SHARE = 1.0, 0.02  # between two readings of a job: a second, or this share of the time that it runs
TAIL = 200  # lines of a running job that are searched
MOST_READINGS = 1000  # of a job's whole output
MANY = 500  # points; of more than that, fewer numbers of each are kept

_AT_WORK = ("starting", "running", "recovering")

Event = dict[str, Any]


class JobPoller:
    """Sees the jobs of one cluster."""

    def __init__(self, cluster: str, limits: Limits, metric: str, points: int) -> None:
        self._cluster, self._metric = cluster, metric
        crowd = max(1.0, points / MANY)
        self._share, self._most_readings = SHARE * crowd, int(MOST_READINGS / crowd)
        self._pattern = parse_pattern(limits.regex) if limits.regex else None
        self._own = threading.local()  # a cluster's connection is one thread's
        self._pool: ThreadPoolExecutor | None = None
        self.seconds = 0.0  # that the last look took
        self._due: dict[str, float] = {}  # when a job's numbers are to be written down again
        self._search: dict[str, float] = {}  # ... and when what it prints is to be searched
        self._ask: dict[str, float] = {}  # ... and when a job is to be asked of which a cluster gives summaries
        self._begun: dict[str, float] = {}  # when such a job was first seen at work
        self._last: dict[str, str] = {}  # those that were seen last; as text, because nan equals nothing

    def handle(self, job_id: str) -> JobHandle:
        """A job, for this thread."""
        return JobHandle(job_id, self._connected())

    def _connected(self) -> Cluster:
        if not hasattr(self._own, "cluster"):
            self._own.cluster = find_cluster(self._cluster, petctl_home())
        cluster: Cluster = self._own.cluster
        return cluster

    def look(self, attempts: Sequence[Attempt], act: bool = False) -> Iterator[tuple[Event, bool]]:
        """What is new about these jobs, and whether it is to be kept. `act`: what no process does for them is done."""
        begun = time.monotonic()
        statuses = self._statuses(attempts, act)
        self.seconds = time.monotonic() - begun
        for attempt, status in zip(attempts, statuses, strict=True):
            if status is None:
                yield {"kind": "ended", "id": attempt.id, "state": REMOVED, "sentence": "it was removed"}, True
            elif status.final:
                yield self._ended(attempt, status), True
            elif status.cut_short:
                yield {"kind": "ended", "id": attempt.id, "state": CUT_SHORT, "sentence": status.sentence}, True
            else:
                yield from self._seen(attempt, status)

    def _statuses(self, attempts: Sequence[Attempt], act: bool) -> list[Status | None]:
        if not attempts:
            return []
        ids = {attempt.id for attempt in attempts}
        found = {listed.id: self._read(listed) for listed in self._connected().statuses(ids.__contains__)}
        for job_id in ids if act else ():
            if (status := found.get(job_id)) is not None and status.unattended:
                found[job_id] = self._attended(job_id)
        deeper = [job_id for job_id in ids if (status := found.get(job_id)) and self._is_asked(status)]
        if len(deeper) < 2:
            found.update((job_id, self._status(job_id)) for job_id in deeper)
        else:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(AT_ONCE)
            found.update(zip(deeper, self._pool.map(self._status, deeper), strict=True))
        return [found.get(attempt.id) for attempt in attempts]

    def _attended(self, job_id: str) -> Status | None:
        """The status of a job that no process goes on with, once what is due was done."""
        with suppress(NotFound, InternalError):  # the status tells
            self._connected().attend(job_id)
        return self._status(job_id)

    def _is_asked(self, status: Status) -> bool:
        """Whether the job itself must be asked, because its summary does not tell what is due."""
        now = time.monotonic()
        if not status.summary or not (status.final or status.state in _AT_WORK):
            return False
        if not status.final and now < self._ask.get(status.id, 0.0):
            return False
        begun = self._begun.setdefault(status.id, now)
        self._ask[status.id] = now + max(PAUSE, SHARE * (now - begun))
        return True

    def _read(self, listed: Listed) -> Status | None:
        if listed.error is not None:
            return damaged_status(listed.id, self._cluster, str(listed.error))
        return listed.status

    def _status(self, job_id: str) -> Status | None:
        try:
            return self.handle(job_id).status()
        except NotFound:
            return None
        except InternalError as error:  # its files are damaged: the others go on
            return damaged_status(job_id, self._cluster, str(error))

    def _seen(self, attempt: Attempt, status: Status) -> Iterator[tuple[Event, bool]]:
        now = time.monotonic()
        due = now >= self._due.get(attempt.id, 0.0)
        reading = self._running(attempt, status)
        text = str(dict(reading.metrics)) if reading else ""
        fresh = bool(text) and text != self._last.get(attempt.id, "")
        changed = status.state != attempt.state
        if not changed and not fresh:
            return
        event = _facts("seen", attempt, status)
        if reading and fresh:
            self._last[attempt.id] = text
            if due:
                self._due[attempt.id] = now + _pause(status, self._share)
                event["readings"] = _plain([reading])
            else:
                event["metrics"] = dict(reading.metrics)
        yield event, changed or (fresh and due)

    def _running(self, attempt: Attempt, status: Status) -> Reading | None:
        if self._pattern is None:
            return reported(status)
        now = time.monotonic()
        if status.started is None or now < self._search.get(attempt.id, 0.0):
            return None
        self._search[attempt.id] = now + _pause(status, SHARE)
        found = self._printed(attempt, TAIL).readings[-1:]
        return found[0]._replace(at=_place(found[0], attempt)) if found else None

    def _ended(self, attempt: Attempt, status: Status) -> Event:
        event = _facts("ended", attempt, status)
        if self._pattern is None:
            found = reported(status)
            if found is not None and found not in attempt.readings[-1:]:
                event["readings"] = _plain([found])
            event |= {"low": attempt.low, "high": attempt.high} if attempt.low else {}
        else:
            said = self._printed(attempt, None)
            if said.readings:
                event |= {"all": True, "readings": _plain(said.readings), "low": said.low, "high": said.high}
        for known in (self._due, self._search, self._last, self._ask, self._begun):
            known.pop(attempt.id, None)
        return event

    def _printed(self, attempt: Attempt, tail: int | None) -> Downsampled:
        assert self._pattern is not None
        said = Downsampled(self._most_readings)
        try:
            lines = (line.text.decode(errors="replace") for line in self.handle(attempt.id).logs(rank=0, tail=tail))
            for reading in printed(lines, self._pattern, self._metric):
                said.take(reading)
        except PetctlError as error:
            if error.code == AWAY and not isinstance(error, StoreError):
                raise  # the cluster will be back, and an end is looked at only once
            return Downsampled(0)  # its logs are gone, or not there yet, or where nobody here gets at them
        return said


def _pause(status: Status, share: float) -> float:
    """Until a job's numbers are asked for again."""
    return max(PAUSE, share * (time.time() - (status.started or time.time())))


def _place(reading: Reading, attempt: Attempt) -> float:
    """Of the last lines only, nobody can tell which value it is: the next one."""
    return reading.metrics.get("step", float(len(attempt.readings) + 1))


def _facts(kind: str, attempt: Attempt, status: Status) -> Event:
    facts = {"kind": kind, "id": attempt.id, "state": status.state, "started": status.started}
    if kind == "ended":
        facts |= {"sentence": status.sentence, "exit_code": status.exit_code, "finished": status.finished}
        facts |= {"cause": status.error.cause} if status.error and status.error.cause else {}
    return facts


def _plain(readings: Iterable[Reading]) -> list[tuple[float, dict[str, float]]]:
    return [(reading.at, dict(reading.metrics)) for reading in readings]
