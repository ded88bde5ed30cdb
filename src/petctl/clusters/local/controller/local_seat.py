"""The seat of a local job's controller: the process that holds the supervisor's lock, with a standby beside it.

    in the queue for slots -> coordinator's port -> (nodes, rounds) -> outcome -> nothing left running -> slots back

A job whose cluster takes all of its nodes back leaves the seat, and waits in the queue again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Coroutine, Dict, Optional, Sequence, Tuple

from petctl.clusters.local.controller.standby import CROWDED_DELAY, DELAY, FIRST_DELAY, Standby
from petctl.clusters.local.controller.start_environment import forget_environment, keep_environment, lost_variables
from petctl.clusters.local.finalize import CANCELLED_IN_LINE, clear, finished_at
from petctl.clusters.local.job_directory import JobDirectory, write_json
from petctl.clusters.local.processes import boot_id
from petctl.clusters.local.queue.node_quota import NodeQuota
from petctl.clusters.local.record import LocalRequest
from petctl.controller.seat import REQUEUED, Seat
from petctl.errors import PetctlError
from petctl.files import read_json_or_none
from petctl.rendezvous.core.messages import CANCELLED, Outcome
from petctl.rendezvous.net.frames import PLAIN
from petctl.rendezvous.net.listener import allow_many_connections
from petctl.rendezvous.net.locator import join_address
from petctl.rendezvous.net.server import CoordinatorServer
from petctl.secret_file import secret_values
from petctl.text import counted

if TYPE_CHECKING:
    import ssl

    from petctl.controller.job_controller import JobController

QUEUE_STEP = 0.2  # seconds between two polls of the head of the queue

log = logging.getLogger(__name__)


class LocalSeat(Seat):
    """One supervisor's."""

    def __init__(self, directory: JobDirectory, request: LocalRequest, quota: NodeQuota) -> None:
        self.directory, self.request, self.quota = directory, request, quota
        self.standby = Standby(request.supervisor)
        self._ran = False  # it has coordinated the job

    async def take(self, job: JobController) -> bool:
        """Until the job has slots. False: it was cancelled first, or another job is at the head of the queue now, and
        the process that finds this one due starts it again."""
        self.job, directory, arrived = job, self.directory, False
        self.fresh = not directory.coordinator.exists()  # without it, its claim says whether the job has slots
        if job.outcome is not None:
            return True
        if not self.fresh:
            self.quota.resume()
            return True
        while True:
            if directory.cancel.exists():
                await job.end_without_nodes(Outcome(CANCELLED, 130, CANCELLED_IN_LINE))
                return False
            try:
                turn = self.quota.turn()
                if turn.granted:
                    granted, wanted = self.quota.granted, self.quota.wanted
                    sentence = f"{directory.id} starts with {granted} of {counted(wanted, 'node')}"
                    job.journal.event("started", sentence, nodes=granted)
                    lost = lost_variables(directory, job.record)
                    if lost:
                        job.journal.event("environment", lost)
                    return True
                if not turn.first:
                    return False
                if not arrived:
                    self.quota.arrived()
                    arrived = True
            except PetctlError as error:  # commands that ask for the job's status are told
                log.debug("%s", error)
            await asyncio.sleep(QUEUE_STEP)

    async def listen(self, server: CoordinatorServer) -> None:
        """Takes the port of the last supervisor if it is still free, so that join files given out keep working."""
        self._ran = True
        allow_many_connections()
        known = read_json_or_none(self.directory.coordinator) or {}
        last = int(str(known.get("address", ":0")).rpartition(":")[2] or 0)
        try:
            _, port = await server.listen(self.request.listen, last)
        except OSError:
            _, port = await server.listen(self.request.listen, 0)
        address = join_address(self.request.address, port)
        place = {"address": address, "pid": os.getpid(), "epoch": self.job.epoch, "boot": boot_id()}
        write_json(self.directory.coordinator, place, reserved=True)

    def token(self) -> str:
        return self.directory.token.read_text().strip()

    def encryption(self) -> Tuple[Optional[ssl.SSLContext], str]:
        """TLS for a job that was given a certificate; plain on loopback."""
        if not self.directory.certificate.exists():
            return None, PLAIN
        from petctl.rendezvous.net.tls import certificate_pin, server_context

        return server_context(self.directory.certificate, self.directory.key), certificate_pin(
            self.directory.certificate
        )

    def secret_values(self) -> Dict[str, str]:
        return secret_values(self.directory.home, self.job.record.secrets)

    def archive(self) -> str:
        return self.job.record.task.code.archive

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        delay = DELAY if not self.fresh else CROWDED_DELAY if self.quota.line.crowded else FIRST_DELAY
        return (self.standby.keep(delay),)

    def leave(self, code: int) -> None:
        """Another supervisor has the job, and a standby of this one would only take it back; or it waits again."""
        if code == REQUEUED:
            journal = self.job.journal
            sentence = f"queued again: cluster {self.job.record.cluster} got smaller"
            journal.event("requeued", sentence)
            journal.picture = lambda status: replace(status, state="queued", sentence=sentence, nodes=[], world_size=0)
            journal.write()
            keep_environment(self.directory)
            self.directory.coordinator.unlink(missing_ok=True)
            self.quota.requeue()
        self.standby.dismiss()

    async def finish(self) -> None:
        job, directory = self.job, self.directory
        assert job.outcome is not None
        why_not = clear(directory, self.request.container)
        if why_not:
            job.journal.event("node", why_not)
        due = self.quota.leave()
        # Once the last node has gone, where there were any: the grace is part of the job's time.
        finished = time.time() if self._ran else finished_at(directory)
        job.journal.finish(job.outcome, finished, results=job.results())
        self.quota.line.start(due)
        self.standby.dismiss()  # last: it goes on with what a killed supervisor has left undone
        forget_environment(directory)
        directory.give_back()
