"""What a named local cluster's nodes should become, given its size, its jobs and the time: a pure function.

    settle(size, nodes, claims, now, prepares) -> nodes      gives nodes to jobs, takes them back, grows and shrinks
    wishes(size, nodes, claims) -> what jobs must be asked for, so that nodes can leave

Facts in, facts out: whoever looks at a cluster settles it, in one transaction (`nodes.py`), and comes to the same
answer as anybody else. A node that is lost half-way is found by the next look. It must not know files, processes or a
clock.

A node is prepared (PREPARING), then READY until it is removed, or UNUSABLE with a reason. READY nodes are given to jobs
whole, as many as the queue has granted. One that is to go while a job has it is `leaving`: no job gets it again, and it
is removed when that job lets go of it. A job's highest nodes leave first, because that is how a job shrinks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import List, Sequence

PREPARING, READY, UNUSABLE = "preparing", "ready", "unusable"
SHOWN = ("idle", "running", "preparing", "leaving", "unusable")
REQUEUE, TERMINATE, WAIT = "requeue", "terminate", "wait"
DEALLOCATION = (REQUEUE, TERMINATE, WAIT)
_FIRST_TO_GO = {UNUSABLE: 0, PREPARING: 1, READY: 2}


@dataclass(frozen=True)
class Size:
    """How many nodes there should be: `low` = `high` where the user has said a number, else as jobs need."""

    low: int
    high: int
    idle_time: float = 600.0  # a node that was idle for so long is not needed
    deallocation: str = REQUEUE  # what happens to jobs whose nodes must go

    @property
    def auto(self) -> bool:
        return self.low != self.high


@dataclass(frozen=True)
class Claim:
    """A job in the queue, or with nodes; claims are in the order of the queue."""

    job: str
    minimum: int
    wanted: int
    granted: int


@dataclass(frozen=True)
class Node:
    """One node as it is kept."""

    number: int
    state: str
    since: float  # of the state, and of being idle
    leaving: bool = False
    job: str = ""
    member: int = -1  # which of the job's nodes it is
    reason: str = ""  # of being unusable
    attempts: int = 0  # how often its preparation was started
    boot: str = ""  # in which run of the machine it was prepared

    @property
    def free(self) -> bool:
        return self.state == READY and not self.job

    @property
    def shown(self) -> str:
        """Its state, as users see it."""
        if self.leaving:
            return "leaving"
        if self.state == READY:
            return "running" if self.job else "idle"
        return self.state


@dataclass(frozen=True)
class GiveBack:
    """A job is to give nodes back and keep so many; 0: all, and go back into the queue, or end if `end`."""

    job: str
    keep: int
    end: bool = False


def settle(
    size: Size, nodes: Sequence[Node], claims: Sequence[Claim], now: float, prepares: bool, boot: str = ""
) -> List[Node]:
    """The nodes as they should be now; `prepares`: a new one has to be prepared first, and so has one that was prepared
    in another run of the machine than `boot`."""
    granted = {claim.job: claim.granted for claim in claims}
    held = [node if node.member < granted.get(node.job, 0) else _released(node, now) for node in nodes]
    here = [node for node in held if node.job or not node.leaving]
    if prepares:
        here = [Node(n.number, PREPARING, now) if n.free and n.boot != boot else n for n in here]
    here = _given(_grown(here, wanted_nodes(size, claims), now, prepares), claims, now)
    return sorted(_shrunk(here, size, claims, now), key=lambda node: node.number)


def wanted_nodes(size: Size, claims: Sequence[Claim]) -> int:
    """As many as there should be: the user's number, or what jobs that run and wait could use, within the bounds."""
    needed = sum(max(claim.granted, claim.wanted, claim.minimum) for claim in claims)
    return min(size.high, max(size.low, needed))


def wishes(size: Size, nodes: Sequence[Node], claims: Sequence[Claim]) -> List[GiveBack]:
    """What has to be asked of jobs that have leaving nodes; an elastic one that can do with fewer only gets smaller."""
    if size.deallocation == WAIT:
        return []
    found = []
    for claim in claims:
        mine = [node for node in nodes if node.job == claim.job]
        staying = sum(not node.leaving for node in mine)
        if staying < len(mine):
            enough = staying >= max(1, claim.minimum)
            end = not enough and size.deallocation == TERMINATE
            found.append(GiveBack(claim.job, staying if enough else 0, end))
    return found


def _given(nodes: Sequence[Node], claims: Sequence[Claim], now: float) -> List[Node]:
    """Each job has as many nodes as it was granted, as far as there are any."""
    after = {node.number: node for node in nodes}
    for claim in claims:
        taken = {node.member for node in after.values() if node.job == claim.job}
        missing = [member for member in range(claim.granted) if member not in taken]
        free = sorted(number for number, node in after.items() if node.free and not node.leaving)
        for member, number in zip(missing, free):
            after[number] = replace(after[number], job=claim.job, member=member, since=now)
    return list(after.values())


def _released(node: Node, now: float) -> Node:
    return replace(node, job="", member=-1, since=now) if node.job else node


def _grown(nodes: Sequence[Node], wanted: int, now: float, prepares: bool) -> List[Node]:
    after = {node.number: node for node in nodes}
    lacking = wanted - sum(not node.leaving for node in nodes)
    back = sorted((node for node in nodes if node.leaving), key=lambda node: (node.member, node.number))
    for node in back[: max(0, lacking)]:
        after[node.number] = replace(node, leaving=False)
    number = 0
    for _ in range(lacking - len(back)):
        while number in after:
            number += 1
        after[number] = Node(number, PREPARING if prepares else READY, now)
    return list(after.values())


def _shrunk(nodes: Sequence[Node], size: Size, claims: Sequence[Claim], now: float) -> List[Node]:
    staying = [node for node in nodes if not node.leaving]
    without = sorted((node for node in staying if not node.job), key=lambda n: (_FIRST_TO_GO[n.state], -n.number))
    too_many = len(staying) - size.high
    going = [node.number for node in without[: max(0, too_many)]]
    if size.auto:
        unneeded = len(staying) - len(going) - wanted_nodes(size, claims)
        bored = [n for n in without if n.state != PREPARING and n.since <= now - size.idle_time]
        going += [node.number for node in bored if node.number not in going][: max(0, unneeded)]
    leaving = _taken_from_jobs(staying, too_many - len(without), claims)
    kept = (node for node in nodes if node.number not in going)
    return [replace(node, leaving=True) if node.number in leaving else node for node in kept]


def _taken_from_jobs(staying: Sequence[Node], count: int, claims: Sequence[Claim]) -> List[int]:
    """Numbers of nodes that jobs have and that must go: first what elastic jobs can spare, then the last job's."""
    taken: List[int] = []
    for respect_minimum in (True, False):
        for claim in reversed(claims):
            mine = [node for node in staying if node.job == claim.job and node.number not in taken]
            mine.sort(key=lambda node: -node.member)
            spare = len(mine) - claim.minimum if respect_minimum else len(mine)
            taken += [node.number for node in mine[: max(0, min(spare, count - len(taken)))]]
    return taken
