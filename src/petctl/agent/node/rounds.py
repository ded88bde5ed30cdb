"""A node's part in the rounds: makes ready for its workers, starts them as the job's launcher says, knows their ends.

    start --> what the workers need is coming --> preparation, once --> Launcher.plan --> Workers
                                                                       their ends --> feed(event of the member)

Which round is run and when is decided by `Member` and the coordinator; how processes are started and stopped is
`workers.py`; what differs by launcher, `launchers.py`.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from petctl import causes
from petctl.agent.health import root_cause
from petctl.agent.health.oom import MemoryWatch
from petctl.agent.health.progress import VARIABLE as PROGRESS_FILE
from petctl.agent.health.progress import ProgressBook
from petctl.agent.health.stacks import StackDump, failure_of
from petctl.agent.launchers.launchers import comes_again, launcher_of, preparation, prepared, why_not_started
from petctl.agent.logs.log_cap import LogCap
from petctl.agent.logs.log_files import LogName, is_full
from petctl.agent.node.guardian import Lifeline
from petctl.agent.node.node_assets import Belongings
from petctl.agent.warm.prestart import EarlyStart
from petctl.agent.warm.warm import WarmStart
from petctl.agent.workers.channel import Channel
from petctl.agent.workers.environment import RoundContext
from petctl.agent.workers.snapshot_command import named_by_user
from petctl.agent.workers.workers import Launch, Worker, Workers
from petctl.errors import PetctlError, UsageError
from petctl.job.task import Task
from petctl.rendezvous.core import member as mb
from petctl.rendezvous.core.messages import Failure, Progress

_CANNOT_START = 127  # what a shell answers when there is no such program

log = logging.getLogger(__name__)


class Rounds:
    """Those of one node, one after the other. `here`: what it has in each of them, and pretends before the first."""

    def __init__(
        self,
        here: RoundContext,
        log_dir: str,
        belongings: Belongings,
        lifeline: Lifeline,
        workers: Workers,
        warm: WarmStart,
        channel: Channel,
        feed: Callable[[object], None],
        send: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._here, self._log_dir, self._belongings, self._lifeline = here, log_dir, belongings, lifeline
        self._workers, self._warm, self._feed = workers, warm, feed
        self._round = here
        self._early = EarlyStart(workers, self.warmth_changed)
        self._failed = False  # a worker of the round has failed
        self.trains = False  # a worker of the round has told its progress
        self._prepared = not belongings.task.needs_preparation
        self._ready: Task  # as the task is once the preparation has ended well
        self._start_waits = self._early_waits = False  # for them: a round; workers that are to be started early
        self._due: object = None  # the start that waits for leftovers of the last round to end
        self._note = ""  # what the node does before its workers start
        self._own: Dict[int, Tuple[int, int]] = {}  # round -> first rank, end of ranks
        self._log_cap = LogCap()
        self._memory = MemoryWatch()
        self._progress = ProgressBook(self._progressed)
        channel.on_progress = lambda worker, data: self._progress.take(worker.launch.local_rank, data)
        self._stacks = StackDump(channel)
        task, directory = belongings.task, lifeline.directory
        self.launcher = launcher_of(task, directory, workers, send, self._fail, self._launcher_ended)

    # -- what workers need first -------------------------------------------------------------------------------------

    def arrived(self) -> None:
        """Code and folders are there."""
        self.warm_up()
        if self._early_waits:
            self._begin_early()
        self.warmth_changed()
        if self._start_waits:
            self._tell("")
            self._start_round()

    def still_coming(self, sentence: str) -> None:
        """How far they are."""
        if self._start_waits:
            self._tell(sentence)

    def warm_up(self) -> None:
        """Imports that are known are made while the node joins."""
        planned = self._planned_early()
        if planned:
            self._warm.begin(planned[0], self._belongings.task.preload)

    def warmth_changed(self) -> None:
        """Nobody stops for a node that could not train yet."""
        self._feed(mb.Warming(bool(self._belongings.coming) or self._warm.warming or self._early.pending))

    def start_early(self) -> None:
        """Workers that park may be started before the node has a place."""
        if self._belongings.coming:
            self._early_waits = True
        else:
            self._begin_early()

    def _begin_early(self) -> None:
        self._early_waits = False
        self._early.begin(self._planned_early(), self._log_dir, self._here.node)

    def _planned_early(self) -> List[Launch]:
        """Workers as they will be, while the node has no place; none before its preparation, which may install much."""
        needs = self._belongings
        if needs.problem or needs.coming or not self._prepared or not self.launcher.early:
            return []
        try:
            return self.launcher.plan(needs.task, self._here, os.environ, self._log_dir)
        except UsageError:
            return []  # said when the workers are started

    # -- a round -----------------------------------------------------------------------------------------------------

    def start(self, effect: mb.Start) -> None:
        """The node has a place."""
        place, procs = effect.place, effect.place.procs or self._here.procs
        self._round = dataclasses.replace(
            self._here, epoch=effect.epoch, round=effect.round, place=place, spent=effect.spent, procs=procs
        )
        self._failed = self.trains = False
        self._progress.end()  # what was told before is of another round
        self._own[effect.round] = (place.first_rank, place.first_rank + procs)
        if self._belongings.coming:
            self._start_waits, self._early_waits = True, False
            self._tell(self._belongings.coming)
        else:
            self._start_round()

    def _start_round(self) -> None:
        self._start_waits = False
        if self._belongings.problem:
            self._fail(self._belongings.problem, lasting=True)
        elif self._prepared:
            self._start_workers()
        else:
            self._prepare()

    def _prepare(self) -> None:
        task, here = self._belongings.task, self._here
        try:
            self._ready = prepared(task, os.environ)
        except PetctlError as error:
            self._fail(str(error), lasting=True)
            return
        self._tell("preparing")
        self._launch([preparation(task, self._ready, here.node, here.node_key, os.environ, self._log_dir)])

    def _start_workers(self) -> None:
        current, task = self._round, self._belongings.task
        try:
            planned = self.launcher.plan(task, current, os.environ, self._log_dir)
        except PetctlError as error:
            self._fail(str(error), lasting=isinstance(error, UsageError))
            return
        self._belongings.starting(current.round, *self._own[current.round], planned)
        files = [launch.env[PROGRESS_FILE] for launch in planned if not launch.launcher]
        self._progress.begin(current.procs, files)

        def begun() -> None:
            self.launcher.begun()
            self._serve_only()
            logs = [path for launch in planned for path in (launch.out, launch.err)]
            self._log_cap.watch([*logs, *files], task.log_cap)
            self._log_cap.begin(self._log_dir, current.round)

        self._launch(planned, begun)

    def _launch(self, planned: List[Launch], begun: Callable[[], None] = lambda: None) -> None:
        """Starts them once nothing of the last round is left, unless they were called off meanwhile."""
        due = self._due = object()

        def start() -> None:
            if self._due is not due:
                return
            try:
                self._workers.start(planned)
            except OSError as error:
                self._fail(why_not_started(error, planned), lasting=comes_again(error))
            self._lifeline.own(self._workers.groups)
            begun()

        self._workers.clear(start)

    def stop(self, effect: mb.Stop) -> None:
        """Begins to; `stopped` follows."""
        if self._workers.running and not self._workers.stopping:
            log.info("stopping the workers: %s", effect.why)
        self._start_waits, self._due = False, None
        self._workers.stop(effect.grace, effect.planned, effect.final, effect.why)

    def stopped(self) -> None:
        """No worker is in a round any more."""
        self._tell("")
        self._lifeline.own(self._workers.groups)
        self.launcher.end()

    def is_own(self, name: LogName) -> bool:
        """Is that a file of one of this node's workers?"""
        first, end = self._own.get(name.round, (0, 0))
        return first <= name.rank < end

    def _tell(self, note: str) -> None:
        if note != self._note:
            self._note = note
            self._feed(mb.Doing(note))

    # -- how it goes -------------------------------------------------------------------------------------------------

    def _progressed(self, progress: Progress) -> None:
        if self._round.round:
            self.trains = True
            self._feed(mb.Progressed(self._round.round, progress))

    def dump(self, effect: mb.Dump) -> None:
        """The round stands still: what the workers are doing is written down before anybody is stopped."""
        log.info("%s", effect.stall.sentence)
        self._stacks.ask(self._workers.running, lambda: self._hangs(effect))

    def _hangs(self, effect: mb.Dump) -> None:
        guilty = [worker for worker in self._workers.running if worker.launch.rank == effect.stall.rank]
        if not guilty or self._failed or self._round.round != effect.round:
            return
        if is_full(self._log_dir):
            log.info("not counted as a failure: the disk is full, so progress may be unsaved")
            return
        self._failed = True
        failure = named_by_user(failure_of(guilty[0], self._here.node, effect.stall), self._belongings.task)
        self._feed(mb.WorkerFailed(effect.round, failure))

    def worker_exited(self, worker: Worker) -> None:
        """One has ended by itself."""
        self._progress.read()
        if worker.launch.launcher:
            self.launcher.launcher_ended(worker)
        elif worker.launch.rank < 0:
            self._preparation_ended(worker)
        elif worker.code == 0:
            self._feed(mb.WorkerEnded(self._round.round, last=not self._workers.running))
            self._serve_only()
        else:
            self._failed_with(root_cause.explain(worker, self._here.node, self._memory), not self._workers.running)

    def _launcher_ended(self, failure: Optional[Failure]) -> None:
        """What starts the workers has ended, after all of them, or with this failure."""
        if failure is not None and not self._failed:
            self._failed_with(failure)
        elif not self._failed:
            self._feed(mb.WorkerEnded(self._round.round, last=True))

    def _serve_only(self) -> None:
        """Where only workers are left that never end by themselves, the others need not wait for this node."""
        left = self._workers.running
        if left and not self._failed and all(worker.launch.serves for worker in left):
            self._feed(mb.Serving(self._round.round))

    def _preparation_ended(self, worker: Worker) -> None:
        if worker.code == 0:
            self._prepared, self._belongings.task = True, self._ready
            self.warm_up()
            self._tell("")
            self._start_workers()
            return
        found = root_cause.explain(worker, self._here.node, self._memory)
        message, cause = f"prepare: {found.message or 'the step failed'}", found.cause or causes.PREPARE
        rank = self._round.place.first_rank
        self._failed_with(dataclasses.replace(found, rank=rank, local_rank=0, message=message, cause=cause))

    def _fail(self, message: str, lasting: bool = False) -> None:
        """This node cannot do its part of the round, or of any; its first worker answers for it."""
        node, rank, cause = self._here.node, self._round.place.first_rank, causes.find(message)
        self._failed_with(
            Failure(node, rank, 0, _CANNOT_START, message=message, time=time.time(), cause=cause, lasting=lasting)
        )

    def _failed_with(self, failure: Failure, last: bool = True) -> None:
        self._failed, failure = True, named_by_user(failure, self._belongings.task)
        log.info("%s", failure.sentence())
        self._feed(mb.WorkerFailed(self._round.round, failure, last))
