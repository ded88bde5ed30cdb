"""One node: drives the pure `Member` (rendezvous/core/member.py), and carries out what it decides.

    coordinator  <->  Connection  ->  Member.step(event)  ->  effects  ->  Rounds, ports, reports
                                          ^                                   |
                                          `------- exits, stops, time --------'

Everything here runs in one thread and never waits for a worker, a disk or a reader: heartbeats depend on it. Which
round is run and when is decided by Member and the coordinator; what a round is on this node, `rounds.py`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import signal
from collections import deque
from typing import Any, Callable, Deque, Dict, Optional

from petctl.agent.health.readiness import Readiness
from petctl.agent.launchers.port_reservation import MasterPort
from petctl.agent.node import clock, runtime_dir
from petctl.agent.node.connection import Connection
from petctl.agent.node.draining import Drain
from petctl.agent.node.guardian import FORWARDED, Lifeline
from petctl.agent.node.host import Devices, choose_log_dir, count_processes, make_outputs, own_address
from petctl.agent.node.node_assets import Belongings
from petctl.agent.node.options import Options
from petctl.agent.node.rounds import Rounds
from petctl.agent.warm.prestart import pretended_place
from petctl.agent.warm.warm import WarmStart
from petctl.agent.workers.channel import Channel
from petctl.agent.workers.environment import RoundContext
from petctl.agent.workers.stopping import PARK_TIMEOUT
from petctl.agent.workers.workers import Workers
from petctl.errors import InternalError, Unreachable, UsageError
from petctl.job.task import Task, decode_task
from petctl.log_setup import log_to_stderr
from petctl.rendezvous.core import member as mb
from petctl.rendezvous.core.messages import CLOSE, UNSAVED, Order, Outcome, Report, decode_order, encode
from petctl.rendezvous.net.join_file import JoinFile, read_join_file

_LAST_MOMENT = 1.0  # seconds to send what is left, when the workers have used up the grace

log = logging.getLogger(__name__)


def run(options: Options, lifeline: Lifeline) -> int:
    """The agent's whole life; answers with its exit code."""
    log_to_stderr(logging.DEBUG if options.verbose else logging.INFO, f"node {options.node}")
    join = read_join_file(options.file)

    async def live() -> int:
        return await Agent(join, options, lifeline).run()

    return asyncio.run(live())


class Agent:
    """The driver of one Member. Made inside the running loop."""

    def __init__(self, join: JoinFile, options: Options, lifeline: Lifeline) -> None:
        self._join, self._options, self._lifeline = join, options, lifeline
        self._key = f"{join.job}/{options.node}/{options.incarnation}"
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[int] = self._loop.create_future()
        self._connection = Connection(join, lifeline.spawn, self._connected, self._received, self._lost, self._over)
        adopter = lifeline.guardian if lifeline.subreaper else 0
        self._channel = Channel(lifeline.directory and os.path.join(lifeline.directory, runtime_dir.SOCKET))
        self._warm = WarmStart(self.remark, lambda warming: self._rounds.warmth_changed())
        self._workers = Workers(
            self._key,
            adopter,
            lambda worker: self._rounds.worker_exited(worker),
            self._workers_stopped,
            self._channel,
            self._warm,
        )
        self._channel.on_elastic = lambda worker: self._feed(mb.Elastic())
        self._port = MasterPort(self._workers, self._channel, self._reserved)
        self._member: Optional[mb.Member] = None  # this, and the next two: from the first welcome on
        self._belongings: Belongings
        self._rounds: Rounds
        self._events: Deque[object] = deque()
        self._feeding = False
        self._readiness = Readiness(options.ready_file, lambda: self._rounds.trains)
        self._alarm = clock.Alarm(lambda: self._feed(mb.Tick()))
        self._last_report: Optional[Report] = None
        self._lingering: Optional[Drain] = None  # while what the job made is sent, at the end
        self._last_works: Optional[asyncio.Task[None]] = None
        self._code: Optional[int] = None  # the exit code, once only parked workers are waited for
        self._signals = 0
        self._asked_at = 0.0  # when the first one came
        self._history: Any = None  # what a coordinator has given this node to keep for the next one
        self._alone_since = 0.0  # when the last coordinator was lost
        self._stream: Any = None
        self._carry_out: Dict[type, Callable[[Any], None]] = {
            mb.Send: self._send,
            mb.Start: lambda effect: self._rounds.start(effect),
            mb.StartEarly: lambda effect: self._rounds.start_early(),
            mb.Stop: lambda effect: self._rounds.stop(effect),
            mb.Reserve: lambda effect: self._port.reserve(effect.round),
            mb.Dump: lambda effect: self._rounds.dump(effect),
            mb.Reconnect: self._reconnect,
            mb.Exit: self._exit,
        }

    def remark(self, sentence: str) -> None:
        """Logs a sentence that is also one of the job's events."""
        log.info("%s", sentence)
        self._connection.send({"remark": sentence})

    def tell_unsaved(self, sentence: str) -> None:
        """The same for files that nothing brings to the user, which belongs into the job's status."""
        log.info("%s", sentence)
        self._connection.send({"remark": sentence, "about": UNSAVED})

    async def run(self) -> int:
        """Until the job is over, the node has left, or petctl itself fails."""
        self._loop.set_exception_handler(self._broken)
        for number in FORWARDED:
            self._loop.add_signal_handler(number, self._signalled, number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        self._loop.add_reader(self._lifeline.alive, self._guardian_died)
        connecting = self._loop.create_task(self._connection.run())
        connecting.add_done_callback(self._connecting_ended)
        try:
            return await self._finished
        finally:
            connecting.cancel()
            self._connection.drop()
            self._channel.close()
            if self._member is not None:
                self._belongings.give_up()
            if not self._lifeline.subreaper:
                self._workers.destroy()
            if self._stream is not None:
                await self._loop.run_in_executor(None, self._stream.finish, 5.0)

    # -- events in ---------------------------------------------------------------------------------------------------

    def _feed(self, event: object) -> None:
        """Every event goes through here, one after the other: effects may bring about further events."""
        self._events.append(event)
        if self._feeding or self._member is None:
            return
        self._feeding = True
        try:
            while self._events:
                for effect in self._member.step(self._events.popleft(), clock.now()):
                    self._carry_out[type(effect)](effect)
        finally:
            self._feeding = False
        self._alarm.set(self._member.deadline())
        self._readiness.look(self._member)

    def _connected(self, welcome: Dict[str, Any]) -> None:
        if self._member is None:
            self._begin(decode_task(welcome.get("task")))
        self._feed(mb.Connected())
        if self._history is not None:
            self._connection.send({"history": self._history, "age": self._loop.time() - self._alone_since})
        self._rounds.launcher.repeat()

    def _begin(self, task: Task) -> None:
        """The first welcome says what this node is to do."""
        options, join = self._options, self._join
        log_dir = choose_log_dir(task, options)
        if task.output_dir:
            task = dataclasses.replace(task, output_dir=make_outputs(task, options))
        devices = Devices(options.gpus, options.nominal_gpus)
        self._belongings = needs = Belongings(task, join, options, log_dir, devices, self.remark, self.tell_unsaved)
        try:
            procs = count_processes(task.procs, devices, {**os.environ, **needs.task.env})
        except UsageError as error:
            if join.revive is None:
                raise  # a node that came by hand must not harm a job that runs well without it
            procs, needs.problem = 1, needs.problem or str(error)
        self._member = mb.Member(
            options.node,
            options.incarnation,
            procs,
            options.address or own_address(join),
            clock.now(),
            grace=task.grace,
            silence=task.timing.silence,
            fence_after=task.timing.fence_after,
        )
        place, library = pretended_place(procs), runtime_dir.library(self._lifeline.directory, task.python)
        here = RoundContext(options.node, self._key, 0, 0, place, 0, procs, options.gpus, self._channel.path, library)
        feed, send = self._feed, self._connection.send
        self._rounds = Rounds(
            here, log_dir, needs, self._lifeline, self._workers, self._warm, self._channel, feed, send
        )
        needs.bring(self._rounds.arrived, self._rounds.still_coming)
        self._rounds.warm_up()
        self._rounds.warmth_changed()
        if options.stream:
            from petctl.agent.logs.stream import StreamForwarder

            self._stream = StreamForwarder(log_dir, self._rounds.is_own, tagged=options.tagged)
            self._stream.start()

    def _received(self, message: Dict[str, Any]) -> None:
        if "letter" in message:
            self._rounds.launcher.receive(message["letter"])
        elif "history" in message:
            self._history = message["history"]
        else:
            order = decode_order(message.get("order"))
            if order.place is not None:
                self._connection.nodes = order.place.nodes
            self._feed(mb.Received(order))

    def _lost(self) -> None:
        self._alone_since = self._loop.time()
        self._feed(mb.Disconnected())

    def _over(self, outcome: Outcome) -> None:
        """The job's end, which no coordinator is left to tell."""
        if self._member is None:
            log.info("%s has ended: %s", self._join.job, outcome.sentence)
            self._finish(self._exit_code(outcome))
        else:
            order = Order(self._member.header, CLOSE, outcome=outcome, sentence=outcome.sentence)
            self._feed(mb.Received(order))

    def _connecting_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and not self._finished.done():
            self._finished.set_exception(task.exception() or InternalError("the connection was closed"))

    def _signalled(self, number: int) -> None:
        self._signals += 1
        self._asked_at = self._loop.time() if self._signals == 1 else self._asked_at
        if self._member is None:
            self._finish(self._options.leave_code or 0)
        elif self._lingering is not None:  # asked again: what is not sent stays here
            self._end(128 + number if self._options.leave_code is None or self._code is None else self._code)
        elif number == signal.SIGINT and self._signals > 1:
            self._workers.kill()  # asked a second time at the keyboard
        else:
            self._feed(mb.Terminate(f"the node received {signal.Signals(number).name}"))

    def _guardian_died(self) -> None:
        log.error("the guardian of this node died: stopping its workers")
        self._workers.destroy()
        runtime_dir.remove(self._lifeline.directory)
        os._exit(InternalError.code)

    def _broken(self, loop: asyncio.AbstractEventLoop, context: Dict[str, Any]) -> None:
        """A fault in one of our own callbacks ends the node rather than leave it half alive."""
        error = context.get("exception") or InternalError(str(context.get("message")))
        if "handle" not in context:
            log.warning("%s: %r", context.get("message"), error)
        elif not self._finished.done():
            self._finished.set_exception(error)

    # -- effects out -------------------------------------------------------------------------------------------------

    def _send(self, effect: mb.Send) -> None:
        self._last_report = effect.report
        self._connection.send({"report": encode(effect.report)})

    def _workers_stopped(self) -> None:
        self._rounds.stopped()
        if self._code is not None:
            self._finish(self._code)
        else:
            self._feed(mb.WorkersStopped())

    def _reserved(self, number: int, port: int) -> None:
        assert self._member is not None
        task, node, member = self._belongings.task, self._options.node, self._member
        offer = self._rounds.launcher.offer(task, node, member.address, member.procs)
        self._feed(mb.PortReserved(number, port, offer))

    def _reconnect(self, effect: mb.Reconnect) -> None:
        log.info("%s; connecting again", effect.why)
        self._connection.drop()

    def _exit(self, effect: mb.Exit) -> None:
        assert self._member is not None
        if effect.stuck:
            self.remark(f"{effect.why}; giving up this node")
        log.info("leaves: %s", effect.why)
        self._code = self._exit_code(effect.outcome)
        if self._workers.running and not effect.stuck:  # parked: their end is the last thing that this node waits for
            self._workers.stop(PARK_TIMEOUT, final=True, why=effect.why)
        else:
            self._finish(self._code)

    def _exit_code(self, outcome: Optional[Outcome]) -> int:
        """With a leave code it says whether the node is still needed, and nothing of how the job ended."""
        leave_code = self._options.leave_code
        if outcome is not None:
            return outcome.code if leave_code is None else 0
        assert self._member is not None
        return leave_code or 0 if self._member.leaving else Unreachable.code

    def _finish(self, code: int) -> None:
        """The workers are gone; what they made is sent before the node goes."""
        if self._member is None or not self._belongings.go_back or self._last_report is None:
            self._end(code)
        elif self._lingering is None:
            self._lingering = Drain(self._last_report, self._member.beat, self._connection.send)
            if self._signals:  # whoever asked waits no longer than the grace, of which the workers had a part
                left = self._asked_at + self._belongings.task.grace - self._loop.time()
                self._loop.call_later(max(left, _LAST_MOMENT), self._end, code)
            self._last_works = self._loop.create_task(self._send_the_rest(code))

    async def _send_the_rest(self, code: int) -> None:
        await self._belongings.send_the_rest()
        self._end(code)

    def _end(self, code: int) -> None:
        if self._lingering is not None:
            self._lingering.stop()
        if not self._finished.done():
            self._finished.set_result(code)
