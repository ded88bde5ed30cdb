"""How nodes ended that nobody of the job asked to end, and why others have not come: what only a platform knows.

A coordinator sees that a node is gone, or missing; a backend tells why (`Inspection.ends`, `Inspection.absent`), and
here it becomes part of the job's status and events. Pure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from petctl.job.status import JobStatus, NodeStatus
from petctl.rendezvous.core.decide import natural
from petctl.rendezvous.core.messages import NOT_MISSED

LONG_LIFE = 60.0
"""Seconds: a round of all nodes that has run so long shows that they are well."""
NEAR = 60.0
"""Seconds between the loss of a node and the end of what it was, at most."""
_LOOKS = 5  # for the end of a lost node: it may have left no trace, and nobody tells

Event = dict[str, Any]


@dataclass(frozen=True)
class NodeEnd:
    """One of them."""

    kind: ClassVar[str]  # what nodes are on this platform
    node: str
    name: str  # of the one that it was
    words: str  # behind its name
    time: float
    uid: str  # another may have its name
    own: bool = False  # it asked for too little: the next one ends like it

    @property
    def sentence(self) -> str:
        """What people read."""
        of_node = f" of node {self.node}" if self.node != self.name else ""  # a coordinator's is of none
        return f"{self.kind} {self.name}{of_node} {self.words}"


def is_short(status: JobStatus) -> bool:
    """Whether nodes are missing from what a coordinator tells."""
    here = [node for node in status.nodes if node.state != "pending"]
    return status.finished is None and len(here) < status.size.wanted


def with_absent(status: JobStatus, absent: Mapping[str, str]) -> JobStatus:
    """The status with the nodes that have not come, and what keeps each."""
    rows = [*status.nodes, *(NodeStatus(node, "pending", sentence=why) for node, why in absent.items())]
    nodes: dict[str, list[str]] = {}
    for node in sorted(absent, key=natural):
        nodes.setdefault(absent[node], []).append(node)
    told = [f"node{'s' if len(names) > 1 else ''} {', '.join(names)}: {why}" for why, names in nodes.items()]
    sentence = "; ".join([status.sentence, *told])
    return replace(status, nodes=sorted(rows, key=lambda row: natural(row.name)), sentence=sentence)


def may_have_lost(status: JobStatus) -> bool:
    """Whether it is worth a look: nodes were lost, or the job ended for no reason of its workers."""
    if status.finished is not None:
        return status.state in ("failed", "lost") and status.error is None
    return status.nodes_lost > 0


def with_ends(status: JobStatus, ends: Sequence[NodeEnd]) -> JobStatus:
    """The status with the last of these in its sentence; while the job goes on, only what may happen again counts."""
    going, now = status.finished is None, time.time()
    counted = [end for end in ends if not going or (end.own and not _is_over(end, status, now))]
    if not counted or counted[-1].words in status.sentence:  # it is said already
        return status
    last = counted[-1]
    times = sum(end.words == last.words for end in counted)
    often = f" ({times} {last.kind}s ended so)" if times > 1 else ""
    return replace(status, sentence=f"{status.sentence}; {last.sentence}{often}")


def _is_over(end: NodeEnd, status: JobStatus, now: float) -> bool:
    """Did all the nodes that are wanted train for a while since?"""
    starts = [past.started or now for past in status.rounds]
    return any(
        begun >= end.time and until - begun >= LONG_LIFE and len(past.nodes) >= status.size.wanted
        for past, begun, until in zip(status.rounds, starts, [*starts[1:], now], strict=False)
    )


def explained(events: Iterable[Event], ends: Sequence[NodeEnd]) -> Iterator[Event]:
    """Each end beside the loss that it explains; those that explain none come last."""
    left = list(ends)
    for event in events:
        end = next((end for end in left if _explains(end, event)), None)
        if end is not None:
            left.remove(end)
            event = {**event, "sentence": f"{event['sentence']}; {end.sentence}", "why": end.words}
        yield event
    yield from map(_event, left)


def explained_as_they_come(events: Iterable[Event], look: Callable[[], Sequence[NodeEnd]]) -> Iterator[Event]:
    """An end is known a while after the loss: it is looked for before each further event, and at the end."""
    told: set[str] = set()
    looks = 0

    def news() -> Iterator[Event]:
        nonlocal looks
        looks -= 1
        for end in look():
            if end.uid not in told:
                told.add(end.uid)
                looks = 0
                yield _event(end)

    for event in events:
        if looks:
            yield from news()
        yield event
        if event.get("kind") == "lost" and event.get("why") not in NOT_MISSED:
            looks = _LOOKS
    if looks:
        yield from news()


def _explains(end: NodeEnd, event: Event) -> bool:
    return event.get("kind") == "lost" and event.get("node") == end.node and abs(event["time"] - end.time) <= NEAR


def _event(end: NodeEnd) -> Event:
    return {"time": end.time, "kind": "lost", "sentence": end.sentence, "node": end.node, "why": end.words}
