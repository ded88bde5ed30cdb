"""Whose turn it is: from all claims on a cluster's slots, and what became of their jobs, who gets slots and whose
supervisor is to be started.

Order: higher priority first, then first come, first served. The head of the line waits for its `minimum`, and nobody
overtakes it. A job has a supervisor once it has slots; of those that wait only the head has one, so that the next
start does not wait for a process to come up, and so that somebody looks after the line when whoever freed slots was
killed before it could start anybody. All others are rows. Not more begin at once than the machine has processors for:
together they would all be slow, and whoever submits hundreds would hardly get on.

Pure: no files, no clock, no processes. Who asks, and what is done about it, is `queue.py`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Callable, Dict, List, NamedTuple, Sequence

from petctl.text import counted

UNBORN_WITHIN = 60.0  # seconds for a submitter to make the job whose place it has taken
REVIVE_WITHIN = 1.5  # ... for a killed supervisor to be back
BEGIN_WITHIN = 5.0  # ... for a supervisor to begin; one that is slower holds nobody up
START_WITHIN = 1.0  # ... for a supervisor that was called to be started, or else somebody else does that
MOST_LIVES = 5  # a supervisor that ends so often before it has begun will not begin the next time either

# What became of a job that has a claim.
UNBORN = "unborn"  # its submitter is still making it
READY = "ready"  # it has not begun, and has no supervisor
STARTING = "starting"  # it has not begun, and has a supervisor
ALIVE = "alive"  # it has begun, and somebody looks after it
DEAD = "dead"  # it had begun, and nobody looks after it any more
ENDED = "ended"


class Claim(NamedTuple):
    """One job's row: a place in line until it holds slots."""

    job: str
    priority: int
    minimum: int
    wanted: int
    slots: int  # how many its submitter's settings gave to all jobs together
    granted: int = 0
    entered: float = 0.0
    called: float = 0.0  # when somebody last set out to start its supervisor
    lives: int = 0  # how many of them were started and gave no sign of life
    doubted: float = 0.0  # since when nobody seems to look after it; 0: somebody does


class Standing(NamedTuple):
    """Where a job stands: with slots, or in line."""

    granted: int
    ahead: int
    minimum: int
    total: int
    free: int

    def sentence(self) -> str:
        """What its user reads."""
        jobs = counted(self.ahead, "job")
        return f"queued: {jobs} ahead, needs {self.minimum} of {self.total} node slots, {self.free} free"


@dataclass
class Decision:
    """What is to be done now; empty when all is as it should be."""

    drop: List[str] = field(default_factory=list)  # nobody needs these claims any more
    lost: List[str] = field(default_factory=list)  # ... of those: their jobs ran, and nobody looks after them any more
    doubt: List[str] = field(default_factory=list)  # look at these again before they are dropped
    trust: List[str] = field(default_factory=list)  # doubted without reason
    grant: Dict[str, int] = field(default_factory=dict)  # job -> slots
    call: List[str] = field(default_factory=list)  # start their supervisors
    give_up: List[str] = field(default_factory=list)  # their supervisors never begin

    def __bool__(self) -> bool:
        return any((self.drop, self.doubt, self.trust, self.grant, self.call, self.give_up))


Fate = Callable[[Claim], str]
Total = Callable[[Claim], int]


def decide(claims: Sequence[Claim], fate: Fate, total: Total, now: float, at_once: int = sys.maxsize) -> Decision:
    """The next step for everybody; `claims` in the order of the line, `total(claim)`: all slots there are for it,
    `at_once`: how many may be beginning."""
    decision = Decision()
    used = beginning = 0
    for claim in claims:
        if not claim.granted:
            continue
        state = fate(claim)
        if _keeps(claim, state, now, decision):
            used += claim.granted
            beginning += state in (READY, STARTING) and 0 <= now - claim.called < BEGIN_WITHIN
    for claim in claims:
        if claim.granted:
            continue
        state = fate(claim)
        if state == UNBORN and 0 <= now - claim.entered < UNBORN_WITHIN:
            continue  # it is not in anybody's way before it is a job
        if state in (UNBORN, ENDED, DEAD):
            decision.drop.append(claim.job)
            continue
        free = total(claim) - used
        if state == READY:
            _call(claim, now, decision)
        if claim.minimum > free or beginning >= at_once:
            break
        if claim.job in decision.give_up:
            continue
        decision.grant[claim.job] = min(max(claim.wanted, claim.minimum), free)
        used += decision.grant[claim.job]
        beginning += 1
    return decision


def _keeps(claim: Claim, state: str, now: float, decision: Decision) -> bool:
    """Whether the slots of this one are still in use."""
    if state in (ENDED, UNBORN):
        decision.drop.append(claim.job)
        return False
    if state == READY:
        _call(claim, now, decision)
    elif state in (STARTING, ALIVE) and claim.doubted:
        decision.trust.append(claim.job)
    elif state == DEAD and not claim.doubted:
        decision.doubt.append(claim.job)
    elif state == DEAD and not 0 <= now - claim.doubted < REVIVE_WITHIN:
        decision.drop.append(claim.job)
        decision.lost.append(claim.job)
        return False
    return True


def _call(claim: Claim, now: float, decision: Decision) -> None:
    """Each fruitless life is followed by a longer pause: what fails at once must not be tried without end."""
    pause = START_WITHIN * 2.0 ** max(0, claim.lives - 2)
    if 0 <= now - claim.called < pause:
        return
    (decision.call if claim.lives < MOST_LIVES else decision.give_up).append(claim.job)


def growth(claims: Sequence[Claim], job: str, wanted: int, total: Total) -> int:
    """How many more slots a job that has some may take: none while anybody waits."""
    own = next((claim for claim in claims if claim.job == job), None)
    if own is None or not own.granted or not all(claim.granted for claim in claims):
        return 0
    free = total(own) - sum(claim.granted for claim in claims)
    return max(0, min(wanted - own.granted, free))


def standings(claims: Sequence[Claim], total: Total) -> Dict[str, Standing]:
    """Where each job stands."""
    used = sum(claim.granted for claim in claims)
    found: Dict[str, Standing] = {}
    ahead = 0
    for claim in claims:
        slots = total(claim)
        place = 0 if claim.granted else ahead
        found[claim.job] = Standing(claim.granted, place, claim.minimum, slots, max(0, slots - used))
        ahead += not claim.granted
    return found
