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
from petctl.errors import InternalError, NotFound, PetctlError
from petctl.jobs.api import JobHandle
from petctl.jobs.home import petctl_home
from petctl.jobs.status import Status, damaged_status
from petctl.sweeps.history import CUT_SHORT, REMOVED, Attempt
from petctl.sweeps.measure import Reading, parse_pattern, printed, reported
from petctl.sweeps.record import Limits

AT_ONCE = 8  # statuses that are asked for, where that is a request over the network
PAUSE, SHARE = 1.0, 0.02  # between two readings of a job: a second, or this share of the time that it runs
TAIL = 200  # lines of a running job that are searched
MOST_READINGS = 1000  # of a job's whole output
_TOLD_CUT_SHORT = "submission was cut short"

Event = dict[str, Any]


class Eyes:
    """Sees the jobs of one cluster."""

    def __init__(self, cluster: str, limits: Limits, metric: str) -> None:
        self._cluster, self._metric, self._goal = cluster, metric, limits.goal
        self._pattern = parse_pattern(limits.regex) if limits.regex else None
        self._own = threading.local()  # a cluster's connection is one thread's
        self._pool: ThreadPoolExecutor | None = None
        self.seconds = 0.0  # that the last look took
        self._due: dict[str, float] = {}  # when a job's numbers are to be written down again
        self._last: dict[str, str] = {}  # those that were seen last; as text, because nan equals nothing

    def handle(self, job_id: str) -> JobHandle:
        """A job, for this thread."""
        return JobHandle(job_id, self._connected())

    def is_cut_short(self, status: Status, unknown: bool = False) -> bool:
        """Whether its submitter was killed in the middle, so that it never runs. `unknown`: nobody knows whether
        it was accepted; then one that still sleeps, where jobs are made piece by piece, was never woken."""
        if isinstance(self._connected(), LocalCluster):
            return False  # there, a job is made in one step
        return _TOLD_CUT_SHORT in status.sentence or (unknown and status.state == "queued")

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
            elif self.is_cut_short(status):
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
        reading = self._running(attempt, status, due)
        text = str(dict(reading.metrics)) if reading else ""
        fresh = bool(text) and text != self._last.get(attempt.id, "")
        changed = status.state != attempt.state
        if not changed and not fresh:
            return
        event = _facts("seen", attempt, status)
        if reading and fresh:
            self._last[attempt.id] = text
            if due:
                self._due[attempt.id] = now + _pause(status)
                event["readings"] = _plain([reading])
            else:
                event["metrics"] = dict(reading.metrics)
        yield event, changed or (fresh and due)

    def _running(self, attempt: Attempt, status: Status, due: bool) -> Reading | None:
        if self._pattern is None:
            return reported(status)
        if not due or status.started is None:
            return None
        self._due[attempt.id] = time.monotonic() + _pause(status)
        found = self._printed(attempt, TAIL)[-1:]
        return found[0]._replace(at=_place(found[0], attempt)) if found else None

    def _ended(self, attempt: Attempt, status: Status) -> Event:
        event = _facts("ended", attempt, status)
        if self._pattern is None:
            found = reported(status)
            if found is not None and found not in attempt.readings[-1:]:
                event["readings"] = _plain([found])
            event |= {"low": attempt.low, "high": attempt.high} if attempt.low else {}
        else:
            readings = self._printed(attempt, None)
            if readings:
                event |= {"all": True, "readings": _plain(self._thinned(readings))}
        self._due.pop(attempt.id, None)
        self._last.pop(attempt.id, None)
        return event

    def _printed(self, attempt: Attempt, tail: int | None) -> list[Reading]:
        assert self._pattern is not None
        try:
            lines = self.handle(attempt.id).logs(rank=0, tail=tail)
            return printed((line.text.decode(errors="replace") for line in lines), self._pattern, self._metric)
        except PetctlError:
            return []  # its logs are gone, or not there yet

    def _thinned(self, readings: list[Reading]) -> list[Reading]:
        """Enough of them to draw a line, with the best and the last."""
        if len(readings) <= MOST_READINGS:
            return readings
        sign = 1 if self._goal == "max" else -1
        top = max(readings, key=lambda reading: sign * reading.metrics[self._metric])
        step = len(readings) // MOST_READINGS + 1
        kept = {id(reading) for reading in (*readings[::step], top, readings[-1])}
        return [reading for reading in readings if id(reading) in kept]


def _pause(status: Status) -> float:
    """Until a job's numbers are written down again."""
    return max(PAUSE, SHARE * (time.time() - (status.started or time.time())))


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
