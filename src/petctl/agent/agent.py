"""One node: drives the pure `Member` (rendezvous/member.py), and carries out what it decides.

    coordinator  <->  Connection  ->  Member.step(event)  ->  effects  ->  Workers, ports, reports
                                          ^                                   |
                                          `------- exits, stops, time --------'

Everything here runs in one thread and never waits for a worker, a disk or a reader: heartbeats depend on it. Which
round is run and when is decided by Member and the coordinator; how processes are started and stopped is `workers.py`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from petctl.agent import rootcause
from petctl.agent.connection import Connection
from petctl.agent.environment import RoundContext
from petctl.agent.guardian import FORWARDED, Lifeline
from petctl.agent.host import Devices, choose_log_dir, count_processes, own_address
from petctl.agent.launchers import launches, preparation, why_not_started
from petctl.agent.logcap import LogCap
from petctl.agent.logfiles import LogName
from petctl.agent.options import Options
from petctl.agent.task import Task, decode_task
from petctl.agent.workers import Launch, Worker, Workers
from petctl.errors import InternalError, Unreachable, UsageError
from petctl.rendezvous import member as mb
from petctl.rendezvous.joinfile import JoinFile, read_join_file
from petctl.rendezvous.messages import Failure, decode_order, encode

_TICK = 0.01  # seconds between two ticks at the least
_CANNOT_START = 127  # what a shell answers when there is no such program


def run(options: Options, lifeline: Lifeline) -> int:
    """The agent's whole life; answers with its exit code."""
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
        self._connection = Connection(join, lifeline.spawn, self._connected, self._received, self._lost, self.say)
        adopter = lifeline.guardian if lifeline.subreaper else 0
        self._workers = Workers(self._key, adopter, self._worker_exited, self._workers_stopped)
        self._devices = Devices(options.gpus, options.nominal_gpus)
        self._member: Optional[mb.Member] = None
        self._task: Optional[Task] = None
        self._unfit = ""  # why this node can run no worker
        self._log_dir = ""
        self._events: Deque[object] = deque()
        self._feeding = False
        self._timer: Optional[asyncio.TimerHandle] = None
        self._round: Optional[RoundContext] = None
        self._failed = False  # a worker of the round has failed: what fails after it is its consequence
        self._prepared = False
        self._port: Optional[socket.socket] = None
        self._log_cap = LogCap()
        self._signals = 0
        self._own: Dict[int, Tuple[int, int]] = {}  # round -> first rank, end of ranks
        self._stream: Any = None
        self._carry_out: Dict[type, Callable[[Any], None]] = {
            mb.Send: lambda effect: self._connection.send({"report": encode(effect.report)}),
            mb.Start: self._start,
            mb.Stop: self._stop,
            mb.Reserve: self._reserve,
            mb.Reconnect: self._reconnect,
            mb.Exit: self._exit,
        }

    def say(self, sentence: str) -> None:
        """One line for people, in the node's own log."""
        try:
            print(f"{time.strftime('%H:%M:%S')} {self._options.node}: {sentence}", file=sys.stderr, flush=True)
        except OSError:
            pass  # nobody reads it; the node works on

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
                for effect in self._member.step(self._events.popleft(), self._loop.time()):
                    self._carry_out[type(effect)](effect)
        finally:
            self._feeding = False
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._member.deadline()
        if deadline is None:
            self._timer = None
        else:  # a deadline that stays in the past while something else is waited for must not spin
            self._timer = self._loop.call_at(max(deadline, self._loop.time() + _TICK), self._feed, mb.Tick())

    def _connected(self, welcome: Dict[str, Any]) -> None:
        if self._member is None:
            self._begin(decode_task(welcome.get("task")))
        self._feed(mb.Connected())

    def _begin(self, task: Task) -> None:
        """The first welcome says what this node is to do."""
        self._task = task
        self._log_dir = choose_log_dir(task, self._options, self.say)
        try:
            procs = count_processes(task.procs, self._devices, {**os.environ, **task.env})
        except UsageError as error:
            if self._join.revive is None:
                raise  # a node that came by hand must not harm a job that runs well without it
            procs, self._unfit = 1, str(error)
        self._member = mb.Member(
            self._options.node,
            self._options.incarnation,
            procs,
            self._options.address or own_address(self._join),
            self._loop.time(),
            grace=task.grace,
            silence=task.timing.silence,
            fence_after=task.timing.fence_after,
        )
        if self._options.stream:
            from petctl.agent.stream import StreamForwarder

            self._stream = StreamForwarder(self._log_dir, self._is_own)
            self._stream.start()

    def _received(self, message: Dict[str, Any]) -> None:
        self._feed(mb.Received(decode_order(message.get("order"))))

    def _lost(self) -> None:
        self._feed(mb.Disconnected())

    def _connecting_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and not self._finished.done():
            self._finished.set_exception(task.exception() or InternalError("the connection ended by itself"))

    def _signalled(self, number: int) -> None:
        self._signals += 1
        if self._member is None:
            self._finish(0)
        elif number == signal.SIGINT and self._signals > 1:
            self._workers.stop(0.0)  # asked a second time at the keyboard
        else:
            self._feed(mb.Terminate(f"the node got {signal.Signals(number).name}"))

    def _guardian_died(self) -> None:
        self.say("the guardian of this node is dead: ending its workers")
        self._workers.destroy()
        os._exit(InternalError.code)

    def _broken(self, loop: asyncio.AbstractEventLoop, context: Dict[str, Any]) -> None:
        """A fault in one of our own callbacks ends the node rather than leave it half alive."""
        error = context.get("exception") or InternalError(str(context.get("message")))
        if "handle" not in context:
            self.say(f"{context.get('message')}: {error!r}")
        elif not self._finished.done():
            self._finished.set_exception(error)

    # -- effects out -------------------------------------------------------------------------------------------------

    def _start(self, effect: mb.Start) -> None:
        assert self._member is not None and self._task is not None
        self._round = RoundContext(
            node=self._options.node,
            node_key=self._key,
            epoch=effect.epoch,
            round=effect.round,
            place=effect.place,
            spent=effect.spent,
            procs=self._member.procs,
            gpus=self._options.gpus,
        )
        self._failed = False
        self._own[effect.round] = (effect.place.first_rank, effect.place.first_rank + self._member.procs)
        if self._unfit:
            self._fail(self._unfit)
        elif self._task.prepare and not self._prepared:
            self._feed(mb.Doing("preparing"))
            self._launch([preparation(self._task, self._options.node, self._key, os.environ, self._log_dir)])
        else:
            self._start_workers()

    def _start_workers(self) -> None:
        assert self._task is not None and self._round is not None
        try:
            planned = launches(self._task, self._round, os.environ, self._log_dir)
        except UsageError as error:
            self._fail(str(error))
            return
        self._launch(planned)
        self._log_cap.watch([path for launch in planned for path in (launch.out, launch.err)], self._task.log_cap)

    def _launch(self, planned: List[Launch]) -> None:
        try:
            self._workers.start(planned)
        except OSError as error:
            self._fail(why_not_started(error, planned[0]))
        self._lifeline.own(self._workers.groups)

    def _workers_stopped(self) -> None:
        self._lifeline.own([])
        self._feed(mb.WorkersStopped())

    def _stop(self, effect: mb.Stop) -> None:
        if self._workers.running:
            self.say(f"stopping the workers: {effect.why}")
        self._workers.stop(effect.grace)

    def _reserve(self, effect: mb.Reserve) -> None:
        """Binds without listening: nobody else gets the port, and rank 0, which listens with SO_REUSEADDR, does."""
        if self._port is not None:
            self._port.close()
        self._port = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind(("", 0))
        self._feed(mb.PortReserved(effect.round, self._port.getsockname()[1]))

    def _reconnect(self, effect: mb.Reconnect) -> None:
        self.say(f"{effect.why}; connecting again")
        self._connection.drop()

    def _exit(self, effect: mb.Exit) -> None:
        assert self._member is not None
        self.say(f"leaves: {effect.why}")
        if effect.outcome is not None:
            self._finish(effect.outcome.code)
        else:
            self._finish(0 if self._member.leaving else Unreachable.code)

    def _finish(self, code: int) -> None:
        if not self._finished.done():
            self._finished.set_result(code)

    # -- workers -----------------------------------------------------------------------------------------------------

    def _worker_exited(self, worker: Worker) -> None:
        assert self._round is not None
        number = self._round.round
        if worker.launch.rank < 0:
            self._preparation_ended(worker)
        elif worker.code == 0:
            self._feed(mb.WorkerEnded(number, last=not self._workers.running and not self._failed))
        elif not self._failed:
            self._failed = True
            failure = rootcause.explain(worker, self._options.node)
            self.say(failure.sentence())
            self._feed(mb.WorkerFailed(number, failure))

    def _preparation_ended(self, worker: Worker) -> None:
        if worker.code == 0:
            self._prepared = True
            self._feed(mb.Doing(""))
            self._start_workers()
            return
        found = rootcause.explain(worker, self._options.node)
        self._fail(f"prepare: {found.message or 'the step failed'}", worker.code or 1, found.signal, found.traceback)

    def _fail(self, message: str, code: int = _CANNOT_START, signal_name: str = "", traceback: str = "") -> None:
        """This node cannot run its part of the round; its first worker answers for it."""
        assert self._round is not None
        self._failed = True
        failure = Failure(
            self._options.node, self._round.place.first_rank, 0, code, signal_name, message, traceback, time.time()
        )
        self.say(failure.sentence())
        self._feed(mb.WorkerFailed(self._round.round, failure))

    def _is_own(self, name: LogName) -> bool:
        first, end = self._own.get(name.round, (0, 0))
        return first <= name.rank < end
