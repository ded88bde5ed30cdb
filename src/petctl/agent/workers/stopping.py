"""A stop of a node's workers that is under way: until when, and how. Pure.

SIGTERM          -> ended within the grace, else SIGKILL
asked to park    -> parked within PARK_TIMEOUT, when planned within the grace and PARK_TIMEOUT; else SIGKILL. One that
                    aborts its collectives has ABORT_TIMEOUT more for that, and PARK_TIMEOUT afterwards
parked, final    -> SIGTERM, ended within the grace and PARK_TIMEOUT, else SIGKILL
"""

from __future__ import annotations

from dataclasses import dataclass

PARK_TIMEOUT = 2.0  # seconds in which a worker parks once it may not go on
ABORT_TIMEOUT = 20.0  # seconds that NCCL may need to abort its communicators; half a second for one is usual


@dataclass(frozen=True)
class Stopping:
    """Moments of the loop's clock, and what is asked of the workers."""

    kill_at: float  # for those that got SIGTERM
    park_by: float  # for those that were asked to park
    end_by: float  # for those that had parked when they got SIGTERM
    planned: bool  # those that park choose the moment
    final: bool  # those that have parked are ended

    def with_another(self, other: Stopping) -> Stopping:
        """Both wishes at once: the harsher one holds in everything."""
        return Stopping(
            min(self.kill_at, other.kill_at),
            min(self.park_by, other.park_by),
            min(self.end_by, other.end_by),
            self.planned and other.planned,
            self.final or other.final,
        )


def stopping(now: float, grace: float, planned: bool, final: bool) -> Stopping:
    """A stop that begins now."""
    end_by = now + grace + PARK_TIMEOUT
    return Stopping(now + grace, end_by if planned else now + PARK_TIMEOUT, end_by, planned, final)
