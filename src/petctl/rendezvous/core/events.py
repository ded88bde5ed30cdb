"""What the coordinator's machine is told (events) and what it wants done (effects), and the bounds of its rounds.

Frozen values without behaviour: drivers and clusters speak to the machine in these words only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

from petctl.rendezvous.core.config import Config as Config
from petctl.rendezvous.core.messages import Order, Outcome, Report

# -- events: facts for Coordinator.step ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reported:
    report: Report


@dataclass(frozen=True)
class Disconnected:
    """The node's current connection is gone."""

    node: str
    incarnation: str


@dataclass(frozen=True)
class Expect:
    """The cluster is starting these nodes; wait for them up to `patience` seconds without progress.

    `once_enough`: wait only so many seconds, once enough nodes for a round are ready. For a cluster that cannot tell
    nodes that are late from nodes that no machine takes. 0: wait for `patience` in any case.
    """

    nodes: Tuple[str, ...]
    patience: float = 30.0
    once_enough: float = 0.0


@dataclass(frozen=True)
class Unexpect:
    """They will not come after all."""

    nodes: Tuple[str, ...]


@dataclass(frozen=True)
class Roster:
    """All nodes that live, as the cluster knows; a recovering coordinator need not wait for any other."""

    nodes: Tuple[str, ...]


@dataclass(frozen=True)
class Scale:
    """The user wants another size. `release`: the nodes that the cluster gives up for it."""

    wanted: int
    release: Tuple[str, ...] = ()


@dataclass(frozen=True)
class End:
    """Somebody outside ends the job: cancel, the time limit, a preparation that failed."""

    outcome: Outcome


@dataclass(frozen=True)
class Recorded:
    """An outcome is safe with the backend: the one of the Record effect, or another that was there before it."""

    outcome: Optional[Outcome] = None


@dataclass(frozen=True)
class Late:
    """The driver's own loop was late by so much: nobody else is to blame for that silence."""

    seconds: float


# -- effects -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tell:
    node: str
    incarnation: str
    order: Order


@dataclass(frozen=True)
class Record:
    """Make this outcome durable, then step(Recorded())."""

    outcome: Outcome


@dataclass(frozen=True)
class Lost:
    """A node is gone (crash, silence, leave). The cluster may replace it."""

    node: str
    incarnation: str
    why: str


@dataclass(frozen=True)
class Event:
    """For people and records: one line of events.jsonl."""

    kind: str  # joined, lost, round, running, failure, refund, scale, continued, deposed, closing, remark, unsaved
    sentence: str
    data: Dict[str, Any]
