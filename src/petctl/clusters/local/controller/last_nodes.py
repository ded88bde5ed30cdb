"""The end of a local job's nodes: they go by themselves when they hear of it; those that do not are killed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from petctl.clusters.local.controller.supervisor import Supervisor

LAST_PATIENCE = 10.0  # seconds beyond the grace: then nodes that do not go are killed


async def until_gone(job: Supervisor) -> None:
    """Returns when no node of the job is left."""
    patience = job.record.task.grace + LAST_PATIENCE
    while not job.keeper.empty.is_set():
        try:
            await asyncio.wait_for(job.keeper.empty.wait(), patience)
        except asyncio.TimeoutError:
            if _some_send(job):
                continue  # they give up by themselves when nothing moves any more
            job.recorder.event("node", f"killing nodes that did not end within {patience:g} s")
            job.keeper.kill()
            await job.keeper.empty.wait()
    await _until_guests_gone(job, patience)


async def _until_guests_gone(job: Supervisor, patience: float) -> None:
    """Nodes that joined by hand need this coordinator until their results are up, or they have said what is not."""
    assert job.machine is not None
    own = () if job.sending.wanted else job.directory.node_names()
    loop = asyncio.get_running_loop()
    end = loop.time() + patience
    while any(name not in own for name in job.machine.nodes):
        if job.kill_wanted or (loop.time() >= end and not _some_send(job)):
            break
        job.fewer.clear()
        try:
            await asyncio.wait_for(job.fewer.wait(), max(1.0, end - loop.time()))
        except asyncio.TimeoutError:
            pass


def _some_send(job: Supervisor) -> bool:
    assert job.machine is not None
    nodes = job.machine.nodes.values()
    return not job.kill_wanted and any(node.connected and node.report.sending for node in nodes)
