"""What a node's machine is told (events) and what it wants done (effects). Frozen values without behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from petctl.rendezvous.core.messages import Failure, Order, Outcome, Place, Progress, Report, Stall

# -- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Connected:
    """The connection stands and both sides have proved themselves."""


@dataclass(frozen=True)
class Disconnected:
    """The connection is gone."""


@dataclass(frozen=True)
class Received:
    order: Order


@dataclass(frozen=True)
class PortReserved:
    """A port is held for rank 0 of `round`; `offer` is for the other members' agents."""

    round: int
    port: int
    offer: str = ""


@dataclass(frozen=True)
class WorkerEnded:
    """One local worker ended with exit code 0; `last` when no other is left."""

    round: int
    last: bool


@dataclass(frozen=True)
class Serving:
    """What is left of the local workers of `round` serves others, and ends only when it is stopped."""

    round: int


@dataclass(frozen=True)
class WorkerFailed:
    """A local worker of `round` failed; `last` when no other is left."""

    round: int
    failure: Failure
    last: bool = True


@dataclass(frozen=True)
class WorkersStopped:
    """No worker trains any more: each has ended, or is parked and waits for its next place."""


@dataclass(frozen=True)
class Terminate:
    """The node must go: SIGTERM, preemption."""

    why: str = "the node was asked to stop"


@dataclass(frozen=True)
class Doing:
    """What the node is doing, for people."""

    note: str


@dataclass(frozen=True)
class Warming:
    """Whether workers started now would first have to wait for imports that the node is doing already."""

    warming: bool


@dataclass(frozen=True)
class Progressed:
    """What the local workers of `round` have reported so far."""

    round: int
    progress: Progress


@dataclass(frozen=True)
class Elastic:
    """A worker has said that it can wait, parked, for its place."""


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


# -- effects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Send:
    report: Report


@dataclass(frozen=True)
class Start:
    """Start the workers of this round."""

    epoch: int
    round: int
    place: Place
    spent: int


@dataclass(frozen=True)
class StartEarly:
    """Start workers that wait, parked, until the node has a place; answer with Warming."""


@dataclass(frozen=True)
class Stop:
    """Stop all workers, within `grace`. Said again, the shorter grace holds, and a final one stays final."""

    grace: float
    why: str
    planned: bool = False  # nothing is broken: they may stop where they like, within the grace
    final: bool = False  # there is no next round for them: the node leaves, or the job is over


@dataclass(frozen=True)
class Dump:
    """Write down what the workers of `round` are doing: they stand still. If the stall's rank is one of them, it has
    failed: answer with WorkerFailed."""

    round: int
    stall: Stall


@dataclass(frozen=True)
class Reserve:
    """Hold a free port for the workers of `round`, answer with PortReserved."""

    round: int


@dataclass(frozen=True)
class Reconnect:
    """Drop the connection, resolve the locator again, connect."""

    why: str


@dataclass(frozen=True)
class Exit:
    """The agent is finished. `outcome` is the job's, or None when only this node leaves."""

    outcome: Optional[Outcome]
    why: str
    stuck: bool = False  # there are workers that cannot be ended: do not wait for them
