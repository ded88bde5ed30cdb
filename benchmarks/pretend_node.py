"""A node without workers: a real, authenticated `AgentLink` and a real `Member`, whose workers are pretended.

For the benchmarks and for tests of the coordinator, where a thousand nodes must fit into a few processes. Everything
that goes over the wire is what a real agent would send.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Callable, Dict, Optional

from petctl.errors import Unreachable
from petctl.rendezvous.core import member as node_side
from petctl.rendezvous.core.member import Member
from petctl.rendezvous.core.messages import decode_order, encode
from petctl.rendezvous.net.client import CONNECT_WITHIN, AgentLink
from petctl.rendezvous.net.join_file import JoinFile


class PretendNode:
    """Runs one member, until it exits, is dropped, or the coordinator ends its connection."""

    def __init__(
        self,
        join: JoinFile,
        name: str,
        silence: float = 5.0,
        changed: Optional[Callable[[PretendNode], None]] = None,
    ) -> None:
        self.name = name
        self.link = AgentLink(join)
        self.loop = asyncio.get_running_loop()
        self.member = Member(name, f"{name}.1", 1, "127.0.0.1", self.loop.time(), silence=silence)
        self.sent = 0
        self.welcome: Optional[dict] = None  # type: ignore[type-arg]
        self._changed = changed
        self._again = False  # it left a silent coordinator, as an agent does, and comes back
        self._timer: Optional[asyncio.TimerHandle] = None

    async def run(self) -> None:
        """Connects and takes part; returns when the connection is over or the member has exited."""
        try:
            while not self.member.exited:
                self.welcome, self._again = await self._connected(), False
                await self._take_part()
                if not self._again:
                    break
        finally:
            self.drop()

    async def _take_part(self) -> None:
        try:
            self.step(node_side.Connected())
            while not self.member.exited:
                message = await self.link.receive()
                self.step(node_side.Received(decode_order(message.get("order"))))
        except Unreachable:
            self.step(node_side.Disconnected())

    async def _connected(self) -> Dict[str, Any]:
        """Tries as an agent does: longer each time, and not all at once."""
        within = CONNECT_WITHIN
        while True:
            try:
                return await self.link.connect(within, within)
            except Unreachable:
                if self.member.exited:
                    raise
                within *= 2
                await asyncio.sleep(random.uniform(0.0, 1.0))

    def step(self, event: object) -> None:
        """Feeds the member, and carries out what it wants as if workers started and stopped at once."""
        for effect in self.member.step(event, self.loop.time()):
            if isinstance(effect, node_side.Send):
                self.sent += 1
                self.link.send({"report": encode(effect.report)})
            elif isinstance(effect, node_side.Stop):
                self.step(node_side.WorkersStopped())
            elif isinstance(effect, node_side.Reserve):
                self.step(node_side.PortReserved(effect.round, 29500))
            elif isinstance(effect, node_side.Reconnect):
                self._again = True
                self.link.close()
        if self._changed is not None:
            self._changed(self)
        self._arm()

    def drop(self) -> None:
        """Goes without a word, as a node does whose machine lost its power."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._changed = None
        self.link.close()
        self.member.exited = True

    def _arm(self) -> None:
        # A timer that comes too early costs less than one that is replaced with every message.
        if self._timer is None and self.member.deadline() is not None:
            self._timer = self.loop.call_at(self.member.deadline() or 0.0, self._due)

    def _due(self) -> None:
        self._timer = None
        deadline = self.member.deadline()
        if deadline is not None and deadline <= self.loop.time():
            self.step(node_side.Tick())
        self._arm()
