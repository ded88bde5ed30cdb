"""Keeps a node alive in the coordinator's eyes after its part in the rendezvous is over, while it sends what is left.

The pure machine (`Member`) has ended by then; its last report is repeated with each beat, and says so.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, Callable, Mapping, Optional

from petctl.rendezvous.core.messages import FAILED, IDLE, Report, encode

NOTE = "sending results"  # for people


class Drain:
    """The beats between a node's last decision and its end."""

    def __init__(self, report: Report, beat: float, send: Callable[[Mapping[str, Any]], None]) -> None:
        # Nobody shall wait for workers of this node: there are none.
        state = IDLE if report.state == FAILED else report.state
        self._report = dataclasses.replace(report, state=state, note=NOTE, beat=True, sending=True)
        self._beat, self._send = beat, send
        self._timer: Optional[asyncio.TimerHandle] = None
        self.say()

    def say(self) -> None:
        """Now, and then with each beat."""
        self.stop()
        self._report = dataclasses.replace(self._report, number=self._report.number + 1)
        self._send({"report": encode(self._report)})
        self._timer = asyncio.get_running_loop().call_later(self._beat, self.say)

    def stop(self) -> None:
        """The node goes."""
        if self._timer is not None:
            self._timer.cancel()
