"""The controller of one job: the rendezvous of its nodes, its status and events, and its end. One class everywhere:

    nodes  <-- TCP -->  CoordinatorServer  <->  Coordinator (pure)        control calls: status, scale, cancel ...
                                |
                          JobController
                |               |               |
              Nodes          Journal           Seat           Signing
        who makes them    what is kept    where this runs    what nodes ask about stores

    local supervisor   LocalNodes      a directory    a lock, a standby    clusters/local/controller
    in a pod           PlatformNodes   a container    an address           platform_nodes.py, pod_seat.py

Killed, it is replaced by another with a higher epoch, which goes on from what the journal and the nodes know.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import replace
from typing import Any, Dict, List, Optional, Sequence, Set

from petctl.controller.journals.journal import Journal
from petctl.controller.journals.records import UNSAVED_TOLD, results_place
from petctl.controller.nodes import LAST_WAIT, Nodes
from petctl.controller.seat import DEPOSED, OVER, Seat
from petctl.controller.signing import Signing
from petctl.controller.status_builder import members_of, node_rows, progress_of, sentence_of, state_of
from petctl.errors import NotFound, UsageError
from petctl.job.record import JobRecord
from petctl.job.status import JobStatus
from petctl.job.task import encode_task
from petctl.rendezvous.core.events import End, Event, Lost
from petctl.rendezvous.core.machine import Coordinator
from petctl.rendezvous.core.messages import CANCELLED, ENDED_FAILED, UNSAVED, Header, Outcome
from petctl.rendezvous.net.calls import FLAG, WHOLE, Call
from petctl.rendezvous.net.server import CoordinatorServer

UPLOAD_STEP = 1.0  # seconds between two looks at nodes that send results


class JobController:
    """One job, as far as this process sees it. Made inside the running loop."""

    machine: Coordinator
    server: CoordinatorServer

    def __init__(
        self, record: JobRecord, epoch: int, journal: Journal, nodes: Nodes, seat: Seat, signing: Signing
    ) -> None:
        self.record, self.epoch = record, epoch
        self.journal, self.nodes, self.seat, self.signing = journal, nodes, seat, signing
        self.outcome = journal.outcome  # the job's, once it is on record
        self.opened: Optional[float] = None  # when the first round began that this controller opened
        self._told_before = self.outcome is not None  # ... to some nodes, perhaps
        self._results_place = results_place(record)
        self._remembered = 0  # the newest round that the journal knew at first
        self._killed = False
        self._hurried_until = float("inf")
        self._unsaved: List[str] = []  # what nodes said of files that are lost with them, or stay on their machine
        self._over = asyncio.Event()
        self._fewer = asyncio.Event()  # a node has gone, or the user is in a hurry
        self._stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._tasks: Sequence[asyncio.Task[None]] = ()

    async def run(self) -> int:
        """Until the job is over and its nodes have gone, or this process must go: OVER, or why."""
        if not await self.seat.take(self):
            return OVER
        problem = self._open()
        await self.seat.listen(self.server)
        self._begin(problem)
        loop = asyncio.get_running_loop()
        work = (self._limit_time(), *self.nodes.tasks(), *self.seat.tasks())
        self._tasks = [loop.create_task(one) for one in work]
        end = loop.create_task(self._see_to_the_end())
        either: Set[asyncio.Future[Any]] = {self._stopped, end}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if end.done() or self.outcome is not None:  # an outcome on record has to reach the nodes
            await end
            code = OVER
        else:
            end.cancel()
            self._cancel_tasks()
            code = self._stopped.result()
            self.seat.leave(code)
        self.server.close()
        await asyncio.sleep(0)  # the last messages are written before the loop ends
        return code

    def _open(self) -> str:
        """Makes machine and server; why the job cannot run, where its secrets are not to be had."""
        history, journal = self.journal.history, self.journal
        now, leader, self._remembered = asyncio.get_running_loop().time(), secrets.token_hex(8), history.round
        memory = Header(round=history.round, ran=history.round, spent=history.spent)
        config = self.nodes.first_config()
        self.machine = Coordinator(config, now, leader, self.epoch, self.seat.fresh, self.outcome, memory)
        values, problem = {}, ""
        try:
            values = self.seat.secret_values()
        except UsageError as error:  # removed since the job was submitted, perhaps
            problem = str(error)
        control: Dict[str, Call] = {
            "totals": Call(lambda: {**journal.totals(), "spent": self.machine.budget.spent}),
            "scale": Call(self.nodes.scale, {"wanted": WHOLE}),
            "cancel": Call(self.cancel, takes={"kill": FLAG}),
            "code": Call(self._code, {"offset": WHOLE, "size": WHOLE}, nodes=True),
            **journal.calls(),
            **self.nodes.calls(),
            **self.seat.calls(),
            **self.signing.calls(),
        }
        welcome = {"task": encode_task(replace(self.record.task, secrets=values))}
        self.server = CoordinatorServer(
            self.machine,
            self.seat.token(),
            welcome,
            self._keep_outcome,
            self._on_effect,
            control,
            *self.seat.encryption(),
            decided=journal.touch,
        )
        self.nodes.attach(self.machine, self.server.step, self.stop)
        journal.picture = self._picture
        return problem

    def _begin(self, problem: str) -> None:
        self.nodes.adopt()
        cancelled = self.journal.cancelled()
        if self.outcome is not None:
            self._close()
        elif problem:
            self.server.step(End(Outcome(ENDED_FAILED, NotFound.code, problem)))
        elif cancelled is not None:
            self.cancel(cancelled)
        else:
            self.nodes.begin(self.seat.fresh)

    def stop(self, code: int) -> bool:
        """This process ends at once; the job does not. False where it ends anyhow, or has an outcome to tell."""
        if self.outcome is not None or self._stopped.done():
            return False
        self._stopped.set_result(code)
        return True

    def hurry(self, within: float) -> None:
        """Nodes are not waited for any longer than that."""
        self._hurried_until = asyncio.get_running_loop().time() + within
        self._fewer.set()

    # -- at work -------------------------------------------------------------------------------------------------------

    def _on_effect(self, effect: object) -> None:
        if isinstance(effect, Lost):
            self._fewer.set()
            self.nodes.lost(effect.node, effect.incarnation)
        elif isinstance(effect, Event) and not (self.outcome is not None and effect.kind == "lost"):
            kind, data = effect.kind, dict(effect.data)
            if kind == "joined" and data["node"] in self.machine.nodes:
                self.nodes.joined(data["node"], self.machine.nodes[data["node"]].report.incarnation)
            elif kind == "running" and self.opened is None:
                self.opened = time.time()
            elif kind == UNSAVED:
                self._unsaved.append(effect.sentence)
            if kind in ("running", "continued"):
                data.setdefault("nodes", list(self.machine.places))
                data.setdefault("world_size", self.machine.status()["world_size"])
                data["members"] = members_of(self.machine)
            self.journal.event(kind, effect.sentence, **data)
            if self.journal.mortal and kind in ("running", "continued", "history"):
                self.server.entrust(self.journal.history.kept())
            if kind in ("continued", "round"):
                self.nodes.learn()
            elif kind == "deposed":
                self.stop(DEPOSED)

    def _picture(self, before: JobStatus) -> JobStatus:
        facts, history = self.machine.status(), self.journal.history
        kept, (wanted, granted) = self.nodes.rows(), self.nodes.counts()
        rows = node_rows(facts, kept)
        ending = self.outcome.sentence if self.outcome is not None else ""
        sentence = sentence_of(facts, len(rows), ending, granted, wanted)
        if self.signing.busy:
            sentence = f"ending ({ending}): uploading results"
        elif self.seat.remark:
            sentence += f"; {self.seat.remark}"
        # A new coordinator learns round and restarts from its nodes: until then they are what they were.
        known = bool(facts["round"])
        return replace(
            before,
            state=state_of(facts["phase"], before.state, bool(history.rounds) or self.machine.ran > self._remembered),
            sentence=sentence,
            results=self.results(),
            size=replace(before.size, wanted=wanted),
            round=facts["round"] if known else history.round,
            epoch=facts["epoch"],
            spent=facts["spent"] if known else history.spent,
            world_size=facts["world_size"],
            nodes=rows,
            progress=progress_of(facts) or before.progress,
        )

    def results(self) -> str:
        """Where results go, and why some do not."""
        parts = (self._results_place, self.signing.sentence(), *self._unsaved[:UNSAVED_TOLD])
        return "; ".join(part for part in parts if part)

    async def _limit_time(self) -> None:
        limit = self.record.max_time
        if limit:
            await asyncio.sleep(max(0.0, self.journal.began + limit - time.time()))
            self.server.step(End(Outcome(ENDED_FAILED, 124, f"over the time limit of {limit:g} s")))

    # -- what the user wants -------------------------------------------------------------------------------------------

    def cancel(self, kill: bool = False) -> str:
        """Ends the job; `kill`: without waiting for its nodes."""
        if kill:
            self._killed = True
            self.signing.give_up()
            self.hurry(self.nodes.kill_wait)
        if self.outcome is None:
            sentence = "killed by the user" if kill else "cancelled by the user"
            self.server.step(End(Outcome(CANCELLED, 130, sentence)))
        elif kill:
            self.nodes.kill()
        return "killing" if kill else "cancelling"

    def _code(self, offset: int, size: int) -> Dict[str, object]:
        """A part of the job's code, for a node that does not have it."""
        from petctl.agent.data.code_source import serve  # costs a start much, and few local jobs have such nodes

        return serve(self.seat.archive(), offset, size)

    # -- the end -------------------------------------------------------------------------------------------------------

    async def end_without_nodes(self, outcome: Outcome) -> None:
        """Ends a job that never had any."""
        self.journal.freeze()
        self.outcome = self.journal.put_outcome(outcome, {})
        self.journal.event("closing", f"{outcome.state}: {outcome.sentence}")
        await self.seat.finish()

    def _keep_outcome(self, outcome: Outcome) -> Optional[Outcome]:
        """Makes the end durable; after this the job is over, whichever process is killed next."""
        if self.outcome is None:
            self.journal.freeze()
            facts: Dict[str, Any] = {
                "started": self.journal.history.started,
                "spent": self.machine.budget.spent,
                "round": self.machine.ran,
                "rounds": self.journal.history.ran,
                "size": vars(self.journal.status.size),
            }
            self.outcome = self.journal.put_outcome(outcome, facts)
        self._close()
        return self.outcome

    def _close(self) -> None:
        self.nodes.close()
        if self._killed:
            self.nodes.kill()
        self._over.set()

    async def _see_to_the_end(self) -> None:
        """When the job is over: until its nodes know, and have gone."""
        await self._over.wait()
        within = self.record.task.grace + LAST_WAIT
        await self.nodes.until_ended(within, self._uploading)
        await self._until_gone(within)
        await self.signing.send_the_rest()
        self._cancel_tasks()
        await self.seat.finish()

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _uploading(self) -> bool:
        """Whether a node sends results: it gives up by itself when nothing moves any more."""
        nodes = self.machine.nodes.values()
        return not self._killed and any(node.connected and node.report.sending for node in nodes)

    async def _until_gone(self, within: float) -> None:
        """Until the nodes have heard of the end, and sent what they have: those that this process cannot end."""
        loop = asyncio.get_running_loop()
        back_by, end = self._all_back_by(), loop.time() + within
        while True:
            if self._uploading():
                end = max(end, loop.time() + UPLOAD_STEP)
            ended = self.nodes.ended()
            here = any(name not in ended for name in self.machine.nodes)
            left = min(self._hurried_until, end if here else back_by) - loop.time()
            if left <= 0:
                return
            self._fewer.clear()
            try:
                await asyncio.wait_for(self._fewer.wait(), left)
            except asyncio.TimeoutError:
                pass

    def _all_back_by(self) -> float:
        """By when nodes that heard nothing of the end yet have connected again."""
        config = self.record.config
        within = config.recover_within or config.silence
        late = self._told_before and self.nodes.reconnect
        return asyncio.get_running_loop().time() + (within if late else 0.0)
