"""How a running job gives nodes back to a named cluster that gets smaller: it shrinks, waits in line again, or ends.

What is asked of it follows from the nodes that are to leave (`model.wishes`), read anew each time: there is no
message that could be lost, come late or outlive its reason. A supervisor that is killed while it obeys is replaced by
one that reads the same.

A job that goes back into the queue keeps its id, its place, its directory and what it has written; its nodes stop
their workers within the grace, as at any planned change, and nothing is charged. The cost is one start.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from petctl.clusters.local.controller.start_environment import keep_environment
from petctl.clusters.local.pools.model import GiveBack
from petctl.rendezvous.core.events import End, Scale
from petctl.rendezvous.core.messages import CANCELLED, Outcome

if TYPE_CHECKING:
    from petctl.clusters.local.controller.supervisor import Supervisor


def apply(supervisor: Supervisor, wish: GiveBack) -> None:
    """Gives back what the cluster asks for; what takes time goes on by itself."""
    name = supervisor.record.cluster
    if wish.end:
        sentence = f"cluster {name} got smaller and ends the jobs on removed nodes (deallocation: terminate)"
        supervisor.server.step(End(Outcome(CANCELLED, 130, sentence)))
    elif wish.keep:
        allotment = supervisor.allotment
        allotment.give_back_to(wish.keep)
        sentence = f"cluster {name} got smaller: {wish.keep} of {allotment.wanted} nodes stay"
        supervisor.recorder.event("slots", sentence, nodes=wish.keep)
        supervisor.server.step(Scale(allotment.wanted, allotment.surplus()))
        supervisor.keeper.want(allotment.names())
    else:
        supervisor.going_back = True
        supervisor.recorder.event("requeue", f"cluster {name} got smaller: {supervisor.directory.id} stops and waits")
        assert supervisor.machine is not None
        supervisor.server.step(Scale(supervisor.allotment.wanted, tuple(supervisor.machine.nodes)))
        supervisor.keeper.want([])


async def leave_nodes(supervisor: Supervisor, patience: float) -> None:
    """Until all nodes have gone, by themselves or by force; or until the job is over after all."""
    gone = asyncio.ensure_future(supervisor.keeper.empty.wait())
    over = asyncio.ensure_future(supervisor.over.wait())
    try:
        done, _ = await asyncio.wait((gone, over), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            supervisor.keeper.kill()
            await asyncio.wait((gone, over), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        over.cancel()


def back_into_the_line(supervisor: Supervisor) -> None:
    """The job has no nodes: from here on it is one that has not begun, at its old place."""
    directory, recorder = supervisor.directory, supervisor.recorder
    sentence = f"queued again: cluster {supervisor.record.cluster} got smaller"
    recorder.event("requeued", sentence)
    recorder.picture = lambda status: replace(status, state="queued", sentence=sentence, nodes=[], world_size=0)
    recorder.write()
    keep_environment(directory)
    directory.coordinator.unlink(missing_ok=True)
    supervisor.allotment.requeue()
    supervisor.standby.dismiss()
