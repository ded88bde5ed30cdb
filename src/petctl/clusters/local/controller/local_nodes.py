"""The nodes of a local job: as many as its user wants and the slots of its cluster allow (`queue/node_quota.py`).

A named cluster that gets smaller takes nodes back: the job shrinks, waits in the queue again, or ends. What is asked of
it follows from the nodes that are to leave (`pools/model.py`), read again each second: there is no message that could
be lost, come late or outlive its reason. A supervisor that is killed meanwhile is replaced by one that reads the same.
A job that goes back into the queue keeps its id, its place, its directory and what it has written; its nodes stop their
workers within the grace, as at any planned change, and nothing is charged. The cost is one start.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Collection, Coroutine, List, Optional, Sequence, Tuple

from petctl.clusters.local.controller.node_runner import REPLACE_PATIENCE, START_PATIENCE, NodeRunner
from petctl.clusters.local.controller.start_environment import forget_environment
from petctl.clusters.local.gpus import gpu_options
from petctl.clusters.local.job_directory import JobDirectory
from petctl.clusters.local.queue.node_quota import NodeQuota
from petctl.clusters.local.record import LocalRequest
from petctl.controller.journals.journal import Journal
from petctl.controller.nodes import LAST_WAIT
from petctl.controller.seat import REQUEUED
from petctl.errors import PetctlError
from petctl.job.record import JobRecord
from petctl.rendezvous.core.events import Config, End, Scale
from petctl.rendezvous.core.messages import CANCELLED, Outcome
from petctl.text import scaling

if TYPE_CHECKING:
    from petctl.clusters.local.pools.model import GiveBack

GROW_STEP = 1.0  # seconds between two polls of the queue, for slots that the job may take and for others that are due
RECOVERY = 15.0  # until a round goes on without a node that lives and has not found the new supervisor

log = logging.getLogger(__name__)


class LocalNodes(NodeRunner):
    """All nodes of one job on this machine."""

    def __init__(self, directory: JobDirectory, journal: Journal, record: JobRecord, quota: NodeQuota) -> None:
        self.request = LocalRequest.of(record)
        super().__init__(directory, journal, record, self.request)
        self.record, self.quota = record, quota
        self._leaving: Optional[asyncio.Task[None]] = None  # all nodes go back to the cluster

    def counts(self) -> Tuple[int, int]:
        return self.quota.wanted, self.quota.granted

    def first_config(self) -> Config:
        return replace(self.config, wanted=self.quota.wanted, recover_within=RECOVERY)

    def adopt(self) -> None:
        self.take_over(self.quota.names())

    def begin(self, fresh: bool) -> None:
        self.want(self.quota.names(), START_PATIENCE if fresh else REPLACE_PATIENCE)

    def joined(self, name: str, incarnation: str) -> None:
        super().joined(name, incarnation)
        if not self.container:  # where nodes cannot bring a supervisor back, others need it
            forget_environment(self.directory)

    def learn(self) -> None:
        wanted = self.quota.wanted
        if self.machine.wanted != wanted:
            # The wish was written down, but the last supervisor died before the nodes heard of it.
            self.step(Scale(wanted, self.quota.surplus()))

    def scale(self, wanted: int) -> str:
        self.check(wanted)
        before = self.quota.wanted
        self.quota.want(wanted)
        self._resize()
        sentence = scaling(before, wanted)
        if self.quota.short:
            sentence += f"; {self.quota.granted} have slots now, the rest wait for free slots"
        return sentence

    def _resize(self) -> None:
        self.step(Scale(self.quota.wanted, self.quota.surplus()))
        self.want(self.quota.names())

    def options(self, name: str) -> List[str]:
        request = self.request
        place = self.quota.place(name) if request.gpus else 0
        options = gpu_options(place, request.gpus, request.devices)
        return options if request.address == "127.0.0.1" else ["--address", request.address, *options]

    def ended(self) -> Collection[str]:
        task = self.record.task
        return () if task.results or task.folders else self.directory.node_names()

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        return (self._grow(),)

    async def _grow(self) -> None:
        """Takes slots that become free while the job runs below its wanted size, gives back what its cluster needs,
        and polls the queue meanwhile."""
        while True:
            await self._poll()  # at once: another job may have waited for this one to begin
            await asyncio.sleep(GROW_STEP)
            if self.closing or self._leaving is not None:
                continue
            try:
                wish = self.quota.wish()
                if wish is not None:
                    self._give_back(wish)
                if self._leaving is not None or not self.quota.short:
                    continue
                before = self.quota.granted
                self.quota.claim()
            except PetctlError as error:  # on a full disk there is no growth
                log.debug("%s", error)
                continue
            granted, wanted = self.quota.granted, self.quota.wanted
            if granted > before:
                self.journal.event("slots", f"{granted} of {wanted} nodes have slots now", nodes=granted)
                self.step(Scale(wanted))
                self.want(self.quota.names())

    async def _poll(self) -> None:
        """In a thread, because the coordinator must not wait for a process that keeps the slots' file locked."""
        try:
            await asyncio.get_running_loop().run_in_executor(None, self.quota.line.look)
        except (PetctlError, OSError) as error:
            log.debug("%s", error)

    def _give_back(self, wish: GiveBack) -> None:
        name = self.record.cluster
        if wish.end:
            sentence = f"cluster {name} got smaller and ends the jobs on removed nodes (deallocation: terminate)"
            self.step(End(Outcome(CANCELLED, 130, sentence)))
        elif wish.keep:
            self.quota.give_back_to(wish.keep)
            sentence = f"cluster {name} got smaller: {wish.keep} of {self.quota.wanted} nodes stay"
            self.journal.event("slots", sentence, nodes=wish.keep)
            self._resize()
        else:
            self.journal.event("requeue", f"cluster {name} got smaller: {self.job_id} stops and waits")
            self.step(Scale(self.quota.wanted, tuple(self.machine.nodes)))
            self.want([])
            self._leaving = asyncio.get_running_loop().create_task(self._leave())

    async def _leave(self) -> None:
        """Until all nodes have gone, by themselves or by force; then the job waits again, unless it is over."""
        await self.until_ended(self.record.task.grace + LAST_WAIT, lambda: False)
        self.stop(REQUEUED)
