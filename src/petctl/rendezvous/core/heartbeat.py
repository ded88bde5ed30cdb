"""How often a node and its coordinator hear of each other, and after how long one of them counts as silent.

A small job has five heartbeats to a limit. In a large one they come less often, so that the coordinator has at most
`BEATS_PER_SECOND` to answer, however many nodes there are; a node is lost after three of them. Both sides compute it
from the wanted size, which every header tells.
"""

from __future__ import annotations

BEATS_PER_SECOND = 2000.0
_PER_LIMIT, _LEAST_PER_LIMIT = 5, 3


def interval(limit: float, nodes: int) -> float:
    """Seconds between two heartbeats of one node, where so many nodes are wanted and a small job's limit is this."""
    return max(limit / _PER_LIMIT, nodes / BEATS_PER_SECOND)


def lost_after(limit: float, nodes: int) -> float:
    """Seconds without a word after which the other side counts as lost."""
    return max(limit, _LEAST_PER_LIMIT * interval(limit, nodes))
