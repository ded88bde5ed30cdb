"""Where each point of a sweep stands: a fold over its events. Pure, so that a driver that comes back knows what its
predecessor knew.

    submit    an attempt is about to be submitted under this id; written first, so that a kill leaves no unknown job
    accepted  it was
    seen      its state, or what it reports, has changed
    stop      it is about to be cancelled, and why
    ended     how it ended; never asked for again, so that results outlast the job
    retry     these points get new attempts
    cancel, resume, reached    of the whole sweep
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from petctl.sweeps.measure import Measurement, Reading, widen

GOOD = ("succeeded", "stopped", "skipped")
AGAIN = ("failed", "lost")  # what a retry may mend
REFUSED, REMOVED = "refused", "removed"
CUT_SHORT = "cut short"  # its submission: it never ran, so the next attempt is no retry


@dataclass
class Attempt:
    """One job of a point."""

    id: str
    point: int
    state: str = "queued"
    accepted: bool = False
    ended: bool = False
    stop: str = ""  # why it is being ended early
    sentence: str = ""
    cause: str = ""  # of its failure, where that has a name
    exit_code: int | None = None
    submitted: float = 0.0
    started: float | None = None
    finished: float | None = None
    readings: list[Reading] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)  # the newest value of each
    low: dict[str, float] = field(default_factory=dict)  # the lowest and the highest that was ever seen, also of values
    high: dict[str, float] = field(default_factory=dict)  # that are in no reading
    _means: Measurement | None = None

    @property
    def shown_state(self) -> str:
        """A job that the sweep itself has cancelled is no failure."""
        return "stopped" if self.stop and self.state == "cancelled" else self.state

    def see(self, metrics: Mapping[str, float]) -> None:
        """Takes in values of one moment."""
        self.metrics.update(metrics)
        self.bound(metrics)

    def bound(self, metrics: Mapping[str, float]) -> None:
        """Widens what was ever seen."""
        widen(self.low, self.high, metrics)

    def means(self, metric: str) -> Measurement:
        """The means of a metric over its steps."""
        if self._means is None or self._means.metric != metric:
            self._means = Measurement(metric)
        self._means.take(self.readings)
        return self._means


@dataclass
class Standing:
    """One point."""

    attempts: list[Attempt] = field(default_factory=list)
    before: int = 0  # attempts that were made before the user asked for new ones

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def open(self) -> Attempt | None:
        """The attempt that is under way."""
        return self.attempts[-1] if self.attempts and not self.attempts[-1].ended else None


class History:
    """All points of one sweep; a point's number is its place, from 1."""

    def __init__(self, points: int) -> None:
        self.points = {number: Standing() for number in range(1, points + 1)}
        self.cancelled = False
        self.reached = ""
        self.attempts: dict[str, Attempt] = {}  # of all points, by id

    def take(self, event: Mapping[str, Any]) -> None:
        """Adds an event; those of a kind that is not known say nothing here."""
        kind = event["kind"]
        if kind == "submit":
            if event["id"] not in self.attempts:
                attempt = self.attempts[event["id"]] = Attempt(event["id"], event["point"], submitted=event["time"])
                self.points[attempt.point].attempts.append(attempt)
        elif kind == "retry":
            self.cancelled, self.reached = False, ""
            for standing in (self.points[number] for number in event["points"]):
                if not standing.open:  # as its driver may have begun anew by itself
                    standing.before = len(standing.attempts)
        elif kind == "resume":
            self.cancelled = False
        elif kind == "cancel":
            self.cancelled = True
        elif kind == "reached":
            self.reached = event["why"]
        elif event.get("id") in self.attempts:
            _take(self.attempts[event["id"]], event)

    def state(self, number: int) -> str:
        """A point's state in a word."""
        standing = self.points[number]
        last = standing.last
        anew = last is None or standing.before == len(standing.attempts) or last.state == CUT_SHORT
        if last is None or (last.ended and anew):
            return "skipped" if self.reached else "cancelled" if self.cancelled else "waiting"
        return last.shown_state

    @property
    def open(self) -> dict[int, Attempt]:
        """Attempts that are under way, by point."""
        found = {number: standing.open for number, standing in self.points.items()}
        return {number: attempt for number, attempt in found.items() if attempt is not None}


def _take(attempt: Attempt, event: Mapping[str, Any]) -> None:
    kind = event["kind"]
    if kind == "accepted":
        attempt.accepted = True
    elif kind == "stop":
        attempt.stop = event["why"]
    elif kind in ("seen", "ended"):
        attempt.accepted = True
        attempt.ended = kind == "ended"
        attempt.state = event["state"]
        attempt.sentence = event.get("sentence", attempt.sentence)
        attempt.cause = event.get("cause", "")
        attempt.exit_code = event.get("exit_code")
        attempt.started = event.get("started", attempt.started)
        attempt.finished = event.get("finished")
        if event.get("all"):  # everything that it printed, in place of what was seen of it on the way
            attempt.readings.clear()
            attempt._means = None
        attempt.bound(event.get("low", {}))
        attempt.bound(event.get("high", {}))
        attempt.see(event.get("metrics", {}))
        for at, metrics in event.get("readings", ()):
            reading = Reading(at, {name: float(value) for name, value in metrics.items()})
            attempt.readings.append(reading)
            attempt.see(reading.metrics)
