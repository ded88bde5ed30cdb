"""How the process of one worker comes to be: forked from the node's zygote where that can be done, else started.

    Starter.begin(launch)   a Worker, which may have to wait for its process; `on_begun` when it has one
    Starter.abandon(worker) it is not wanted any more; if it has no process yet, it never gets to do anything

It must not know about rounds, nor stop anything that runs: that is workers.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Optional

from petctl.agent.node import native
from petctl.agent.warm.warm import WarmStart
from petctl.agent.workers import processes

_CANNOT_START = 127  # what a shell answers when there is no such program


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
    round: int = 0
    interpreter: int = 0  # how many words of argv are a Python and its options; 0: it cannot be forked from a zygote
    source: str = ""  # what stands for its directory between runs, where that is another one in each
    stable: List[str] = field(default_factory=list)  # what stands for argv between runs, where that is another one
    task: str = ""  # which one of a role it is: "worker 1"
    serves: bool = False  # it does not end by itself
    launcher: bool = False  # it is none of the job's processes, but starts some: mpirun, its daemon
    foreign: bool = False  # such a one starts it, and somebody will tell when it begins and how it ends


class Worker:
    """A started process. `code` is its exit code as a shell would say it, None while it runs."""

    def __init__(self, launch: Launch, process: Optional[subprocess.Popen[bytes]] = None) -> None:
        self.launch = launch
        self.process = process  # None: somebody else is its parent, and its status is told
        self.pid = process.pid if process is not None else 0  # 0: it is not forked yet
        self.status: Optional[int] = None
        self.code: Optional[int] = None
        self.signal = 0

    def reap(self) -> bool:
        """Whether it has ended."""
        status = self.process.poll() if self.process is not None else self.status
        if status is None:
            return False
        self.signal = -status if status < 0 else 0
        self.code = 128 + self.signal if status < 0 else status
        return True


class Starter:
    """Begins workers. `on_ended` comes only for those whose status somebody else tells; the others have to be asked."""

    def __init__(self, warm: WarmStart, on_begun: Callable[[Worker], None], on_ended: Callable[[Worker], None]) -> None:
        self._warm, self._on_begun, self._on_ended = warm, on_begun, on_ended
        self._births: Dict[Worker, _Birth] = {}

    def begin(self, launch: Launch) -> Worker:
        """One more worker; OSError says why it cannot be."""
        if launch.foreign:
            return Worker(launch)
        if not self._warm.takes(launch):
            worker = Worker(launch, self._start(launch))
            self._on_begun(worker)
            return worker
        out, err = open_logs(launch)
        worker = Worker(launch)
        self._births[worker] = _Birth(self, worker)
        self._warm.fork(launch, out, err, self._births[worker])
        return worker

    def abandon(self, worker: Worker) -> None:
        """Kills it, or sees to it that it is not forked."""
        processes.signal_group(worker.pid, signal.SIGKILL)
        birth = self._births.get(worker)
        if worker.launch.foreign and not worker.pid:
            asyncio.get_running_loop().call_soon(self.end, worker, -signal.SIGKILL)
        if birth is not None:
            birth.wanted = False
            if self._warm.call_off(birth):
                asyncio.get_running_loop().call_soon(self.end, worker, -signal.SIGKILL)

    def start_cold(self, worker: Worker) -> None:
        """The zygote could not fork it."""
        del self._births[worker]
        try:
            worker.process = self._start(worker.launch)
        except OSError as error:
            _tell(worker.launch, f"cannot start {worker.launch.argv[0]}: {error.strerror or error}")
            self.end(worker, _CANNOT_START)
        else:
            worker.pid = worker.process.pid
            self._on_begun(worker)

    def born(self, worker: Worker, pid: int) -> None:
        """The zygote has forked it, or a launcher has started it."""
        worker.pid = pid
        self._on_begun(worker)

    def end(self, worker: Worker, status: int) -> None:
        """Somebody knows how it ended."""
        self._births.pop(worker, None)
        worker.status = status
        self._on_ended(worker)

    def _start(self, launch: Launch) -> subprocess.Popen[bytes]:
        return start_process(launch, self._warm.observed(launch))


class _Birth:
    """One worker that the zygote was asked for."""

    def __init__(self, starter: Starter, worker: Worker) -> None:
        self._starter, self._worker = starter, worker
        self.wanted = True

    def born(self, pid: int) -> None:
        self._starter.born(self._worker, pid)
        if not self.wanted:
            processes.signal_group(pid, signal.SIGKILL)

    def refused(self) -> None:
        if self.wanted:
            self._starter.start_cold(self._worker)
        else:
            self._starter.end(self._worker, -signal.SIGKILL)

    def ended(self, status: int) -> None:
        self._starter.end(self._worker, status)


def open_logs(launch: Launch) -> List[int]:
    """Descriptors of its stdout and stderr, which are files."""
    os.makedirs(os.path.dirname(launch.out), exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    out = os.open(launch.out, flags, 0o644)
    try:
        return [out, os.open(launch.err, flags, 0o644)]
    except OSError:
        os.close(out)
        raise


def start_process(launch: Launch, env: Dict[str, str]) -> subprocess.Popen[bytes]:
    """A new process, in a session of its own, that dies with this one."""
    out, err = open_logs(launch)
    try:
        return subprocess.Popen(
            launch.argv,
            env=env,
            cwd=launch.cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=native.die_with_parent(),
        )
    finally:
        os.close(out)
        os.close(err)


def _tell(launch: Launch, sentence: str) -> None:
    """Into its stderr, where the cause of a failure is looked for."""
    try:
        with open(launch.err, "a", encoding="utf-8") as file:
            file.write(sentence + "\n")
    except OSError:
        pass
