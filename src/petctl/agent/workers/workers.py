"""The processes of one node: starts them, learns of their end at once, and stops them so that nothing is left.

Each worker is the leader of a session of its own, writes straight into its log files and dies with the agent. "Stopped"
means that no process of any round is left on this node: also not a grandchild, in the worker's group or out of it. The
exception are parked workers, with their children: they said themselves that they have left their round, and wait.

    clear(then)       ends what workers of the last round left running, then goes on: to start
    start(launches)   then `on_exit(worker)` for each main process that ends by itself. A parked worker of that local
                      rank gets the new place; for the others processes are started.
    add(launches)     more of them in the same round
    foreign_...       what is told of processes that a launcher (mpirun) has started: they are workers as the others
    stop(grace)       SIGTERM, after `grace` SIGKILL; workers that can, park instead. Launchers are ended when what they
                      have started has ended. Then `on_stopped()`.
    destroy()         everything, now, without the event loop: the node is lost

It runs in the agent's event loop and never waits. Ranks, rounds and what an exit means are the agent's business.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Callable, Dict, List, Optional, Set

from petctl.agent.warm.warm import WarmStart
from petctl.agent.workers import processes
from petctl.agent.workers.channel import Channel
from petctl.agent.workers.spawn import Launch, Starter, Worker, open_logs
from petctl.agent.workers.stopping import ABORT_TIMEOUT, PARK_TIMEOUT, Stopping, stopping

__all__ = ["Launch", "Worker", "Workers"]

_CLEARING, _CLEARING_STEP = 5.0, 0.01  # seconds for what workers left running to end, and between two looks
_TELLING = 0.5  # seconds within which the end of a foreign process is told


class Workers:
    """All the processes that this agent started."""

    def __init__(
        self,
        node_key: str,
        guardian: int,
        on_exit: Callable[[Worker], None],
        on_stopped: Callable[[], None],
        channel: Optional[Channel] = None,
        warm: Optional[WarmStart] = None,
    ) -> None:
        self._key = node_key
        self._guardian = guardian  # the subreaper that adopts orphans; 0: there is none
        self._on_exit = on_exit
        self._on_stopped = on_stopped
        self._loop = asyncio.get_running_loop()
        self._channel = channel or Channel()
        self._warm = warm or WarmStart(lambda sentence: None, lambda warming: None)
        self._starter = Starter(self._warm, self._begun, self._ended)
        self._channel.on_parked, self._channel.on_lost = self._has_parked, self._cannot_park
        self._channel.on_aborted = self._has_aborted
        self._park_by: Dict[Worker, float] = {}  # for those that had to abort their collectives first
        self._started: List[Worker] = []
        self._parked: List[Worker] = []  # those that were left by the last stop, or were early
        self._gone: List[Worker] = []  # foreign ones, in the order in which their processes ended
        self.early: List[Worker] = []  # started without a place, and not parked yet
        self.on_early: Callable[[], None] = lambda: None  # one less of them
        self._watched: Dict[int, Callable[[], None]] = {}  # pidfd -> what to do at the end
        self._stopping: Optional[Stopping] = None
        self._timers: List[asyncio.TimerHandle] = []
        self._warned: Set[int] = set()  # leftovers that have had their SIGTERM
        self._pidfds = _pidfds_work()
        if not self._pidfds:
            self._loop.add_signal_handler(signal.SIGCHLD, self._reap_all)

    # -- start -------------------------------------------------------------------------------------------------------

    def start(self, launches: List[Launch]) -> None:
        """Starts all of them, or none: OSError says why the first one could not be."""
        self.drop_early()
        self._started = [worker for worker in self._started if worker.code is None]
        self._gone.clear()
        places = self._places(launches)
        self._start_all([launch for launch in launches if launch.local_rank not in places])
        if any(launch.rank >= 0 for launch in launches):
            self._resume(places, launches)

    def add(self, launches: List[Launch]) -> None:
        """Starts more of them in the round that runs; OSError says why not."""
        self._start_all(launches)

    def foreign_began(self, launch: Launch, pid: int) -> None:
        """A launcher has started one: this is its process, and what it turned out to be."""
        worker = self._foreign(launch.local_rank)
        if worker is None or self._stopping is not None:
            processes.signal_group(pid, signal.SIGKILL)  # nobody waits for it
        else:
            worker.launch = launch
            self._starter.born(worker, pid)
            self._watch(pid, lambda: self._foreign_gone(worker))

    def _foreign_gone(self, worker: Worker) -> None:
        """Its process has ended; how, is being told."""
        self._gone.append(worker)
        self._look()

    def foreign_ended(self, local_rank: int, status: int) -> None:
        """One of them has ended; the status is as that of a process."""
        worker = self._foreign(local_rank)
        if worker is None:
            return
        gone = self._gone[: self._gone.index(worker)] if worker in self._gone else self._gone
        if status and self._stopping is None and any(other.code is None for other in gone):
            # One that was gone before is the cause, and what is told of it is on its way.
            self._loop.call_later(_TELLING, self._starter.end, worker, status)
        else:
            self._starter.end(worker, status)

    def _foreign(self, local_rank: int) -> Optional[Worker]:
        fitting = [worker for worker in self.running if worker.launch.foreign]
        return next((worker for worker in fitting if worker.launch.local_rank == local_rank), None)

    def start_early(self, launches: List[Launch]) -> None:
        """Starts workers without a place: once they have parked, they get the next one of their local rank."""
        self.early = self._start_all([launch for launch in launches if self.parked(launch.local_rank) is None])

    def drop_early(self) -> None:
        """Those that have not parked yet would be too late."""
        dropped, self.early = self.early, []
        for worker in dropped:
            self._started.remove(worker)
            self._starter.abandon(worker)

    def _start_all(self, launches: List[Launch]) -> List[Worker]:
        begun: List[Worker] = []
        try:
            begun.extend(self._starter.begin(launch) for launch in launches)
        except OSError:
            for worker in begun:
                self._starter.abandon(worker)
                if worker.process is not None:
                    worker.process.wait()
            raise
        self._started += begun
        for worker in begun:
            self._channel.know(worker)
        return begun

    def _begun(self, worker: Worker) -> None:
        """It has a process."""
        if worker.process is not None:
            self._watch(worker.pid, lambda: self._ended(worker))
            if not self._pidfds:
                self._loop.call_soon(self._reap_all)  # SIGCHLD may have come before it was known

    @property
    def running(self) -> List[Worker]:
        """Those whose main process has not ended."""
        return [worker for worker in self._started if worker.code is None]

    @property
    def stopping(self) -> bool:
        """Is a stop under way?"""
        return self._stopping is not None

    @property
    def groups(self) -> List[int]:
        """Process groups that may still have members."""
        return [worker.pid for worker in self._started if worker.pid]

    def _watch(self, pid: int, then: Callable[[], None]) -> bool:
        if not self._pidfds:
            return False
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return False
        self._watched[fd] = then
        self._loop.add_reader(fd, self._readable, fd)
        return True

    def _readable(self, fd: int) -> None:
        self._loop.remove_reader(fd)
        os.close(fd)
        self._watched.pop(fd)()

    def _reap_all(self) -> None:
        for worker in self.running:
            self._ended(worker)

    def _ended(self, worker: Worker) -> None:
        if worker.code is not None or not worker.reap():
            return
        self._channel.forget(worker)
        self._warm.learn()
        if self._stopping is not None:
            self._look()
        elif worker in self._parked:
            self._parked.remove(worker)  # it was in no round: another one is started in the next
        elif worker in self.early:
            self.early.remove(worker)
            self.on_early()
        elif worker in self._started:
            if worker.launch.rank < 0:
                self._started.remove(worker)  # a preparation: what it left running belongs to the node, not to a round
            self._on_exit(worker)

    # -- stop --------------------------------------------------------------------------------------------------------

    def stop(self, grace: float, planned: bool = False, final: bool = False, why: str = "") -> None:
        """Begins to stop everything; `on_stopped` follows when no worker is in a round any more.

        `planned`: workers that can park choose the moment, within the grace. `final`: none of them is needed again.
        """
        now, before = self._loop.time(), self._stopping
        wish = stopping(now, grace, planned, final)
        self._stopping = wish if before is None else before.with_another(wish)
        if before is None:
            for worker in list(self._started):
                if not worker.pid:
                    self._starter.abandon(worker)
                elif worker.launch.launcher:
                    continue  # it would cut short what it has started
                elif not self._channel.elastic(worker):
                    processes.signal_group(worker.pid, signal.SIGTERM)
        if before is None or (before.planned, before.final) != (self._stopping.planned, self._stopping.final):
            self._park(self._stopping, max(0.0, self._stopping.park_by - PARK_TIMEOUT - now), why)
        self._arm(self._stopping)
        self._loop.call_soon(self._look)

    def _park(self, wish: Stopping, within: float, why: str) -> None:
        for worker in self.running:
            if self._channel.parked(worker):
                self._has_parked(worker)
            elif self._channel.elastic(worker):
                self._channel.park(worker, wish.planned, within, wish.final, why)

    def kill(self) -> None:
        """Does not wait any longer for workers that are being stopped."""
        for worker in self._started:
            processes.signal_group(worker.pid, signal.SIGKILL)
        self.stop(0.0, final=True)

    def _arm(self, wish: Stopping) -> None:
        self._disarm()
        moments = {wish.kill_at, wish.park_by, wish.park_by + ABORT_TIMEOUT, wish.end_by}
        self._timers = [self._loop.call_at(moment, self._enforce) for moment in moments]

    def _disarm(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _enforce(self) -> None:
        """A deadline has passed: ends those for whom it was set."""
        assert self._stopping is not None
        now, wish = self._loop.time(), self._stopping
        for worker in self._started:
            due = wish.kill_at
            if self._channel.parked(worker):
                due = wish.end_by
            elif self._channel.aborting(worker):
                due = wish.park_by + ABORT_TIMEOUT
            elif self._channel.elastic(worker):
                due = max(wish.park_by, self._park_by.get(worker, wish.park_by))
            if now >= due and not self._rests(worker):
                processes.signal_group(worker.pid, signal.SIGKILL)
        self._look()

    def _rests(self, worker: Worker) -> bool:
        """Has it parked, and may it stay?"""
        final = self._stopping is not None and self._stopping.final
        return worker.code is None and not final and self._channel.parked(worker)

    def _look(self) -> None:
        """Is anything left? Called whenever something has ended or parked."""
        if self._stopping is None:
            return
        late = self._loop.time() >= self._stopping.kill_at
        self._bury()
        busy = [worker for worker in self.running if not self._rests(worker)]
        if all(worker.launch.launcher for worker in busy):
            for worker in busy:
                processes.signal_group(worker.pid, signal.SIGKILL)
        if busy and not late:
            return  # its end brings us back here
        left = self._leftovers()
        if late:
            processes.signal_each(left, signal.SIGKILL)
        else:
            processes.signal_each(left - self._warned, signal.SIGTERM)
            self._warned |= left
        if not left and not busy:
            self._stopped()
        elif not busy and not any(self._watch(pid, self._look) for pid in sorted(left)):
            self._loop.call_later(0.02, self._look)

    def _bury(self) -> None:
        """Foreign ones whose end nobody can tell any more, because that one was killed."""
        for worker in self.running:
            if worker.launch.foreign and worker.pid and not processes.exists(worker.pid):
                worker.status = -signal.SIGKILL
                worker.reap()
                self._channel.forget(worker)

    def _stopped(self) -> None:
        self._disarm()
        self._stopping = None
        self._started, self._parked, self.early = self.running, self.running, []
        self._warned.clear()
        self._park_by.clear()
        self._on_stopped()

    # -- parked workers ----------------------------------------------------------------------------------------------

    def parked(self, local_rank: int) -> Optional[Worker]:
        """The parked worker that will get the next place of this local rank, if there is one."""
        fitting = [worker for worker in self._parked if worker.launch.local_rank == local_rank]
        return next((worker for worker in fitting if self._channel.parked(worker)), None)

    def _has_parked(self, worker: Worker) -> None:
        if self._stopping is not None:
            if self._stopping.final:
                processes.signal_group(worker.pid, signal.SIGTERM)
            self._look()
        elif worker in self.early:
            self.early.remove(worker)
            self._parked.append(worker)
            self.on_early()

    def _has_aborted(self, worker: Worker) -> None:
        if self._stopping is not None:
            self._park_by[worker] = self._loop.time() + PARK_TIMEOUT
            self._timers.append(self._loop.call_at(self._park_by[worker], self._enforce))

    def _cannot_park(self, worker: Worker) -> None:
        """It does not listen any more: it can neither be parked nor be given a new place."""
        if self._stopping is not None:
            processes.signal_group(worker.pid, signal.SIGTERM)
        elif worker in self._parked:
            processes.signal_group(worker.pid, signal.SIGKILL)

    def _places(self, launches: List[Launch]) -> Dict[int, Worker]:
        """Parked workers that take a launch's place, by local rank; OSError when their log files cannot be made."""
        places: Dict[int, Worker] = {}
        for launch in launches:
            worker = self.parked(launch.local_rank) if launch.rank >= 0 else None
            if worker is not None and (worker.launch.argv, worker.launch.cwd) == (launch.argv, launch.cwd):
                for descriptor in open_logs(launch):
                    os.close(descriptor)
                places[launch.local_rank] = worker
        return places

    def _resume(self, places: Dict[int, Worker], launches: List[Launch]) -> None:
        resting, self._parked = self._parked, []
        for worker in resting:
            if worker not in places.values():
                self._started.remove(worker)
                processes.signal_group(worker.pid, signal.SIGKILL)
        for launch in launches:
            if launch.local_rank in places:
                worker = places[launch.local_rank]
                before, worker.launch = worker.launch.env, launch
                if not self._channel.run(worker, {n: v for n, v in launch.env.items() if before.get(n) != v}):
                    processes.signal_group(worker.pid, signal.SIGKILL)  # its end is a failure of the round

    # -- leftovers ---------------------------------------------------------------------------------------------------

    def _leftovers(self) -> Set[int]:
        sessions = self.groups
        main = {worker.pid for worker in self.running}
        resting = {worker.pid for worker in self._started if self._rests(worker)}
        return processes.of_workers(self._key, self._guardian, sessions, main, resting, set(self._warm.processes))

    def clear(self, then: Callable[[], None]) -> None:
        """Ends what ended workers left running, which must not live into the next round; then goes on. The agent's
        loop does not wait meanwhile, nor longer than a while for what cannot be ended."""
        self.drop_early()
        busy = {worker.pid for worker in self.running}
        for worker in self._started:
            if worker.pid not in busy:
                processes.signal_group(worker.pid, signal.SIGKILL)
        self._clear_until(self._loop.time() + _CLEARING, then)

    def _clear_until(self, deadline: float, then: Callable[[], None]) -> None:
        left = self._leftovers() if self._started else set()
        if not left or self._loop.time() >= deadline:
            then()
            return
        processes.signal_each(left, signal.SIGKILL)
        self._loop.call_later(_CLEARING_STEP, self._clear_until, deadline, then)

    def destroy(self) -> None:
        """Kills every process of this node at once; used when the guardian is dead or the agent gives up."""
        for worker in self._started:
            processes.signal_group(worker.pid, signal.SIGKILL)
        processes.extinguish(lambda: processes.of_node(self._key), 10.0)


def _pidfds_work() -> bool:
    if not hasattr(os, "pidfd_open"):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True
