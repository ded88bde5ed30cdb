"""The coordinator of one job in a pod: the rendezvous, and all that others may know or want of the job.

    nodes   <-- TLS -->  CoordinatorServer  <->  ObservedCoordinator          control calls: status, watch, scale,
                                                     |                        resize, cancel, code
    stdout  <-- events --  Board  <------------------'
    termination message  <-- the outcome, before anybody is told

It starts no node and knows no interface of a cluster: nodes come by themselves, named by their index. Killed, it is
started anew in the same container (`init_process.py`) and remembers what is in the container (`state_dir.py`). In
another container it knows only what the nodes tell: which round runs, what was spent, how many nodes are wanted, and
the rounds before, which some of them keep for it; the time limit counts from its own start there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import time
from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from petctl.agent.data.code_source import serve
from petctl.controller import init_process
from petctl.controller.job_files import Material
from petctl.controller.options import CoordinateOptions
from petctl.controller.scaling import Sizing
from petctl.controller.seat import Seat
from petctl.controller.signing import Signing
from petctl.controller.state_dir import Memory
from petctl.controller.status.builder import members_of, node_rows, progress_of, sentence_of, state_of
from petctl.controller.status.event_printer import Printer
from petctl.controller.status.publisher import Board
from petctl.controller.status.records import UNSAVED_TOLD, first_status, read_events, results_place
from petctl.controller.termination_message import read_message, write_message
from petctl.controller.traced_machine import ObservedCoordinator
from petctl.errors import NotFound, PetctlError, UsageError
from petctl.job.status import JobStatus, SizeStatus
from petctl.job.task import encode_task
from petctl.rendezvous.core.events import End, Event, Lost, Roster
from petctl.rendezvous.core.messages import CANCELLED, ENDED_FAILED, UNSAVED, Header, Outcome, decode_outcome
from petctl.rendezvous.net.calls import FLAG, NAMES, NUMBER, WHOLE, Call
from petctl.rendezvous.net.listener import allow_many_connections
from petctl.rendezvous.net.server import CoordinatorServer
from petctl.rendezvous.net.tls import certificate_pin, server_context
from petctl.storage.core.grants import Grants
from petctl.text import counted

EPOCHS = 1_000_000  # of one container: its own counter is below that, the counter of containers above
LAST_PATIENCE = 10.0  # beyond the grace: nodes that have not gone by then are not waited for
SEND_STEP = 1.0  # ... unless they send results: seconds between two looks
CALLERS_PATIENCE = 1.0  # ... and those who watch, to hear the end
PRINT_PATIENCE = 5.0  # seconds for a reader to take the last events
STOP_PATIENCE = 0.5  # ... of a coordinator that was asked to stop: there will be another


def run(options: CoordinateOptions, start: int, ready: int) -> int:
    """The process: `start` is its number in this container, `ready` is written to when it listens."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    material = Material(options.job)
    printer = Printer(torn=start > 0)

    async def live() -> int:
        coordinator = PodCoordinator(options, material, start, printer)
        return await coordinator.run(lambda: os.write(ready, b"."))

    code = asyncio.run(live())
    printer.finish(PRINT_PATIENCE if code == init_process.OVER else STOP_PATIENCE)
    return code


class PodCoordinator:
    """One job, as far as this process sees it. Made inside the running loop."""

    def __init__(self, options: CoordinateOptions, material: Material, start: int, printer: Printer) -> None:
        self._options, self._record, self._id = options, material.record, material.record.id
        self._material = material
        self._start = start
        self._fresh = options.replacement == 0 and start == 0
        self._epoch = (options.replacement + 1) * EPOCHS + start
        self._config = self._record.config
        self._memory = Memory(options.state)
        self._has_code = material.join_code(self._memory.archive)
        past = read_events(self._memory.events)
        self._began = float(past[0]["time"]) if past else time.time()
        self._board = Board(first_status(self._record), past, self._epoch, self._memory.events, printer)
        message = read_message(options.message)
        self._closed_before = message is not None
        self._outcome = decode_outcome(message["outcome"]) if message else None  # the job's, once it is on record
        self._finished = float(message["finished"]) if message else 0.0
        self._over = asyncio.Event()
        self._fewer = asyncio.Event()  # a node has gone, or the user is in a hurry
        self._hurried_until = float("inf")
        self._opened: Optional[float] = None  # when the first round began that this one opened
        self._unsaved: List[str] = []  # what nodes said of files that are lost with them
        self._twice = ""  # what was trained beside this one, for the status
        self._rivals: Set[int] = set()  # epochs of coordinators that went on beside this one
        self._stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._signing = self._make_signing()
        self._machine = self._make_machine()
        self._sizing = self._make_sizing()
        self._server = self._make_server()

    def _make_machine(self) -> ObservedCoordinator:
        history = self._board.history
        wanted = self._memory.wanted or self._material.wanted or self._config.wanted
        wanted = max(self._config.min_nodes, min(wanted, self._config.max_nodes))
        config = replace(self._config, wanted=wanted)
        memory = None if self._fresh else Header(round=history.round, ran=history.round, spent=history.spent)
        now, leader = asyncio.get_running_loop().time(), secrets.token_hex(8)
        return ObservedCoordinator(config, now, leader, self._epoch, self._fresh, self._outcome, memory)

    def _make_sizing(self) -> Sizing:
        numbered = bool(self._record.request.get("numbered", True))
        return Sizing(
            self._id, self._config, numbered, self._machine, self._memory, lambda fact: self._server.step(fact)
        )

    def _make_signing(self) -> Optional[Signing]:
        found = self._material.grants()
        if not found:
            return None
        grants = Grants(found)
        return Signing(lambda: grants, self._board.event, self._board.touch)

    def _make_server(self) -> CoordinatorServer:
        certificate, key = self._material.certificate, self._material.key
        control: Dict[str, Call] = {
            "status": Call(self._board.now),
            "totals": Call(lambda: {**self._board.totals(), "spent": self._machine.budget.spent}),
            "watch": Call(self._board.watch, {"seen": WHOLE, "within": NUMBER}),
            "scale": Call(self._sizing.scale, {"wanted": WHOLE}),
            "resize": Call(self._sizing.resize, {"wanted": WHOLE, "nodes": NAMES}),
            "cancel": Call(self._cancel, takes={"kill": FLAG}),
            "contend": Call(self._contend, {"epoch": WHOLE, "number": WHOLE, "nodes": NAMES}),
            "code": Call(self._code, {"offset": WHOLE, "size": WHOLE}, nodes=True),
            **(self._signing.calls() if self._signing else {}),
        }
        values, self._problem = self._secret_values()
        return CoordinatorServer(
            self._machine,
            self._material.token,
            {"task": encode_task(replace(self._record.task, secrets=values))},
            self._keep_outcome,
            self._on_effect,
            control,
            server_context(certificate, key),
            certificate_pin(certificate),
        )

    def _secret_values(self) -> Tuple[Dict[str, str], str]:
        """The values, or why the job cannot have them."""
        try:
            return self._material.secret_values(), ""
        except UsageError as error:
            return {}, str(error)

    async def run(self, listens: Callable[[], object]) -> int:
        """Until the job is over and its nodes have gone, or this process must go; its exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        allow_many_connections()
        self._introduce()
        await self._listen()
        listens()
        self._begin()
        seat = self._take_seat()
        limit, end = loop.create_task(self._limit_time()), loop.create_task(self._see_to_the_end())
        either: Set[asyncio.Future[int]] = {self._stopped, end}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        limit.cancel()
        if seat is not None:
            seat.close()
        self._server.close()
        await asyncio.sleep(0)  # the last words are written before the loop ends
        return end.result() if end.done() else self._stopped.result()

    async def _listen(self) -> None:
        host, port = self._options.listen, self._options.port
        try:
            await self._server.listen(host, port)
        except OSError as error:
            raise PetctlError(
                f"cannot listen on {host}, port {port}: {error.strerror}; is another process using it?"
            ) from None

    def _introduce(self) -> None:
        """The first event, and a first picture."""
        board, history = self._board, self._board.history
        if not self._fresh:  # whether the workers train is not changed by who coordinates them
            state = "running" if history.rounds and history.broken is None else "recovering"
            board.status = replace(board.status, state=state)
        board.picture = self._picture
        self._machine.observe = board.touch
        if self._fresh:
            wanted = self._machine.wanted
            board.event("started", f"{self._id} starts with {counted(wanted, 'node')}", nodes=wanted)
        elif self._start == 0:
            sentence = f"the coordinator was replaced: this is number {self._options.replacement + 1}"
            board.event("replaced", sentence, replacement=self._options.replacement)
        else:
            board.event("restarted", "the coordinator was restarted in its container", start=self._start)

    def _begin(self) -> None:
        if self._outcome is not None:
            self._over.set()
        elif self._problem:
            self._server.step(End(Outcome(ENDED_FAILED, NotFound.code, self._problem)))
        else:
            if self._options.nobody and self._start == 0:  # by the next start in this container some may run
                self._server.step(Roster(()))
            self._sizing.begin(self._fresh, self._options.replacement == 0 or self._options.nobody)

    def _signalled(self, number: int) -> None:
        if self._outcome is None:
            self._stop(128 + number)
        else:  # the end is on record, so the exit code has to say it
            self._hurry(0.0)

    def _hurry(self, patience: float) -> None:
        """Nodes are not waited for any longer than that."""
        self._hurried_until = asyncio.get_running_loop().time() + patience
        self._fewer.set()

    def _stop(self, code: int) -> None:
        """This process ends at once; the job does not."""
        if not self._stopped.done():
            self._stopped.set_result(code)

    # -- at work -------------------------------------------------------------------------------------------------------

    def _on_effect(self, effect: object) -> None:
        if isinstance(effect, Lost):
            self._fewer.set()
            self._sizing.lost(effect.node)
        elif isinstance(effect, Event) and not (self._outcome is not None and effect.kind == "lost"):
            data = dict(effect.data)
            if effect.kind == "running" and self._opened is None:
                self._opened = time.time()
            if effect.kind in ("running", "continued"):
                data.setdefault("nodes", list(self._machine.places))
                data.setdefault("world_size", self._machine.status()["world_size"])
                data["members"] = members_of(self._machine)
            if effect.kind == UNSAVED:
                self._unsaved.append(effect.sentence)
            self._board.event(effect.kind, effect.sentence, **data)
            if effect.kind in ("running", "continued", "history"):
                self._server.entrust(self._board.history.kept())
            if effect.kind in ("continued", "round"):
                self._sizing.learn()
            elif effect.kind == "deposed":
                self._stop(init_process.DEPOSED)

    def _picture(self, before: JobStatus) -> JobStatus:
        facts, board = self._machine.status(), self._board
        rows = node_rows(facts, {})
        outcome, wanted = self._outcome, self._machine.wanted
        ran = bool(board.history.rounds) or self._machine.ran > 0
        words = sentence_of(facts, len(rows), outcome.sentence if outcome else "", wanted, wanted)
        return replace(
            before,
            state=state_of(facts["phase"], before.state, ran),
            sentence=f"{words}; beside the coordinator before: {self._twice}" if self._twice else words,
            size=self._size(),
            round=facts["round"],
            epoch=facts["epoch"],
            spent=facts["spent"],
            world_size=facts["world_size"],
            nodes=rows,
            progress=progress_of(facts) or before.progress,
            results=self._results(),
        )

    def _results(self) -> str:
        """Where results go, and why some do not."""
        trouble = self._signing.sentence() if self._signing else ""
        parts = (results_place(self._record), trouble, *self._unsaved[:UNSAVED_TOLD])
        return "; ".join(part for part in parts if part)

    def _size(self) -> SizeStatus:
        return SizeStatus(self._config.min_nodes, self._machine.wanted, self._config.max_nodes)

    async def _limit_time(self) -> None:
        """From the job's first start, as far as this container knows it; else from the container's."""
        limit = self._record.max_time
        if limit:
            await asyncio.sleep(max(0.0, self._began + limit - time.time()))
            self._server.step(End(Outcome(ENDED_FAILED, 124, f"over the time limit of {limit:g} s")))

    # -- who coordinates ---------------------------------------------------------------------------------------------

    def _take_seat(self) -> Optional[Seat]:
        join, loop = self._material.join(), asyncio.get_running_loop()
        if join is None:
            return None

        def lost(epoch: int) -> None:
            loop.call_soon_threadsafe(self._deposed, epoch)

        seat = Seat(join, self._claim, lost)
        seat.watch()
        return seat

    def _claim(self) -> Dict[str, Any]:
        return {"epoch": self._epoch, "number": self._machine.ran, "nodes": list(self._machine.places)}

    def _deposed(self, epoch: int) -> None:
        """A newer coordinator has the seat. One that has recorded the job's end still tells it to its nodes."""
        if self._outcome is None and not self._stopped.done():
            self._board.event("deposed", f"a newer coordinator took over with epoch {epoch}")
            self._stop(init_process.DEPOSED)

    def _contend(self, epoch: int, number: int, nodes: List[str]) -> Dict[str, Any]:
        """Another coordinator of this job asks who has the seat: of the two the older one goes."""
        if epoch > self._epoch:
            asyncio.get_running_loop().call_soon(self._deposed, epoch)
        elif epoch < self._epoch and epoch not in self._rivals:
            self._rivals.add(epoch)
            self._board.event("overlap", self._overlap(number, nodes), epoch=epoch, round=number, nodes=nodes)
        return {"epoch": self._epoch}

    def _overlap(self, number: int, nodes: List[str]) -> str:
        """What the user must know of a coordinator that went on beside this one."""
        there = f"round {number} on {counted(len(nodes), 'node')}" if nodes else "no round"
        words = f"the previous coordinator was still running: it had {there}; stopping it"
        if self._opened is None or not nodes:
            return f"{words}; nothing was trained twice"
        both = time.time() - self._opened
        self._twice = (
            f"two coordinators trained at once for {both:.1f} s, so the checkpoints from that time mix two trainings"
        )
        return f"{words}; {self._twice}"

    # -- what the user wants -------------------------------------------------------------------------------------------

    def _cancel(self, kill: bool = False) -> str:
        if kill:
            self._hurry(LAST_PATIENCE)
        if self._outcome is None:
            sentence = "killed by the user" if kill else "cancelled by the user"
            self._server.step(End(Outcome(CANCELLED, 130, sentence)))
        return "killing" if kill else "cancelling"

    def _code(self, offset: int, size: int) -> Dict[str, object]:
        if not self._has_code:
            raise PetctlError(f"{self._id} has no code of its own here")
        return serve(str(self._memory.archive), offset, size)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _keep_outcome(self, outcome: Outcome) -> Optional[Outcome]:
        """Makes the end durable; after this the job is over, whoever is killed next."""
        if self._outcome is None:
            self._board.freeze()
            self._finished = time.time()
            write_message(
                self._options.message,
                outcome,
                started=self._board.history.started,
                finished=self._finished,
                spent=self._machine.budget.spent,
                round=self._machine.ran,
                rounds=self._board.history.ran,
                size=vars(self._size()),
            )
            self._outcome = outcome
        self._over.set()
        return self._outcome

    async def _see_to_the_end(self) -> int:
        """When the job is over: until its nodes know, and have gone."""
        await self._over.wait()
        await self._until_gone()
        assert self._outcome is not None
        await self._board.close(self._outcome, self._finished, results=self._results())
        await self._server.until_callers_left(CALLERS_PATIENCE)
        return init_process.OVER

    def _some_send(self) -> bool:
        return any(node.connected and node.report.sending for node in self._machine.nodes.values())

    async def _until_gone(self) -> None:
        loop = asyncio.get_running_loop()
        # Nodes that heard nothing of the end yet connect again within this time.
        within = self._config.recover_within or self._config.silence
        back_by = loop.time() + (within if self._closed_before else 0.0)
        end = loop.time() + self._record.task.grace + LAST_PATIENCE
        while True:
            if self._some_send():  # they give up by themselves when nothing moves any more
                end = max(end, loop.time() + SEND_STEP)
            until = min(self._hurried_until, end if self._machine.nodes else back_by)
            left = until - loop.time()
            if left <= 0:
                return
            self._fewer.clear()
            try:
                await asyncio.wait_for(self._fewer.wait(), left)
            except asyncio.TimeoutError:
                pass
