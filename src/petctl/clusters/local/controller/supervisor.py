"""The process that looks after one local job: `python -m petctl.clusters.local.controller.supervisor JOBDIR`.

    lock -> epoch -> in line for slots -> coordinator + node keeper in one loop -> outcome -> nodes gone -> slots back

It outlives the command that started it. Killed at any moment, it is replaced by its standby, or else by a new one
that an agent starts, which takes up where the job's files and the nodes' reports say it is; the lock keeps it the
only one. Everything about who trains with whom is the coordinator's; everything about processes is the keeper's; this
file connects them and obeys the user.

Standard library and petctl's own agent side only: its start-up is part of every job's first line.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Dict, List, Optional

from petctl.clusters.local.controller.endpoint import encryption, open_port
from petctl.clusters.local.controller.journal import Recorder
from petctl.clusters.local.controller.last_nodes import LAST_PATIENCE, until_gone
from petctl.clusters.local.controller.node_runner import REPLACE_PATIENCE, START_PATIENCE, NodeKeeper
from petctl.clusters.local.controller.result_upload import Sending
from petctl.clusters.local.controller.spawn import LOCK_OPTION, take_over
from petctl.clusters.local.controller.standby import CROWDED_DELAY, DELAY, FIRST_DELAY, OPTION, Standby
from petctl.clusters.local.controller.start_environment import forget_environment, lost_variables
from petctl.clusters.local.finalize import CANCELLED_IN_LINE
from petctl.clusters.local.gpus import gpu_options
from petctl.clusters.local.job_directory import JobDirectory, raise_epoch, read_json, write_once
from petctl.clusters.local.processes import sweep
from petctl.clusters.local.queue.node_quota import NodeQuota
from petctl.clusters.local.queue.queue import look
from petctl.clusters.local.record import LocalRequest, find_record, find_status
from petctl.controller.status.builder import members_of, node_rows, progress_of, sentence_of, state_of
from petctl.controller.status.records import UNSAVED_TOLD, results_place
from petctl.controller.traced_machine import ObservedCoordinator
from petctl.errors import NotFound, PetctlError, UsageError
from petctl.files import wait_for_lock
from petctl.job.record import JobRecord
from petctl.job.status import JobStatus, SizeStatus
from petctl.job.task import encode_task
from petctl.rendezvous.core.events import End, Event, Lost, Scale
from petctl.rendezvous.core.messages import CANCELLED, ENDED_FAILED, UNSAVED, Header, Outcome, decode_outcome, encode
from petctl.rendezvous.net.calls import FLAG, WHOLE, Call
from petctl.rendezvous.net.server import CoordinatorServer
from petctl.secret_file import secret_values
from petctl.text import counted, scaling

if TYPE_CHECKING:
    from petctl.clusters.local.pools.model import GiveBack

QUEUE_STEP = 0.2  # seconds between two looks of the head of the line
GROW_STEP = 1.0  # ... and of every job that runs, for slots that it may take and for others that are due
RECOVERY = 15.0  # until a round goes on without a node that lives and has not found the new supervisor

log = logging.getLogger("petctl.supervisor")


class Supervisor:
    """One job's life on this machine, from its place in the queue to the end of its last process."""

    def __init__(self, directory: JobDirectory, record: JobRecord, epoch: int) -> None:
        self.directory, self.record, self.epoch = directory, record, epoch
        self.request = LocalRequest.of(record)
        self.size = record.config
        self.allotment = NodeQuota(directory, record)
        self.recorder = Recorder(directory, record)
        self.sending = Sending(directory, record, self.recorder.event, self.recorder.touch)
        self.standby = Standby(self.request.supervisor)
        self.machine: Optional[ObservedCoordinator] = None
        self.outcome = _read_outcome(directory)
        self.finished = time.time()
        self.over = asyncio.Event()
        self.unsaved: List[str] = []  # what nodes of other machines said of files that stay there
        self.fewer = asyncio.Event()  # a node has gone
        self.kill_wanted = False
        self.going_back = False  # into the line: its cluster needs the nodes
        self.deposed = False  # a newer supervisor coordinates the job

    async def run(self) -> None:
        """The whole life; returns when nothing of the job is left, or when it is not at the head of the line."""
        if not await self._wait_in_line():
            return
        try:
            await self._look_after(secret_values(self.directory.home, self.record.secrets))
        except NotFound as error:  # removed since the job was submitted, or since its last supervisor was killed
            outcome = Outcome(ENDED_FAILED, error.code, str(error))
            if any(self.directory.node_alive(name) for name in self.directory.node_names()):
                await self._look_after({}, outcome)
            else:
                self._settle_without_nodes(outcome)

    # -- in line -------------------------------------------------------------------------------------------------------

    async def _wait_in_line(self) -> bool:
        """Until slots are ours. False: it was cancelled first, or another job is at the head of the line now, and
        whoever looks when this one is due starts it again."""
        if self.outcome is not None:
            return True
        if self.directory.coordinator.exists():  # until then it has no nodes, and its claim says whether it has slots
            self.allotment.resume()
            return True
        arrived = False
        while True:
            if self.directory.cancel.exists():
                self._settle_without_nodes(Outcome(CANCELLED, 130, CANCELLED_IN_LINE))
                return False
            try:
                turn = self.allotment.turn()
                if turn.granted:
                    granted, wanted = self.allotment.granted, self.allotment.wanted
                    self.recorder.event(
                        "started",
                        f"{self.directory.id} starts with {granted} of {counted(wanted, 'node')}",
                        nodes=granted,
                    )
                    lost = lost_variables(self.directory, self.record)
                    if lost:
                        self.recorder.event("environment", lost)
                    return True
                if not turn.first:
                    return False
                if not arrived:
                    self.allotment.arrived()
                    arrived = True
            except PetctlError as error:  # whoever asks for the job's status is told
                log.debug("%s", error)
            await asyncio.sleep(QUEUE_STEP)

    def _settle_without_nodes(self, outcome: Outcome) -> None:
        self._record(outcome)
        self.recorder.event("closing", f"{outcome.state}: {outcome.sentence}")
        self._finish()

    # -- at work -------------------------------------------------------------------------------------------------------

    async def _look_after(self, values: Dict[str, str], end: Optional[Outcome] = None) -> None:
        """Coordinates the nodes and keeps them until the job is over; with `end` only to tell them so."""
        welcome = {"task": encode_task(replace(self.record.task, secrets=values))}
        loop = asyncio.get_running_loop()
        fresh = not self.directory.coordinator.exists()  # no supervisor before this one had any nodes
        config = replace(self.size, wanted=self.allotment.wanted, recover_within=RECOVERY)
        history = self.recorder.history
        memory = Header(round=history.round, ran=history.round, spent=history.spent) if history.round else None
        machine = ObservedCoordinator(
            config, loop.time(), secrets.token_hex(8), self.epoch, fresh, self.outcome, memory
        )
        control = {
            "scale": Call(self._scale, {"wanted": WHOLE}),
            "cancel": Call(self._cancel, takes={"kill": FLAG}),
            "code": Call(self._code, {"offset": WHOLE, "size": WHOLE}, nodes=True),
            **self.sending.calls(),
        }
        tls, binding = encryption(self.directory)
        token = self.directory.token.read_text().strip()
        self.server = CoordinatorServer(machine, token, welcome, self._record, self._on_effect, control, tls, binding)
        container = self.request.container
        self.keeper = NodeKeeper(
            self.directory, self.recorder, self._node_options, self.server.step, self._connected, container
        )
        await open_port(self.server, self.directory, self.request, self.epoch)
        self.machine = machine
        self.recorder.picture = self._picture
        machine.observe = self.recorder.touch
        self.keeper.adopt(self.allotment.names())
        if self.outcome is not None:
            self._close_nodes()
        elif end is not None:
            self.server.step(End(end))
        elif self.directory.cancel.exists():
            self._cancel(bool((read_json(self.directory.cancel) or {}).get("kill")))
        else:
            self.keeper.want(self.allotment.names(), START_PATIENCE if fresh else REPLACE_PATIENCE)
        watch = [loop.create_task(task) for task in (self._keep_standby(fresh), self._grow(), self._limit_time())]
        await self._until_over()
        if self.outcome is None:
            from petctl.clusters.local.pools.preemption import back_into_the_line

            for task in watch:
                task.cancel()
            if self.deposed:  # the nodes are another supervisor's by now; a standby would only take them back
                self.standby.dismiss()
            else:
                back_into_the_line(self)
            self.server.close()
            return
        await until_gone(self)
        await self.sending.send_the_rest()
        for task in watch:
            task.cancel()
        self._finish()
        self.server.close()
        await asyncio.sleep(0)  # the last words are written before the loop ends

    async def _until_over(self) -> None:
        """Until the job has an outcome, or none of its nodes because they went back to their cluster."""
        await self.over.wait()
        if self.going_back and self.outcome is None:
            from petctl.clusters.local.pools.preemption import leave_nodes  # few jobs have to

            self.over.clear()
            await leave_nodes(self, self.record.task.grace + LAST_PATIENCE)

    async def _keep_standby(self, fresh: bool) -> None:
        crowded = self.allotment.line.crowded
        await self.standby.keep(DELAY if not fresh else CROWDED_DELAY if crowded else FIRST_DELAY)

    def _node_options(self, name: str) -> List[str]:
        request = self.request
        place = self.allotment.place(name) if request.gpus else 0
        options = gpu_options(place, request.gpus, request.devices)
        return options if request.address == "127.0.0.1" else ["--address", request.address, *options]

    def _connected(self, name: str, incarnation: str) -> bool:
        assert self.machine is not None
        node = self.machine.nodes.get(name)
        return node is not None and node.connected and node.report.incarnation == incarnation

    def _on_effect(self, effect: object) -> None:
        if isinstance(effect, Lost):
            self.fewer.set()
            self.keeper.lost(effect.node, effect.incarnation)
        elif isinstance(effect, Event) and not (self.outcome is not None and effect.kind == "lost"):
            data = dict(effect.data)
            if effect.kind == "joined" and self.machine is not None and data["node"] in self.machine.nodes:
                self.keeper.joined(data["node"], self.machine.nodes[data["node"]].report.incarnation)
                if not self.request.container:  # where nodes cannot bring a supervisor back, others need it
                    forget_environment(self.directory)
            if effect.kind == "running" and self.machine is not None:
                data["members"] = members_of(self.machine)
            if effect.kind == UNSAVED:
                self.unsaved.append(effect.sentence)
            self.recorder.event(effect.kind, effect.sentence, **data)
            if effect.kind == "deposed":
                self.deposed = True
                self.over.set()
            wanted = self.allotment.wanted
            if effect.kind in ("continued", "round") and self.machine and self.machine.wanted != wanted:
                # The wish was written down, but the last supervisor died before the nodes heard of it.
                self.server.step(Scale(wanted, self.allotment.surplus()))

    def _picture(self, before: JobStatus) -> JobStatus:
        assert self.machine is not None
        facts = self.machine.status()
        rows = node_rows(facts, self.keeper.rows())
        ending = self.outcome.sentence if self.outcome is not None else ""
        history = self.recorder.history
        return replace(
            before,
            state=state_of(facts["phase"], before.state, bool(history.rounds)),
            sentence=sentence_of(facts, len(rows), ending, self.allotment.granted, self.allotment.wanted)
            if not self.sending.busy
            else f"ending ({ending}): uploading results",
            results=self._results(),
            size=SizeStatus(self.size.min_nodes, self.allotment.wanted, self.size.max_nodes),
            # A new coordinator learns these from its nodes: until then they are what they were.
            round=facts["round"] or history.round,
            epoch=facts["epoch"],
            spent=facts["spent"] if facts["round"] else history.spent,
            world_size=facts["world_size"],
            nodes=rows,
            progress=progress_of(facts) or before.progress,
        )

    # -- what the user wants -------------------------------------------------------------------------------------------

    def _scale(self, wanted: int) -> str:
        size = self.size
        if not size.min_nodes <= wanted <= size.max_nodes:
            raise UsageError(
                f"{self.directory.id} may have {size.min_nodes} to {size.max_nodes} nodes, not {wanted}; "
                "a job's bounds are set when it is submitted"
            )
        if self.outcome is not None:
            raise UsageError(f"{self.directory.id} is ending: {self.outcome.sentence}")
        before = self.allotment.wanted
        self.allotment.want(wanted)
        self.server.step(Scale(wanted, self.allotment.surplus()))
        self.keeper.want(self.allotment.names())
        sentence = scaling(before, wanted)
        if self.allotment.short:
            sentence += f"; {self.allotment.granted} have slots now, the rest wait for free slots"
        return sentence

    def _cancel(self, kill: bool = False) -> str:
        if kill:
            self.kill_wanted = True
            self.sending.give_up()
            self.fewer.set()
        if self.outcome is None:
            self.server.step(End(Outcome(CANCELLED, 130, "killed by the user" if kill else "cancelled by the user")))
        elif kill:
            self.keeper.kill()
        return "cancelling" if not kill else "killing"

    def _code(self, offset: int, size: int) -> Dict[str, object]:
        """A part of the job's code, for a node on another machine."""
        from petctl.agent.data.code_source import serve  # few jobs have such nodes

        return serve(self.record.task.code.archive, offset, size)

    async def _grow(self) -> None:
        """Takes slots that become free while the job runs below its wanted size; looks after the line meanwhile."""
        while True:
            await self._look()  # at once: somebody may have waited for this one to begin
            await asyncio.sleep(GROW_STEP)
            try:
                before = self.allotment.granted
                if self.outcome is not None or self.going_back:
                    continue
                wish = self.allotment.wish()
                if wish is not None:
                    self._obey(wish)
                if not self.allotment.short or self.going_back:
                    continue
                self.allotment.claim()
            except PetctlError as error:  # on a full disk there is no growth
                log.debug("%s", error)
                continue
            if self.allotment.granted > before:
                granted, wanted = self.allotment.granted, self.allotment.wanted
                self.recorder.event("slots", f"{granted} of {wanted} nodes have slots now", nodes=granted)
                self.server.step(Scale(wanted))
                self.keeper.want(self.allotment.names())

    async def _look(self) -> None:
        """At the line; beside the nodes, whose coordinator must not wait for whoever keeps the slots' file locked."""
        try:
            await asyncio.get_running_loop().run_in_executor(None, self.allotment.line.look)
        except (PetctlError, OSError) as error:
            log.debug("%s", error)

    def _obey(self, wish: GiveBack) -> None:
        """Nodes go back to the cluster."""
        from petctl.clusters.local.pools.preemption import apply

        apply(self, wish)
        if self.going_back:
            self.over.set()

    async def _limit_time(self) -> None:
        limit = self.record.max_time
        if limit:
            started = self.recorder.history.started or time.time()
            await asyncio.sleep(max(0.0, started + limit - time.time()))
            self.server.step(End(Outcome(ENDED_FAILED, 124, f"over the time limit of {limit:g} s")))

    # -- the end -------------------------------------------------------------------------------------------------------

    def _record(self, outcome: Outcome) -> None:
        """Makes the end durable; after this the job is over, whoever is killed next."""
        self.finished = time.time()
        self.recorder.freeze()
        write_once(self.directory.outcome, {**encode(outcome), "finished": self.finished})
        self.outcome = _read_outcome(self.directory)
        if self.machine is not None:
            self._close_nodes()

    def _close_nodes(self) -> None:
        self.keeper.close()
        if self.kill_wanted:
            self.keeper.kill()
        self.over.set()

    def _results(self) -> str:
        parts = (results_place(self.record), self.sending.sentence(), *self.unsaved[:UNSAVED_TOLD])
        return "; ".join(part for part in parts if part)

    def _finish(self) -> None:
        assert self.outcome is not None
        sweep(self.directory.id, self.directory.nodes)
        if self.request.container:
            from petctl.clusters.local.containers.node_containers import remove_containers

            why_not = remove_containers(self.request.container, self.directory.id)
            if why_not:
                self.recorder.event("node", why_not)
        due = self.allotment.leave()
        finished = float((read_json(self.directory.outcome) or {}).get("finished", self.finished))
        if self.machine is not None:  # it has seen the last node go: the grace is part of the job's time
            finished = time.time()
        self.recorder.finish(self.outcome, finished, results=self._results())
        self.allotment.line.start(due)
        self.standby.dismiss()  # last: it goes on with whatever a killed supervisor has left undone
        forget_environment(self.directory)
        self.directory.give_back()


def _read_outcome(directory: JobDirectory) -> Optional[Outcome]:
    data = read_json(directory.outcome)
    return decode_outcome(data) if data is not None else None


def supervise(path: Path, standby: bool = False, lock: Optional[int] = None) -> int:
    """Looks after the job unless somebody does already; as a standby, as soon as nobody does. `lock`: the
    supervisor's, from whoever has started it."""
    directory = JobDirectory(path)
    record = find_record(directory)
    if record is None:
        print(f"petctl: {path} is not the directory of a job", file=sys.stderr)
        return 2
    held = wait_for_lock(directory.supervisor_lock) if standby else take_over(lock, directory.supervisor_lock)
    if held is None:
        return 0
    status = find_status(directory)
    if status is not None and status.finished:
        # It ended, or was buried, before an agent's request for a supervisor was carried out; or its supervisor was
        # killed before it could start those whose turn it was.
        look(directory.home, record.cluster)
        return 0
    supervisor = Supervisor(directory, record, raise_epoch(directory))
    asyncio.run(supervisor.run())
    if supervisor.going_back:
        os.close(held)
        look(directory.home, record.cluster)  # it may be due again
    return 0


def main() -> int:
    """Entry of the detached process; what it prints goes to supervisor.log."""
    words = sys.argv[1:]
    lock = int(words[2]) if words[1:2] == [LOCK_OPTION] and words[2:] and words[2].isdigit() else None
    if len(words) != (1 if lock is None else 3) + (OPTION in words):
        print(
            f"usage: python -m petctl.clusters.local.controller.supervisor JOBDIR [{OPTION}|{LOCK_OPTION} N]",
            file=sys.stderr,
        )
        return 2
    # The shell that detached us ignores these on our behalf; workers must get them as the user's own programs do.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    try:
        return supervise(Path(words[0]), OPTION in words, lock)
    except PetctlError as error:
        log.error("%s", error)
        return error.code


if __name__ == "__main__":
    sys.exit(main())
