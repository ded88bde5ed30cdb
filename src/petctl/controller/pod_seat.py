"""The seat of a controller in a pod: its files, its port, and whether a newer controller has been made.

A machine whose kubelet has died keeps its pods, and its network. Kubernetes makes another controller then, and leads
new connections to it; the older one keeps the nodes that are connected to it, and would train on with them for ever. It
has no right to ask the cluster, but it can connect to its own address: of two that meet, the one with the lower epoch
ends, and its nodes find the other. No answer has no consequence.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Set, Tuple

from petctl.controller.job_files import Material
from petctl.controller.journals.container import ContainerJournal
from petctl.controller.options import CoordinateOptions
from petctl.controller.seat import DEPOSED, Seat
from petctl.errors import PetctlError
from petctl.rendezvous.net.calls import NAMES, WHOLE, Call
from petctl.rendezvous.net.client import ControlLink
from petctl.rendezvous.net.join_file import JoinFile
from petctl.rendezvous.net.listener import allow_many_connections
from petctl.rendezvous.net.server import CoordinatorServer
from petctl.rendezvous.net.tls import certificate_pin, server_context
from petctl.text import counted

if TYPE_CHECKING:
    import ssl

    from petctl.controller.job_controller import JobController

EVERY = 10.0  # seconds: a new controller waits longer than that for the nodes of the last round
WITHIN = 5.0  # seconds for an answer
CALLERS_WAIT = 1.0  # seconds for clients that watch to hear the end

log = logging.getLogger(__name__)


class PodSeat(Seat):
    """One process of one container: the `start`-th. `listens` is called when it does."""

    def __init__(
        self,
        options: CoordinateOptions,
        start: int,
        material: Material,
        archive: str,
        journal: ContainerJournal,
        listens: Callable[[], object],
    ) -> None:
        """`archive`: the path of the job's code; empty where it has none of its own."""
        self._options, self._start, self._material, self._archive = options, start, material, archive
        self._journal, self._listens = journal, listens
        self.fresh = options.replacement == 0 and start == 0
        self._rivals: Set[int] = set()  # epochs of controllers that went on beside this one
        self._watch: Optional[AddressWatch] = None

    async def take(self, job: JobController) -> bool:
        self._job = job
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled, number)
        self._introduce()
        return True

    def _introduce(self) -> None:
        """The first event, and a first status."""
        journal, history, number = self._journal, self._journal.history, self._options.replacement
        if self.fresh:
            wanted = self._job.nodes.first_config().wanted
            journal.event("started", f"{self._job.record.id} starts with {counted(wanted, 'node')}", nodes=wanted)
            return
        # Whether the workers train is not changed by which process coordinates them.
        state = "running" if history.rounds and history.broken is None else "recovering"
        journal.status = replace(journal.status, state=state)
        if self._start == 0:
            journal.event("replaced", f"the coordinator was replaced: this is number {number + 1}", replacement=number)
        else:
            journal.event("restarted", "the coordinator was restarted in its container", start=self._start)

    def _signalled(self, number: int) -> None:
        self._job.stop(128 + number)
        self._job.hurry(0.0)  # where the end is on record, the exit code has to say it

    async def listen(self, server: CoordinatorServer) -> None:
        host, port = self._options.listen, self._options.port
        allow_many_connections()
        try:
            await server.listen(host, port)
        except OSError as error:
            raise PetctlError(
                f"cannot listen on {host}, port {port}: {error.strerror}; is another process using it?"
            ) from None
        self._listens()
        join = self._material.join()
        if join is not None:
            loop = asyncio.get_running_loop()
            self._watch = AddressWatch(join, self._claim, lambda epoch: loop.call_soon_threadsafe(self._deposed, epoch))
            self._watch.start()

    def token(self) -> str:
        return self._material.token

    def encryption(self) -> Tuple[Optional[ssl.SSLContext], str]:
        certificate, key = self._material.certificate, self._material.key
        return server_context(certificate, key), certificate_pin(certificate)

    def secret_values(self) -> Dict[str, str]:
        return self._material.secret_values()

    def archive(self) -> str:
        if not self._archive:
            raise PetctlError(f"{self._job.record.id} has no code of its own here")
        return self._archive

    def calls(self) -> Dict[str, Call]:
        return {"contend": Call(self._contend, {"epoch": WHOLE, "number": WHOLE, "nodes": NAMES})}

    def leave(self, code: int) -> None:
        if self._watch is not None:
            self._watch.close()

    async def finish(self) -> None:
        job = self._job
        assert job.outcome is not None
        await self._journal.close(job.outcome, results=job.results())
        await job.server.until_callers_left(CALLERS_WAIT)
        self.leave(0)

    # -- which controller the job has ----------------------------------------------------------------------------------

    def _claim(self) -> Dict[str, Any]:
        machine = self._job.machine
        return {"epoch": self._job.epoch, "number": machine.ran, "nodes": list(machine.places)}

    def _deposed(self, epoch: int) -> None:
        """A newer controller has the job. One that has recorded the job's end still tells it to its nodes."""
        if self._job.stop(DEPOSED):
            self._journal.event("deposed", f"a newer coordinator took over with epoch {epoch}")

    def _contend(self, epoch: int, number: int, nodes: List[str]) -> Dict[str, Any]:
        """Another controller of this job asks which has it: of the two the older one ends."""
        if epoch > self._job.epoch:
            asyncio.get_running_loop().call_soon(self._deposed, epoch)
        elif epoch < self._job.epoch and epoch not in self._rivals:
            self._rivals.add(epoch)
            self._journal.event("overlap", self._overlap(number, nodes), epoch=epoch, round=number, nodes=nodes)
        return {"epoch": self._job.epoch}

    def _overlap(self, number: int, nodes: List[str]) -> str:
        """What the user must know of a controller that went on beside this one."""
        there = f"round {number} on {counted(len(nodes), 'node')}" if nodes else "no round"
        words = f"the previous coordinator was still running: it had {there}; stopping it"
        if self._job.opened is None or not nodes:
            return f"{words}; nothing was trained twice"
        seconds = time.time() - self._job.opened
        mixed = "so the checkpoints from that time mix two trainings"
        twice = f"two coordinators trained at once for {seconds:.1f} s, {mixed}"
        self.remark = f"beside the coordinator before: {twice}"
        return f"{words}; {twice}"


class AddressWatch:
    """Asks, from a thread, which controller is at the job's address. `claim`: what that one is told; `lost`: called
    with the epoch that won."""

    def __init__(self, join: JoinFile, claim: Callable[[], Mapping[str, Any]], lost: Callable[[int], object]) -> None:
        self._join, self._claim, self._lost = join, claim, lost
        self._closed = threading.Event()

    def start(self) -> None:
        """Begins; until `close`."""
        threading.Thread(target=self._run, name="seat", daemon=True).start()

    def close(self) -> None:
        """Nothing is asked any more."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(EVERY):
            claim = dict(self._claim())
            try:
                with ControlLink(self._join) as link:
                    link.connect(WITHIN)
                    answer: Dict[str, Any] = link.call("contend", WITHIN, **claim)
                epoch = int(answer["epoch"])
            except (PetctlError, OSError, ValueError, TypeError, KeyError) as error:
                log.debug("cannot check the seat: %s", error)
                continue
            if epoch > claim["epoch"] and not self._closed.is_set():
                self._lost(epoch)
                return
