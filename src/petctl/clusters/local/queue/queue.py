"""The line in front of a cluster's slots: a look gives slots to whoever is due, and starts their supervisors.

There is no daemon. Whoever frees slots looks (`leave`), every supervisor does now and then, and so does every command
that changes jobs or waits for them (`upkeep.py`): so a line moves on also when all processes were killed. Commands that
only show a job use `peek`, which changes nothing. A look that finds all as it should be only reads, too.

What to do is decided in `scheduler.py` and written down in `slots.py` first; a supervisor that was called and never
came is found by the next look.
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from functools import lru_cache, partial
from itertools import takewhile
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

from petctl.clusters.local.controller.spawn import start_supervisor
from petctl.clusters.local.finalize import finalize, why_lost
from petctl.clusters.local.job_directory import JobDirectory
from petctl.clusters.local.queue.queue_claims import job_phase
from petctl.clusters.local.queue.queue_claims import slots_of as slots_of
from petctl.clusters.local.queue.scheduler import (
    ALIVE,
    BEGIN_WITHIN,
    MOST_LIVES,
    STARTING,
    Claim,
    Standing,
    decide,
    standings,
)
from petctl.clusters.local.queue.slots import Settled, Slots, beginners
from petctl.errors import PetctlError

RECENT = 0.2  # seconds for which one look is enough: a list of many jobs looks once


def look(home: Path, name: str) -> None:
    """Starts whoever is due on a cluster, and lets go of what nobody needs any more."""
    queue_of(home, name).look()


@lru_cache
def queue_of(home: Path, name: str) -> Queue:
    """The line of a cluster; one for all who ask in this process, so that they share their looks."""
    return Queue(home, name)


class Turn(NamedTuple):
    """How many slots a job has, and whether it is the first of those that wait."""

    granted: int
    first: bool


class View:
    """The line at one moment."""

    def __init__(self, jobs: Path, claims: Sequence[Claim], total: Optional[int]) -> None:
        self.time = time.monotonic()
        self._jobs, self._claims, self._total = jobs, claims, total
        self._standings: Optional[Dict[str, Standing]] = None
        self._stopped: Optional[bool] = None

    def standing(self, job: str) -> Optional[Standing]:
        """Where a job stands; None when it has no claim."""
        if self._standings is None:
            # Without the claims that killed submitters have left: those are nobody's turn.
            real = [claim for claim in self._claims if claim.granted or self._waits(claim)]
            total = self._total
            self._standings = standings(real, lambda claim: claim.slots if total is None else total)
        return self._standings.get(job)

    def with_claim(self, claim: Claim) -> View:
        """The same with one claim more, which the slots' file does not have: behind all others of its priority."""
        claims = sorted([*self._claims, claim], key=lambda one: -one.priority)
        return View(self._jobs, claims, self._total)

    @property
    def stopped(self) -> bool:
        """Whether something is due and no process is left that would see to it."""
        if self._stopped is None:
            fate, total = partial(job_phase, self._jobs), self._total
            alive = any(fate(claim) in (ALIVE, STARTING) for claim in self._claims)
            self._stopped = not alive and self._due(lambda claim: claim.slots if total is None else total)
        return self._stopped

    def _due(self, total: Callable[[Claim], int]) -> bool:
        now, fate = time.time(), partial(job_phase, self._jobs)
        if any(0 <= now - claim.called < BEGIN_WITHIN for claim in self._claims):
            return False  # a supervisor is coming up
        decision = decide(self._claims, fate, total, now, beginners())
        return bool(decision.call or decision.grant or decision.give_up)

    def turn(self, job: str) -> Optional[Turn]:
        """The same in a word, at little cost, for one that asks again and again."""
        own = next((claim for claim in self._claims if claim.job == job), None)
        if own is None:
            return None
        ahead = takewhile(lambda claim: claim.job != job, self._claims)
        return Turn(own.granted, first=not any(not claim.granted and self._waits(claim) for claim in ahead))

    @property
    def waiting(self) -> bool:
        """Whether anybody is in line."""
        return not all(claim.granted for claim in self._claims)

    def _waits(self, claim: Claim) -> bool:
        directory = JobDirectory(self._jobs / claim.job)
        return directory.job.exists() and not directory.outcome.exists()


class Queue:
    """One cluster's line, as one process sees it."""

    def __init__(self, home: Path, name: str) -> None:
        self.home, self.name, self.jobs = home, name, home / "jobs"
        self._fate = partial(job_phase, self.jobs)
        self._view: Optional[View] = None
        self._peeked: Optional[View] = None

    def look(self, slots: Optional[Slots] = None) -> View:
        """Starts whoever is due; what the line is like then."""
        slots = slots or slots_of(self.home, self.name)
        if slots.capacity is None or self._inside():
            claims = slots.claims()
            if self._inside() or not self._due(claims):
                self._view = View(self.jobs, claims, None)
                return self._view
        settled = slots.settle(self._fate)
        self._view = View(self.jobs, settled.claims, settled.total)
        self.start(settled.decision.call, slots)
        self._bury(settled)
        return self._view

    def _due(self, claims: Sequence[Claim]) -> bool:
        return bool(decide(claims, self._fate, lambda claim: claim.slots, time.time(), beginners()))

    def peek(self, job: str) -> View:
        """The line as it is, without changing anything; read again where that was not just done."""
        view = self._peeked
        if view is None or time.monotonic() - view.time > RECENT or view.standing(job) is None:
            slots = slots_of(self.home, self.name)
            total = slots.capacity.expected() if slots.capacity is not None else None
            view = self._peeked = View(self.jobs, slots.peek(), total)
        return view

    @property
    def crowded(self) -> bool:
        """Whether anybody waited at the last look."""
        return self._view is not None and self._view.waiting

    def leave(self, job: str) -> List[str]:
        """Gives up a job's claim, in one step with what follows from that: says whose supervisors are to be started
        now."""
        settled = slots_of(self.home, self.name).settle(self._fate, leaver=job)
        self._view = None
        self._bury(settled)
        return settled.decision.call

    def start(self, jobs: Sequence[str], slots: Optional[Slots] = None) -> None:
        """Starts supervisors; one that cannot be started now is found by the next look."""
        for job in jobs:
            try:
                if start_supervisor(JobDirectory(self.jobs / job)):
                    (slots or slots_of(self.home, self.name)).started(job)
            except (OSError, subprocess.SubprocessError, PetctlError):
                continue

    def _bury(self, settled: Settled) -> None:
        for job in settled.decision.lost:
            directory = JobDirectory(self.jobs / job)
            with suppress(PetctlError, OSError):  # the line of others must move on
                finalize(directory, why_lost(directory))
        for job in settled.decision.give_up:
            directory = JobDirectory(self.jobs / job)
            log = directory.supervisor_log
            finalize(directory, f"its supervisor ended {MOST_LIVES} times before the job began; see {log}")

    def _inside(self) -> bool:
        """Whether this is a part of a job of the same home: what it starts would end with its node, and its job's
        supervisor looks as well."""
        job = os.environ.get("PETCTL_NODE_KEY", "").partition("/")[0]
        return bool(job) and (self.jobs / job).exists()
