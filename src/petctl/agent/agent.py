"""One node: drives the pure `Member` (rendezvous/member.py), and carries out what it decides.

    coordinator  <->  Connection  ->  Member.step(event)  ->  effects  ->  Workers, ports, reports
                                          ^                                   |
                                          `------- exits, stops, time --------'

Everything here runs in one thread and never waits for a worker, a disk or a reader: heartbeats depend on it. Which
round is run and when is decided by Member and the coordinator; how processes are started and stopped is `workers.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Optional, Tuple

from petctl import causes
from petctl.agent import private, rootcause
from petctl.agent.belongings import Belongings
from petctl.agent.channel import Channel
from petctl.agent.connection import Connection
from petctl.agent.early import EarlyStart, pretended_place
from petctl.agent.environment import RoundContext
from petctl.agent.guardian import FORWARDED, Lifeline
from petctl.agent.host import Devices, choose_log_dir, count_processes, make_outputs, own_address, state_directory
from petctl.agent.launchers import launches, preparation, prepared, why_not_started
from petctl.agent.lingering import Lingering
from petctl.agent.logcap import LogCap
from petctl.agent.logfiles import LogName, is_full
from petctl.agent.masterport import MasterPort, TaskPorts
from petctl.agent.oom import MemoryWatch
from petctl.agent.options import Options
from petctl.agent.progress import VARIABLE as PROGRESS_FILE
from petctl.agent.progress import ProgressBook
from petctl.agent.roles import most_tasks, offer
from petctl.agent.stacks import StackDump, failure_of
from petctl.agent.stopping import PARK_TIMEOUT
from petctl.agent.task import MPI, PLAIN, Task, decode_task
from petctl.agent.warm import WarmStart
from petctl.agent.workers import Launch, Worker, Workers
from petctl.errors import InternalError, PetctlError, Unreachable, UsageError
from petctl.rendezvous import member as mb
from petctl.rendezvous.joinfile import JoinFile, read_join_file
from petctl.rendezvous.messages import Failure, Outcome, Place, Progress, Report, decode_order, encode

if TYPE_CHECKING:
    from petctl.agent.batchai import Site
    from petctl.agent.mpinode import MpiNode

_TICK = 0.01  # seconds between two ticks at the least
_LAST_MOMENT = 1.0  # seconds to send what is left, when the workers have used up the grace
_CANNOT_START = 127  # what a shell answers when there is no such program
_OTHERS_FIRST = 1.0  # seconds that a failure of mpirun waits for whoever knows its cause better: the node of a rank
_MPIRUN_FIRST = 5.0  # seconds that the good end of its daemon waits for mpirun's own, where it came too early


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
        self._channel = Channel(lifeline.directory and os.path.join(lifeline.directory, private.SOCKET))
        self._warm = WarmStart(self.remark, lambda warming: self._warmth_changed())
        self._workers = Workers(
            self._key, adopter, self._worker_exited, self._workers_stopped, self._channel, self._warm
        )
        self._early = EarlyStart(self._workers, self._warmth_changed)
        self._channel.on_elastic = lambda worker: self._feed(mb.Elastic())
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
        self._ready: Optional[Task] = None  # the task as it is once the preparation has ended well
        self._belongings: Optional[Belongings] = None
        self._site: Optional[Site] = None  # what a Batch AI job has on this node
        self._start_waits = self._early_waits = False  # for them: a round; workers that are to be started early
        self._last_report: Optional[Report] = None
        self._lingering: Optional[Lingering] = None  # while what the job made is sent, at the end
        self._last_works: Optional[asyncio.Task[None]] = None
        self._port = MasterPort(self._workers, self._channel, self._reserved)
        self._task_ports = TaskPorts()
        self._mpi: Optional[MpiNode] = None  # of a job that mpirun starts
        self._code: Optional[int] = None  # the exit code, once only parked workers are waited for
        self._library = ""
        self._log_cap = LogCap()
        self._memory = MemoryWatch()
        self._progress = ProgressBook(self._progressed)
        self._channel.on_progress = lambda worker, data: self._progress.take(worker.launch.local_rank, data)
        self._stacks = StackDump(self._channel)
        self._signals = 0
        self._asked_at = 0.0  # when the first one came
        self._own: Dict[int, Tuple[int, int]] = {}  # round -> first rank, end of ranks
        self._stream: Any = None
        self._carry_out: Dict[type, Callable[[Any], None]] = {
            mb.Send: self._send,
            mb.Start: self._start,
            mb.StartEarly: self._start_early,
            mb.Stop: self._stop,
            mb.Reserve: lambda effect: self._port.reserve(effect.round),
            mb.Dump: self._dump,
            mb.Reconnect: self._reconnect,
            mb.Exit: self._exit,
        }

    def say(self, sentence: str) -> None:
        """One line for people, in the node's own log."""
        try:
            print(f"{time.strftime('%H:%M:%S')} {self._options.node}: {sentence}", file=sys.stderr, flush=True)
        except OSError:
            pass  # nobody reads it; the node works on

    def remark(self, sentence: str) -> None:
        """The same, and one of the job's events."""
        self.say(sentence)
        self._connection.send({"remark": sentence})

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
            if self._belongings is not None:
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
        if self._mpi is not None:
            self._mpi.repeat()

    def _begin(self, task: Task) -> None:
        """The first welcome says what this node is to do."""
        self._log_dir = choose_log_dir(task, self._options, self.say)
        if task.output_dir:
            task = dataclasses.replace(task, output_dir=make_outputs(task, self._options))
        if task.batchai:
            task = self._arrange_site(task)
        self._task = task
        try:
            procs = count_processes(task.procs, self._devices, {**os.environ, **task.env})
        except UsageError as error:
            if self._join.revive is None:
                raise  # a node that came by hand must not harm a job that runs well without it
            procs, self._unfit = 1, self._unfit or str(error)
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
        self._library = private.library(self._lifeline.directory, task.python)
        if task.launcher == MPI:
            from petctl.agent.mpinode import MpiNode

            self._mpi = MpiNode(self._lifeline.directory, self._workers, self._connection.send, self._fail)
        self._belongings = Belongings(
            task,
            self._join,
            self._options,
            self._log_dir,
            self._arrived,
            self._still_coming,
            self.say,
            self.remark,
            self._site,
        )
        self._warm_up()
        self._warmth_changed()
        if self._options.stream:
            from petctl.agent.stream import StreamForwarder

            self._stream = StreamForwarder(self._log_dir, self._is_own, tagged=self._options.tagged)
            self._stream.start()

    def _arrange_site(self, task: Task) -> Task:
        """The directories and variables of a Batch AI job; the task as its workers will find it."""
        from petctl.agent.batchai import Site, folder_targets

        def tell(sentence: str) -> None:
            with contextlib.suppress(RuntimeError):  # the node has ended meanwhile
                self._loop.call_soon_threadsafe(self.remark, sentence)

        environ = {**os.environ, **task.env}
        gpus = self._devices.count(environ)
        folders = folder_targets(task, state_directory(task, self._options)) if task.folders else {}
        self._site = Site(task, self._options.node, self._log_dir, folders, gpus, environ, tell)
        self._unfit = self._site.problem
        return self._site.task

    def _arrived(self, directory: str, why_not: str) -> None:
        """Code and folders are there."""
        assert self._task is not None
        self._task = dataclasses.replace(self._task, cwd=directory or self._task.cwd)
        self._unfit = self._unfit or why_not
        self._warm_up()
        if self._early_waits:
            self._begin_early()
        self._warmth_changed()
        if self._start_waits:
            self._feed(mb.Doing(""))
            self._start_round()

    @property
    def _coming(self) -> str:
        return self._belongings.coming if self._belongings is not None else ""

    def _still_coming(self, sentence: str) -> None:
        if self._start_waits:
            self._feed(mb.Doing(sentence))

    def _warm_up(self) -> None:
        """Imports that are known are made while the node joins."""
        assert self._task is not None
        planned = self._planned_early()
        if planned:
            self._warm.begin(planned[0], self._task.preload)

    def _start_early(self, effect: mb.StartEarly) -> None:
        if self._coming:
            self._early_waits = True
        else:
            self._begin_early()

    def _begin_early(self) -> None:
        self._early_waits = False
        self._early.begin(self._planned_early(), self._log_dir, self._options.node)

    def _planned_early(self) -> List[Launch]:
        """Workers as they will be, while the node has no place; none before its preparation, which may install much."""
        assert self._task is not None and self._member is not None
        if self._unfit or self._coming or (self._task.needs_preparation and not self._prepared):
            return []
        if self._task.launcher in (MPI, PLAIN):
            return []  # they are told who the others are, which nobody knows yet
        context = self._context(0, 0, pretended_place(self._member.procs), 0)
        try:
            return launches(self._task, context, os.environ, self._log_dir)
        except UsageError:
            return []  # said when the workers are started

    def _warmth_changed(self) -> None:
        """Nobody stops for a node that could not train yet."""
        self._feed(mb.Warming(bool(self._coming) or self._warm.warming or self._early.pending))

    def _received(self, message: Dict[str, Any]) -> None:
        if "letter" not in message:
            self._feed(mb.Received(decode_order(message.get("order"))))
        elif self._mpi is not None:
            self._mpi.receive(message["letter"])

    def _lost(self) -> None:
        self._feed(mb.Disconnected())

    def _connecting_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and not self._finished.done():
            self._finished.set_exception(task.exception() or InternalError("the connection ended by itself"))

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
            self._feed(mb.Terminate(f"the node got {signal.Signals(number).name}"))

    def _guardian_died(self) -> None:
        self.say("the guardian of this node is dead: ending its workers")
        self._workers.destroy()
        private.remove(self._lifeline.directory)
        os._exit(InternalError.code)

    def _broken(self, loop: asyncio.AbstractEventLoop, context: Dict[str, Any]) -> None:
        """A fault in one of our own callbacks ends the node rather than leave it half alive."""
        error = context.get("exception") or InternalError(str(context.get("message")))
        if "handle" not in context:
            self.say(f"{context.get('message')}: {error!r}")
        elif not self._finished.done():
            self._finished.set_exception(error)

    # -- effects out -------------------------------------------------------------------------------------------------

    def _send(self, effect: mb.Send) -> None:
        self._last_report = effect.report
        self._connection.send({"report": encode(effect.report)})

    def _start(self, effect: mb.Start) -> None:
        assert self._member is not None and self._task is not None
        self._round = self._context(effect.epoch, effect.round, effect.place, effect.spent)
        self._failed = False
        self._own[effect.round] = (effect.place.first_rank, effect.place.first_rank + self._member.procs)
        if self._coming:
            self._start_waits, self._early_waits = True, False
            self._feed(mb.Doing(self._coming))
        else:
            self._start_round()

    def _start_round(self) -> None:
        assert self._task is not None
        self._start_waits = False
        if self._unfit:
            self._fail(self._unfit)
        elif self._task.needs_preparation and not self._prepared:
            self._prepare()
        else:
            self._start_workers()

    def _prepare(self) -> None:
        assert self._task is not None
        try:
            self._ready = prepared(self._task, os.environ)
        except PetctlError as error:
            self._fail(str(error))
            return
        self._feed(mb.Doing("preparing"))
        self._launch([preparation(self._task, self._ready, self._options.node, self._key, os.environ, self._log_dir)])

    def _context(self, epoch: int, number: int, place: Place, spent: int) -> RoundContext:
        assert self._member is not None
        return RoundContext(
            node=self._options.node,
            node_key=self._key,
            epoch=epoch,
            round=number,
            place=place,
            spent=spent,
            procs=place.procs or self._member.procs,
            gpus=self._options.gpus,
            socket=self._channel.path,
            library=self._library,
        )

    def _start_workers(self) -> None:
        assert self._task is not None and self._round is not None
        plan = launches if self._mpi is None else self._mpi.begin
        try:
            planned = plan(self._task, self._round, os.environ, self._log_dir)
        except UsageError as error:
            self._fail(str(error))
            return
        if self._site is not None:
            self._site.starting(self._round.round, *self._own[self._round.round], planned)
        files = [launch.env[PROGRESS_FILE] for launch in planned if not launch.launcher]
        self._progress.begin(self._round.procs, files)
        self._task_ports.release()
        self._launch(planned)
        if self._mpi is not None:
            self._mpi.begun()
        self._serve_only()
        logs = [path for launch in planned for path in (launch.out, launch.err)]
        self._log_cap.watch([*logs, *files], self._task.log_cap)

    def _launch(self, planned: List[Launch]) -> None:
        try:
            self._workers.start(planned)
        except OSError as error:
            self._fail(why_not_started(error, planned))
        self._lifeline.own(self._workers.groups)

    def _workers_stopped(self) -> None:
        self._lifeline.own(self._workers.groups)
        if self._mpi is not None:
            self._mpi.end()
        if self._code is not None:
            self._finish(self._code)
        else:
            self._feed(mb.WorkersStopped())

    def _stop(self, effect: mb.Stop) -> None:
        if self._workers.running and not self._workers.stopping:
            self.say(f"stopping the workers: {effect.why}")
        self._start_waits = False
        self._workers.stop(effect.grace, effect.planned, effect.final, effect.why)

    def _dump(self, effect: mb.Dump) -> None:
        """The round stands still: what the workers are doing is written down before anybody is stopped."""
        self.say(effect.stall.sentence)
        self._stacks.ask(self._workers.running, lambda: self._hangs(effect))

    def _hangs(self, effect: mb.Dump) -> None:
        guilty = [worker for worker in self._workers.running if worker.launch.rank == effect.stall.rank]
        if not guilty or self._failed or self._round is None or self._round.round != effect.round:
            return
        if is_full(self._log_dir):
            self.say("that is not counted as a failure: the disk is full, so progress may not have been written down")
            return
        self._failed = True
        self._feed(mb.WorkerFailed(effect.round, failure_of(guilty[0], self._options.node, effect.stall)))

    def _progressed(self, progress: Progress) -> None:
        if self._round is not None:
            self._feed(mb.Progressed(self._round.round, progress))

    def _reserved(self, number: int, port: int) -> None:
        self._feed(mb.PortReserved(number, port, self._offer()))

    def _offer(self) -> str:
        """What the other members' agents have to know of this node, before it has a place."""
        assert self._task is not None and self._member is not None
        if self._mpi is not None:
            return self._mpi.offer(self._member.address, self._member.procs, self._options.node)
        if self._task.launcher != PLAIN:
            return ""
        return offer(self._member.address, self._task_ports.hold(most_tasks(self._task, self._member.procs)))

    def _reconnect(self, effect: mb.Reconnect) -> None:
        self.say(f"{effect.why}; connecting again")
        self._connection.drop()

    def _exit(self, effect: mb.Exit) -> None:
        assert self._member is not None
        self.say(f"leaves: {effect.why}")
        self._code = self._exit_code(effect.outcome)
        if self._workers.running:  # parked: their end is the last thing that this node waits for
            self._workers.stop(PARK_TIMEOUT, final=True, why=effect.why)
        else:
            self._finish(self._code)

    def _exit_code(self, outcome: Optional[Outcome]) -> int:
        """With a leave code it says whether the node is still needed, and nothing of how the job ended."""
        assert self._member is not None
        leave_code = self._options.leave_code
        if outcome is not None:
            return outcome.code if leave_code is None else 0
        return leave_code or 0 if self._member.leaving else Unreachable.code

    def _finish(self, code: int) -> None:
        """The workers are gone; what they made is sent before the node goes."""
        belongings = self._belongings
        if belongings is None or not belongings.go_back or self._last_report is None or self._task is None:
            self._end(code)
        elif self._lingering is None:
            self._lingering = Lingering(self._last_report, self._task.timing.beat, self._connection.send)
            if self._signals:  # whoever asked waits no longer than the grace, of which the workers had a part
                left = self._asked_at + self._task.grace - self._loop.time()
                self._loop.call_later(max(left, _LAST_MOMENT), self._end, code)
            self._last_works = self._loop.create_task(self._send_the_rest(belongings, code))

    async def _send_the_rest(self, belongings: Belongings, code: int) -> None:
        await belongings.send_the_rest()
        self._end(code)

    def _end(self, code: int) -> None:
        if self._lingering is not None:
            self._lingering.stop()
        if not self._finished.done():
            self._finished.set_result(code)

    # -- workers -----------------------------------------------------------------------------------------------------

    def _worker_exited(self, worker: Worker) -> None:
        assert self._round is not None
        number = self._round.round
        self._progress.read()
        if worker.launch.launcher:
            self._launcher_ended(worker)
        elif worker.launch.rank < 0:
            self._preparation_ended(worker)
        elif worker.code == 0:
            self._feed(mb.WorkerEnded(number, last=not self._workers.running and not self._failed))
            self._serve_only()
        elif not self._failed:
            self._failed = True
            failure = rootcause.explain(worker, self._options.node, self._memory)
            self.say(failure.sentence())
            self._feed(mb.WorkerFailed(number, failure))

    def _launcher_ended(self, worker: Worker) -> None:
        """mpirun has ended, or its daemon. Its failure may only follow from that of a rank on another node."""
        assert self._round is not None and self._mpi is not None and worker.code is not None
        self._mpi.hear()
        self._mpi.launcher_ended(worker.code)
        if worker.code == 0 and not self._workers.running:
            if not self._failed:
                self._feed(mb.WorkerEnded(self._round.round, last=True))
        else:
            wait = 0.0 if self._round.place.nodes == 1 else _MPIRUN_FIRST if worker.code == 0 else _OTHERS_FIRST
            self._loop.call_later(wait, self._launcher_failed, worker)

    def _launcher_failed(self, worker: Worker) -> None:
        assert self._mpi is not None
        failure = self._mpi.explain(worker, self._options.node)
        if failure is not None and not self._failed and not self._workers.stopping:
            self._failed = True
            self.say(failure.sentence())
            self._feed(mb.WorkerFailed(worker.launch.round, failure))

    def _serve_only(self) -> None:
        """Where only workers are left that never end by themselves, the others need not wait for this node."""
        left = self._workers.running
        if left and not self._failed and self._round is not None and all(worker.launch.serves for worker in left):
            self._feed(mb.Serving(self._round.round))

    def _preparation_ended(self, worker: Worker) -> None:
        if worker.code == 0:
            self._prepared, self._task = True, self._ready
            self._warm_up()
            self._feed(mb.Doing(""))
            self._start_workers()
            return
        found = rootcause.explain(worker, self._options.node, self._memory)
        message, cause = f"prepare: {found.message or 'the step failed'}", found.cause or causes.PREPARE
        self._fail(message, worker.code or 1, found.signal, found.traceback, cause)

    def _fail(
        self, message: str, code: int = _CANNOT_START, signal_name: str = "", traceback: str = "", cause: str = ""
    ) -> None:
        """This node cannot run its part of the round; its first worker answers for it."""
        assert self._round is not None
        self._failed = True
        node, rank, cause = self._options.node, self._round.place.first_rank, cause or causes.find(message)
        failure = Failure(node, rank, 0, code, signal_name, message, traceback, time.time(), cause=cause)
        self.say(failure.sentence())
        self._feed(mb.WorkerFailed(self._round.round, failure))

    def _is_own(self, name: LogName) -> bool:
        first, end = self._own.get(name.round, (0, 0))
        return first <= name.rank < end
