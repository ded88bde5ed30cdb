"""The rendezvous machine as the local supervisor runs it: with somebody who looks on, and a memory on disk.

It changes no decision: what nodes report always counts for more than what the job's files remember.
"""

from __future__ import annotations

from typing import Any, Callable, List

from petctl.rendezvous.machine import Coordinator


class ObservedCoordinator(Coordinator):
    """The machine, somebody who looks at it after every decision, and what the job's files remember."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.observe: Callable[[], None] = lambda: None
        super().__init__(*arguments, **options)

    def recall(self, number: int, spent: int) -> None:
        """What nodes would remember, for a job that has none left; where there are any, they know better."""
        self.round, self.spent = number, spent

    def settle(self, now: float) -> List[object]:
        effects = super().settle(now)
        self.observe()
        return effects
