"""Shows by a file whether this node's workers are in a round, for a kubelet's readiness probe.

A pod disruption budget counts ready pods, so a node must not count before the others could be taken away without loss:
workers that use petctl.elastic have said that they train, others have been in their round for a while.
"""

from __future__ import annotations

import contextlib
import os
from typing import Callable, Tuple

from petctl.agent.node import clock
from petctl.rendezvous.core.member import Member
from petctl.rendezvous.core.messages import DONE, RUNNING

SETTLED = 15.0
"""Seconds in a round after which workers count that have said nothing: a script says that it is elastic before."""


class Readiness:
    """That of one node. `trains`: whether a worker of the present round has told its progress; without a path nothing
    is shown."""

    def __init__(self, path: str, trains: Callable[[], bool]) -> None:
        self._path, self._trains = path, trains
        self._at: Tuple[int, int] = (0, 0)
        self._since = 0.0
        self._shown = True
        self._show(False)

    def look(self, member: Member) -> None:
        """Called whenever something has happened to the node, and so with every heartbeat."""
        if self._path:
            self._show(self._is_ready(member))

    def _is_ready(self, member: Member) -> bool:
        if member.state not in (RUNNING, DONE) or member.note or member.leaving:
            return False
        if member.at != self._at:
            self._at, self._since = member.at, clock.now()
        return self._trains() or (not member.elastic and clock.now() >= self._since + SETTLED)

    def _show(self, ready: bool) -> None:
        if ready == self._shown or not self._path:
            return
        self._shown = ready
        with contextlib.suppress(OSError):  # a full disk must not end the node
            if ready:
                os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600))
            else:
                os.unlink(self._path)
