"""Processes of a run, and the marks that they leave: find, kill, watch. Linux only, like the faults that are measured.

Whatever a benchmark starts carries PETCTL_BENCH=<key> in its environment; by that `sweep` finds what is left of a
run, also what has lost its parents. Nothing else is ever killed.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import select
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from common import Missed

KEY = "PETCTL_BENCH"


def new_key() -> str:
    """A key for one run's processes."""
    return secrets.token_hex(8)


def free_port() -> int:
    """A port that nobody listens on, below the kernel's own range, so that nobody takes it meanwhile."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = 10000 + secrets.randbelow(low - 10000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def processes() -> Iterator[Path]:
    """The directory in /proc of every process there is."""
    return (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())


def descendants(pid: int) -> list[int]:
    """The process and everything below it, parents first."""
    children: dict[int, list[int]] = {}
    for entry in processes():
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        children.setdefault(int(stat.rsplit(")", 1)[1].split()[1]), []).append(int(entry.name))
    found = [pid]
    for parent in found:
        found.extend(children.get(parent, []))
    return found


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """A signal for one process; one that is gone already is fine."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def kill_tree(pid: int) -> None:
    """A whole node dies at once, as in a power cut."""
    for victim in descendants(pid):
        kill(victim)


def carriers(key: str) -> list[int]:
    """Living processes that carry a run's key."""
    wanted = f"{KEY}={key}".encode()
    found = []
    for entry in processes():
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def sweep(key: str, deadline: float = 10.0) -> list[int]:
    """Kill whatever is left of a run; the pids that were."""
    seen: list[int] = []
    until = time.monotonic() + deadline
    while (left := carriers(key)) and time.monotonic() < until:
        for pid in left:
            kill(pid)
            wait_gone(pid, 1.0)
        seen.extend(pid for pid in left if pid not in seen)
    return seen


def wait_gone(pid: int, timeout: float) -> bool:
    """Wait for the end of a process that need not be ours."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], max(timeout, 0))[0])
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Mark:
    """One line of programs/step.py or programs/ddp.py."""

    time: float
    rank: int
    step: int  # since the group was formed
    world: int
    pid: int
    samples: int = 0  # of the whole training, committed


class Marks:
    """The growing file of marks; waits on inotify, never by the clock."""

    _IN_MODIFY = 0x2

    def __init__(self, path: Path) -> None:
        path.touch()
        self.path, self.all = path, []  # type: Path, list[Mark]
        self._file = path.open("rb")
        libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._inotify < 0 or libc.inotify_add_watch(self._inotify, os.fsencode(path), self._IN_MODIFY) < 0:
            raise OSError(ctypes.get_errno(), "inotify", str(path))

    def close(self) -> None:
        """Give the descriptors back."""
        self._file.close()
        os.close(self._inotify)

    def read(self) -> list[Mark]:
        """All marks so far."""
        while (line := self._file.readline()).endswith(b"\n"):
            when, *numbers = line.split()
            self.all.append(Mark(float(when), *map(int, numbers)))
        self._file.seek(-len(line), os.SEEK_CUR)  # half a line: read again when it is whole
        return self.all

    def change(self, timeout: float) -> None:
        """Until the file has grown, at most `timeout` seconds."""
        if select.select([self._inotify], [], [], max(timeout, 0))[0]:
            os.read(self._inotify, 65536)

    def until(
        self, what: str, found: Callable[[list[Mark]], float | None], deadline: float, vain: Callable[[], str] = str
    ) -> float:
        """The moment that `found` makes out in the marks; Missed at the deadline, or when `vain` says why."""
        end = time.monotonic() + deadline
        while True:
            moment = found(self.read())
            if moment is not None:
                return moment
            if time.monotonic() >= end:
                raise Missed(f"{what}: not within {deadline:.0f} s")
            if reason := vain():
                raise Missed(f"{what}: {reason}")
            self.change(min(end - time.monotonic(), 0.5))

    def pids(self) -> set[int]:
        """Every process that has left a mark."""
        return {mark.pid for mark in self.read()}

    def last_of(self, pids: Collection[int]) -> int:
        """Which of these has stepped last."""
        for mark in reversed(self.read()):
            if mark.pid in pids and mark.step:
                return mark.pid
        raise Missed("no worker of this node has stepped yet")

    def stepping(
        self,
        deadline: float,
        world: int = 0,
        steps: int = 1,
        old: Collection[int] = (),
        vain: Callable[[], str] = str,
        after: float = 0.0,
    ) -> float:
        """When every rank of a group (of this size, if given) had done `steps` steps.

        Neither marks of pids in `old` count, nor those made before `after`.
        """

        def found(marks: list[Mark]) -> float | None:
            ready: dict[int, dict[int, float]] = {}
            for mark in marks:
                if mark.step == steps and mark.time > after and mark.pid not in old and world in (0, mark.world):
                    ranks = ready.setdefault(mark.world, {})
                    ranks.setdefault(mark.rank, mark.time)
                    if len(ranks) == mark.world:
                        return max(ranks.values())
            return None

        return self.until("all ranks stepping", found, deadline, vain)
