"""The processes of one node: starts them, learns of their end at once, and stops them so that nothing is left.

Each worker is the leader of a session of its own, writes straight into its log files and dies with the agent. "Stopped"
means that no process of any round is left on this node: also not a grandchild, in the worker's group or out of it.

    start(launches)   then `on_exit(worker)` for each main process that ends by itself
    stop(grace)       SIGTERM; after `grace` SIGKILL; then `on_stopped()`. Said again, the shorter grace holds.
    destroy()         everything, now, without the event loop: the node is lost

It runs in the agent's event loop and never waits. Ranks, rounds and what an exit means are the agent's business.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from dataclasses import dataclass
from typing import Callable, Dict, List, Optional, Set

from petctl.agent import native, processes

STEP = "PETCTL_STEP"  # tells what the node's preparation left running (it stays) from what a worker did
PREPARE_STEP = "prepare"


@dataclass(frozen=True)
class Launch:
    """One process to start."""

    rank: int  # below 0: the node's preparation
    local_rank: int
    argv: List[str]
    env: Dict[str, str]
    cwd: Optional[str]
    out: str
    err: str
    error_file: str = ""


class Worker:
    """A started process. `code` is its exit code as a shell would say it, None while it runs."""

    def __init__(self, launch: Launch, process: subprocess.Popen[bytes]) -> None:
        self.launch = launch
        self.process = process
        self.pid = process.pid
        self.code: Optional[int] = None
        self.signal = 0

    def reap(self) -> bool:
        """Whether it has ended."""
        status = self.process.poll()
        if status is None:
            return False
        self.signal = -status if status < 0 else 0
        self.code = 128 + self.signal if status < 0 else status
        return True


class Workers:
    """All the processes that this agent started."""

    def __init__(
        self, node_key: str, guardian: int, on_exit: Callable[[Worker], None], on_stopped: Callable[[], None]
    ) -> None:
        self._key = node_key
        self._guardian = guardian  # the subreaper that adopts orphans; 0: there is none
        self._on_exit = on_exit
        self._on_stopped = on_stopped
        self._loop = asyncio.get_running_loop()
        self._started: List[Worker] = []
        self._watched: Dict[int, Callable[[], None]] = {}  # pidfd -> what to do at the end
        self._kill_at: Optional[float] = None  # not None: stopping
        self._timer: Optional[asyncio.TimerHandle] = None
        self._warned: Set[int] = set()  # leftovers that have had their SIGTERM
        self._pidfds = _pidfds_work()
        if not self._pidfds:
            self._loop.add_signal_handler(signal.SIGCHLD, self._reap_all)

    # -- start -------------------------------------------------------------------------------------------------------

    def start(self, launches: List[Launch]) -> None:
        """Starts all of them, or none: OSError says why the first one could not be."""
        self._end_leftovers()
        self._started = [worker for worker in self._started if worker.code is None]
        bind = native.die_with_parent()
        begun: List[Worker] = []
        try:
            begun.extend(_start(launch, bind) for launch in launches)
        except OSError:
            for worker in begun:
                processes.signal_group(worker.pid, signal.SIGKILL)
                worker.process.wait()
            raise
        self._started += begun
        for worker in begun:
            self._watch(worker.pid, lambda worker=worker: self._ended(worker))  # type: ignore[misc]
        if not self._pidfds:
            self._loop.call_soon(self._reap_all)  # SIGCHLD may have come before they were known

    @property
    def running(self) -> List[Worker]:
        """Those whose main process has not ended."""
        return [worker for worker in self._started if worker.code is None]

    @property
    def groups(self) -> List[int]:
        """Process groups that may still have members."""
        return [worker.pid for worker in self._started]

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
        if self._kill_at is None:
            if worker.launch.rank < 0:
                self._started.remove(worker)  # a preparation: what it left running belongs to the node, not to a round
            self._on_exit(worker)
        else:
            self._look()

    # -- stop --------------------------------------------------------------------------------------------------------

    def stop(self, grace: float) -> None:
        """Begins to stop everything; `on_stopped` follows when nothing is left."""
        kill_at = self._loop.time() + grace
        if self._kill_at is not None:
            if kill_at < self._kill_at:
                self._arm(kill_at)
            return
        self._arm(kill_at)
        for worker in self._started:
            processes.signal_group(worker.pid, signal.SIGTERM)
        self._loop.call_soon(self._look)

    def _arm(self, kill_at: float) -> None:
        self._kill_at = kill_at
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(kill_at, self._kill)

    def _kill(self) -> None:
        for worker in self._started:
            processes.signal_group(worker.pid, signal.SIGKILL)
        self._look()

    def _look(self) -> None:
        """Is anything left? Called whenever something has ended."""
        if self._kill_at is None:
            return
        late = self._loop.time() >= self._kill_at
        if self.running and not late:
            return  # its end brings us back here
        left = self._leftovers()
        if late:
            processes.signal_each(left, signal.SIGKILL)
        else:
            processes.signal_each(left - self._warned, signal.SIGTERM)
            self._warned |= left
        if not left and not self.running:
            self._stopped()
        elif not self.running and not any(self._watch(pid, self._look) for pid in sorted(left)):
            self._loop.call_later(0.02, self._look)

    def _stopped(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._kill_at = self._timer = None
        self._started.clear()
        self._warned.clear()
        self._on_stopped()

    # -- leftovers ---------------------------------------------------------------------------------------------------

    def _leftovers(self) -> Set[int]:
        """Processes of workers other than their main ones: below this agent, or adopted by the guardian."""
        living = processes.table()
        if not living:
            return set()
        me = os.getpid()
        found = processes.descendants(me, living)
        sessions = {worker.pid for worker in self._started}
        found |= {p.pid for p in living.values() if p.session in sessions or p.group in sessions}
        orphans = processes.descendants(self._guardian, living) if self._guardian else set(living)
        found |= processes.carrying(f"{processes.NODE_KEY}={self._key}", orphans - found - {me, self._guardian})
        found -= {worker.pid for worker in self.running}
        return found - processes.carrying(f"{STEP}={PREPARE_STEP}", found)

    def _end_leftovers(self) -> None:
        """What ended workers left running must not live into the next round."""
        if self._started:
            busy = {worker.pid for worker in self.running}
            for worker in self._started:
                if worker.pid not in busy:
                    processes.signal_group(worker.pid, signal.SIGKILL)
            processes.extinguish(self._leftovers, 5.0)

    def destroy(self) -> None:
        """Kills every process of this node at once; used when the guardian is dead or the agent gives up."""
        for worker in self._started:
            processes.signal_group(worker.pid, signal.SIGKILL)
        me = os.getpid()
        entry = f"{processes.NODE_KEY}={self._key}"

        def find() -> Set[int]:
            living = processes.table()
            below = processes.descendants(me, living)
            return below | processes.carrying(entry, set(living) - below - {me})

        processes.extinguish(find, 10.0)


def _start(launch: Launch, bind: Optional[Callable[[], None]]) -> Worker:
    os.makedirs(os.path.dirname(launch.out), exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    out = os.open(launch.out, flags, 0o644)
    err = -1
    try:
        err = os.open(launch.err, flags, 0o644)
        process = subprocess.Popen(
            launch.argv,
            env=launch.env,
            cwd=launch.cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=bind,
        )
    finally:
        os.close(out)
        if err >= 0:
            os.close(err)
    return Worker(launch, process)


def _pidfds_work() -> bool:
    if not hasattr(os, "pidfd_open"):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True
