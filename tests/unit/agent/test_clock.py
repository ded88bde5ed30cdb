"""Time that passes while a machine is suspended counts."""

from __future__ import annotations

import asyncio
import time

from petctl.agent.node import clock
from petctl.agent.node.clock import Alarm
from petctl.rendezvous.core import member as mb
from petctl.rendezvous.core import messages as m
from petctl.rendezvous.core.messages import Header, Order, Place


def test_it_counts_suspend() -> None:
    assert abs(clock.now() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 5.0


def test_a_node_that_slept_longer_than_fence_after_stops_its_workers_when_it_wakes() -> None:
    """The loop's own clock stands still in a suspend: only the clock of the machine jumps."""
    moment = [100.0]
    member = mb.Member("0", "i1", 1, "host", now=100.0, fence_after=60.0)
    member.step(mb.Connected(), 100.0)
    header = Header(1, "c1", 1, 1, 0, 0, 1)
    member.step(mb.Received(Order(header, m.PREPARE, 1)), 100.0)
    member.step(mb.Received(Order(header, m.RUN, 1, place=Place(0, 1, 0, 1, "host", 4242))), 100.0)
    member.step(mb.Disconnected(), 100.0)

    async def live() -> list[object]:
        rung: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()

        def ring() -> None:
            effects = member.step(mb.Tick(), moment[0])
            if effects:
                rung.set_result(effects)
            else:
                alarm.set(member.deadline())

        alarm = Alarm(ring, lambda: moment[0])
        alarm.set(member.deadline())
        moment[0] += 3600.0
        return await asyncio.wait_for(rung, 30.0)

    effects = asyncio.run(live())
    assert any(isinstance(effect, mb.Stop) for effect in effects)
