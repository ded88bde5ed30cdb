"""What the coordinator knows of each node that lives, and what can be read from all of it. No decisions here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from petctl.rendezvous.core.decide import natural
from petctl.rendezvous.core.messages import Place, Report


@dataclass
class Node:
    """A node that is alive as far as the coordinator knows."""

    report: Report
    connected: bool = True
    answer: bool = False  # a heartbeat waits for its answer
    told: int = -1  # seq of the last order it got
    ran: int = 0  # the last round that it was told to run
    release: bool = False
    failed: int = 0  # arrival number of its failure in the current round
    unfit: str = ""  # why the job does without it

    @property
    def goes(self) -> bool:
        """Is it about to leave?"""
        return self.release or self.report.leaving

    @property
    def eligible(self) -> bool:
        """May it take part in the next round?"""
        return self.connected and not self.goes and not self.unfit


def last_round(nodes: Mapping[str, Node]) -> Tuple[Optional[Tuple[int, int]], Dict[str, Place]]:
    """The newest (epoch, round) that any node ran, and the places of those that reported it."""
    ran = {
        name: ((node.report.place_epoch, node.report.place_round), node.report.place)
        for name, node in nodes.items()
        if node.report.place is not None
    }
    if not ran:
        return None, {}
    top = max(key for key, _ in ran.values())
    return top, {name: place for name, (key, place) in ran.items() if key == top and place is not None}


def left_out(nodes: Mapping[str, Node]) -> str:
    """Whom the job does without, and why."""
    unfit = {name: node.unfit for name, node in nodes.items() if node.unfit}
    return in_short([unfit[name] for name in sorted(unfit, key=natural)])


def in_short(sentences: Sequence[str]) -> str:
    """The first of sentences about nodes that say much the same."""
    more = f" (and {len(sentences) - 1} more)" if len(sentences) > 1 else ""
    return f"{sentences[0]}{more}" if sentences else ""


def rows(nodes: Mapping[str, Node], places: Mapping[str, Tuple[str, Place]], running: bool) -> List[Dict[str, Any]]:
    """One row per node, as plain JSON types, for people."""
    found = []
    for name in sorted(nodes, key=natural):
        report = nodes[name].report
        place = places[name][1] if name in places else None
        found.append(
            {
                "name": name,
                "incarnation": report.incarnation,
                "address": report.address,
                "procs": place.procs if place and place.procs else report.procs,
                "state": "unfit" if nodes[name].unfit else report.state if place or not running else "standby",
                "rank": place.rank if place else None,
                "first_rank": place.first_rank if place else None,
                "note": nodes[name].unfit or report.note,
            }
        )
    return found
