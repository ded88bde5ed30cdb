"""Which of a round's failures is the root cause: one that speaks of lost peers waits a moment for one that does not.

When a rank dies, the others lose their connections to it and fail within milliseconds, and whose report arrives first
is chance. So a failure that can be a consequence is held: until a failure of its own is reported, until every member
has told its end, or for `HOLD` seconds. A node does the same among its own workers. Pure functions and numbers only.
"""

from __future__ import annotations

import re
from typing import Sequence, Tuple

from petctl.rendezvous.core.messages import Failure

HOLD = 1.0  # seconds

OWN, UNCLEAR, OF_PEERS = 0, 1, 2  # what a failure tells of its origin; the lowest is the likeliest root cause

# Of gloo, NCCL, torch's process groups and stores, and the transports of MPI.
_TELLS_OF_PEERS = re.compile(
    r"\bby (remote )?peer\b|\bgloo\b|gloo/|\bncclRemoteError\b|\bNCCL (communicator was aborted|WARN|watchdog)"
    r"|\bDist(Network|Store|Backend)Error\b|\bbtl_|remote process exit|[Pp]eer (is )?(gone|lost|process)",
)
_CAUSES_OF_PEERS = ("nccl-timeout", "collective-timeout", "mpi-daemon")
_UNCLEAR_CAUSES = ("network", "nccl", "ib", "aborted", "terminated")
_UNCLEAR_SIGNALS = (
    "SIGABRT",
    "SIGTERM",
    "SIGPIPE",
    "SIGHUP",
)  # native code that lost its peers, or who was told to end
_UNCLEAR_CODES = (14, 128 + 1, 128 + 6, 128 + 13, 128 + 15)  # 14: Open MPI, whose connection to a peer broke


def origin(failure: Failure) -> int:
    """Whether this failure is the worker's OWN, OF_PEERS that it lost, or UNCLEAR."""
    if failure.hung or failure.lasting:
        return OWN
    if failure.cause in _CAUSES_OF_PEERS or _TELLS_OF_PEERS.search(failure.message):
        return OF_PEERS
    if failure.signal:
        return UNCLEAR if failure.signal in _UNCLEAR_SIGNALS else OWN
    return UNCLEAR if failure.cause in _UNCLEAR_CAUSES or failure.code in _UNCLEAR_CODES else OWN


def root_cause(failures: Sequence[Failure]) -> Tuple[Failure, str]:
    """The root cause among failures in the order of their arrival, and what to say of one that came before it."""
    root = min(failures, key=origin)  # the first of equals
    first = failures[0]
    if first is root:
        return root, ""
    return root, f"; rank {first.rank} on node {first.node} failed before it, but may only have lost a peer"
