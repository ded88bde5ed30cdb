"""What a node's workers have left running: found in the process table, for whoever has to end it.

It only looks. Where there is no process table it finds nothing, and process groups are all there is.
"""

from __future__ import annotations

import os
from typing import Collection, Set

from petctl.agent.workers import processes

STEP = "PETCTL_STEP"  # tells what the node's preparation left running (it stays) from what a worker did
PREPARE_STEP = "prepare"


def of_workers(
    key: str, guardian: int, workers: Collection[int], main: Set[int], resting: Set[int], zygotes: Set[int]
) -> Set[int]:
    """Processes below this agent, in the session of one of its `workers`, or adopted by the guardian (0: by init).

    Without the `main` processes themselves, what belongs to a `resting` worker, and the sessions of `zygotes`. An
    orphan in a session of its own is counted also then: nobody can tell whose it was.
    """
    living = processes.table()
    if not living:
        return set()
    me = os.getpid()
    found = processes.descendants(me, living)
    found |= {p.pid for p in living.values() if p.session in workers or p.group in workers}
    orphans = processes.descendants(guardian, living) if guardian else set(living)
    found |= processes.carrying(f"{processes.NODE_KEY}={key}", orphans - found - {me, guardian})
    found -= main | {p.pid for p in living.values() if p.session in resting | zygotes}
    for pid in resting:
        found -= processes.descendants(pid, living)
    return found - processes.carrying(f"{STEP}={PREPARE_STEP}", found)


def of_node(key: str) -> Set[int]:
    """Every process of this node's life but this one."""
    me = os.getpid()
    living = processes.table()
    below = processes.descendants(me, living)
    return below | processes.carrying(f"{processes.NODE_KEY}={key}", set(living) - below - {me})
