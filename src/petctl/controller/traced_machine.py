"""The rendezvous machine with somebody who looks on, for records and status. It changes no decision."""

from __future__ import annotations

from typing import Any, Callable, List

from petctl.rendezvous.core.machine import Coordinator


class ObservedCoordinator(Coordinator):
    """The machine, and somebody who looks at it after every decision."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.observe: Callable[[], None] = lambda: None
        super().__init__(*arguments, **options)

    def settle(self, now: float) -> List[object]:
        effects = super().settle(now)
        self.observe()
        return effects
