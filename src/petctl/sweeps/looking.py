"""One look at the jobs of a sweep that are under way, as events of its history: states, and numbers.

Polite: a cluster behind a network is asked by a few threads, never by more. Numbers are written down now and then,
the less often the longer a job runs, so that a sweep of days stays a small file; conditions see every look.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from petctl.clusters.base import Cluster, find_cluster
from petctl.clusters.local.cluster import LocalCluster
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
        self._last: dict[str, str] = {}  # those that were seen last; as text, because nan equals nothing

    def handle(self, job_id: str) -> JobHandle:
        """A job, for this thread."""
        return JobHandle(job_id, self._connected())

    def _connected(self) -> Cluster:
        if not hasattr(self._own, "cluster"):
            self._own.cluster = find_cluster(self._cluster, petctl_home())
        cluster: Cluster = self._own.cluster
        return cluster

    def look(self, attempts: Sequence[Attempt]) -> Iterator[tuple[Event, bool]]:
        """What is new about these jobs, and whether it is to be kept."""
        begun = time.monotonic()
        statuses = self._statuses(attempts)
        self.seconds = time.monotonic() - begun
        for attempt, status in zip(attempts, statuses, strict=True):
            if status is None:
                yield {"kind": "ended", "id": attempt.id, "state": REMOVED, "sentence": "somebody removed it"}, True
            elif status.final:
                yield self._ended(attempt, status), True
            elif status.cut_short:
                yield {"kind": "ended", "id": attempt.id, "state": CUT_SHORT, "sentence": status.sentence}, True
            else:
                yield from self._seen(attempt, status)

    def _statuses(self, attempts: Sequence[Attempt]) -> list[Status | None]:
        if len(attempts) < 2 or isinstance(self._connected(), LocalCluster):
            return [self._status(attempt) for attempt in attempts]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(AT_ONCE)
        return list(self._pool.map(self._status, attempts))

    def _status(self, attempt: Attempt) -> Status | None:
        try:
            return self.handle(attempt.id).status()
        except NotFound:
            return None
        except InternalError as error:  # its files are damaged: the others go on
            return damaged_status(attempt.id, self._cluster, str(error))

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
        for known in (self._due, self._search, self._last):
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
