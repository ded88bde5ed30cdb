"""Who takes part in a round, in which order, and why one still waits. Pure functions, each a sentence of the rules.

`wait_reason` is the one place that decides whether a round may start; it answers with the sentence that users see.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Collection, Dict, List, Mapping, Sequence, Tuple, Union

from petctl.rendezvous.core.messages import Place, Report


@lru_cache(maxsize=1 << 16)
def natural(name: str) -> Tuple[Tuple[int, Union[int, str]], ...]:
    """Sorting key under which node 10 comes after node 9."""
    return tuple((0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name) if part)


def choose(nodes: Collection[str], previous: Mapping[str, int]) -> List[str]:
    """Nodes by preference: survivors first, by their old rank, then newcomers by name. The first becomes rank 0."""
    survivors = sorted((name for name in nodes if name in previous), key=lambda name: previous[name])
    return survivors + sorted((name for name in nodes if name not in previous), key=natural)


def first_choice(nodes: Collection[str], previous: Mapping[str, int]) -> str:
    """The one that becomes rank 0, should nothing change; found without sorting all of them."""
    survivors = [name for name in nodes if name in previous]
    return min(survivors, key=lambda name: previous[name]) if survivors else min(nodes, key=natural)


def ranks_for(members: Sequence[str], previous: Mapping[str, int]) -> List[str]:
    """Members in rank order: a survivor keeps its rank where that still exists, and rank 0 is always a survivor's."""
    size = len(members)
    slots: List[str] = [""] * size
    waiting: List[str] = []
    for name in choose(members, previous):
        rank = previous.get(name, -1)
        if 0 <= rank < size and not slots[rank]:
            slots[rank] = name
        else:
            waiting.append(name)
    if not slots[0]:
        first = choose(members, previous)[0]
        if first in slots:
            slots[slots.index(first)] = ""
        else:
            waiting.remove(first)
        slots[0] = first
    for rank in range(size):
        if not slots[rank]:
            slots[rank] = waiting.pop(0)
    return slots


def places_for(
    members: Sequence[Report], port: int, offers: bool = False, tasks: Sequence[int] = ()
) -> Dict[str, Place]:
    """Everybody's place, given the reports in rank order; nodes may have different numbers of processes."""
    nodes = len(members)
    procs = [share(tasks, rank, nodes) if tasks else report.procs for rank, report in enumerate(members)]
    world, master = sum(procs), members[0].address
    offered = tuple(report.offer for report in members) if offers else ()
    places: Dict[str, Place] = {}
    first = 0
    for rank, report in enumerate(members):
        places[report.node] = Place(rank, nodes, first, world, master, port, offered, procs[rank])
        first += procs[rank]
    return places


def share(tasks: Sequence[int], rank: int, nodes: int) -> int:
    """How many tasks of roles with these counts (0: one on each node) the node of this rank has."""
    return sum(len(range(rank, count or nodes, nodes)) for count in tasks)


def cheapest(
    nodes: Collection[str], staying: Collection[str], ranks: Mapping[str, int], slow: Sequence[str]
) -> List[str]:
    """Nodes in the order in which a job that gets smaller gives them up.

    First those that are not `staying`: never seen, gone or about to go. Then those without a rank. Then members: the
    slowest, then those with the highest rank. Rank 0's node last, since to lose it costs the most.
    """

    def cost(name: str) -> Tuple[int, int]:
        if name not in staying or name not in ranks:
            return (0 if name not in staying else 1, 0)
        if ranks[name] == 0:
            return (4, 0)
        return (2, slow.index(name)) if name in slow else (3, -ranks[name])

    highest_first = sorted(nodes, key=natural, reverse=True)  # low numbers are what a cluster fills up first
    return sorted(highest_first, key=cost)


def wait_reason(
    eligible: Mapping[str, Report],
    ready: Mapping[str, Report],
    busy: Sequence[Report],
    least: int,
    target: int,
    expected: Collection[str],
    called: bool,
) -> str:
    """Why the round cannot start yet, or an empty string. Waits only for nodes known to be alive or expected."""
    if busy:
        nodes = _names([report.node for report in busy])
        return f"{nodes} {'is' if len(busy) == 1 else 'are'} stopping workers of an older round"
    if len(ready) >= target:
        return ""
    count = f"{len(ready)} of {target} nodes"
    slow = [report for name, report in eligible.items() if name not in ready]
    if slow:
        doing = f" and {slow[0].note}" if slow[0].note else ", not ready yet"
        return f"{count}, node {slow[0].node} is alive{doing}"
    if expected:
        return f"{count}, {_names(list(expected))} {'is' if len(expected) == 1 else 'are'} expected"
    if len(ready) < least:
        return f"{count}, at least {least} are needed"
    if called:
        return f"{count}, last call for more"
    return ""


def _names(names: List[str]) -> str:
    if len(names) > 4:
        return f"{len(names)} nodes"
    return ("node " if len(names) == 1 else "nodes ") + ", ".join(sorted(names, key=natural))
