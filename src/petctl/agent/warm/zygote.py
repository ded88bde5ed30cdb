"""One zygote process, as the agent sees it: starts it, asks it to import and to fork, hears how its workers end.

    Zygote(launch, listener)       a process of the worker's own interpreter, in its directory and environment
    preload(groups, without, own)  answered by listener.preloaded
    fork(launch, out, err, birth)  answered by birth.born or birth.refused, and later birth.ended
    retire()                       it ends after the last worker that it has forked

It never waits. What to import, and when to have a zygote at all, is decided in warm.py; what runs in that other
process is in startup/.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, Deque, Dict, Iterable, List, Optional, Protocol, Tuple

from petctl.agent.node import native
from petctl.agent.warm import startup
from petctl.agent.workers import processes
from petctl.agent.workers.environment import ROUND_NAMES

if TYPE_CHECKING:
    from petctl.agent.workers.spawn import Launch

_NOT_RUN = 69  # the interpreter has not run startup/
_TOO_OLD = 68  # ... or startup/ has found that it is older than 3.8
_PACKET = 1 << 20
_NAMES = 500  # in one piece of a packet
_MOST_SENT = 1 << 16  # bytes of names and states in one packet


class Listener(Protocol):
    """Who wants to know about a zygote."""

    def greeted(self, zygote: Zygote, python: str) -> None: ...

    def preloaded(self, zygote: Zygote, findings: Dict[str, Any]) -> None: ...

    def refused(self, why: str) -> None: ...

    def gone(self, zygote: Zygote, why: str) -> None: ...


class SpawnRequest(Protocol):
    """Who waits for a worker."""

    def born(self, pid: int) -> None: ...

    def refused(self) -> None: ...

    def ended(self, status: int) -> None:
        """`status` as subprocess says it: below 0 for a signal."""


class Zygote:
    """A living zygote, or one that has just died. Made inside the running loop; OSError: it cannot be started."""

    def __init__(self, launch: Launch, listener: Listener) -> None:
        self.launch = launch
        self.busy = True  # starting or importing
        self.greeted = False
        self._retired = False
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._outbox: Deque[Tuple[bytes, List[int]]] = deque()
        self._asked = 0
        self._waiting: List[
            Tuple[Launch, int, int, SpawnRequest, str]
        ] = []  # until it is not busy: they can be called off
        self._expected: Dict[int, SpawnRequest] = {}
        self._children: Dict[int, SpawnRequest] = {}
        self._number = 0
        # What it says is shown to each of its workers: they would have said it themselves.
        self._said = [os.memfd_create(f"petctl-{stream}") for stream in ("out", "err")]
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = _start(launch, theirs.fileno(), self._said)
        except OSError:
            self._forget()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._readable)

    def fits(self, launch: Launch) -> bool:
        """Would a worker that it forks be the same as one that is started?"""
        return _identity(launch) == _identity(self.launch)

    def preload(self, groups: List[Tuple[Any, List[str]]], without: List[str], own: List[str]) -> None:
        """Has it import these, each in its state, but nothing that imports one of `without`.

        `own`: variables that each worker has its own value of.
        """
        for part in _packets(groups):
            self._send({"preload": {"groups": part, "without": without, "own": own}})
            self._asked += 1
        self.busy = True

    def fork(self, launch: Launch, out: int, err: int, birth: SpawnRequest, learn: str = "") -> None:
        """Has it fork a worker, when it is not busy; takes the descriptors over."""
        if self.busy:
            self._waiting.append((launch, out, err, birth, learn))
            return
        self._number += 1
        self._expected[self._number] = birth
        env = {name: launch.env[name] for name in ROUND_NAMES if name in launch.env}
        wanted = {"id": self._number, "env": env, "cwd": launch.cwd or "", "learn": learn}
        self._send({"fork": wanted}, [out, err])

    def call_off(self, birth: SpawnRequest) -> bool:
        """Takes a fork back; False: it is too late for that, and born or refused will be heard."""
        found = [wish for wish in self._waiting if wish[3] is birth]
        for wish in found:
            self._waiting.remove(wish)
            _close([wish[1], wish[2]])
        return bool(found)

    def retire(self) -> None:
        """No worker is to come from it any more: it ends when the last one has, and those that wait are refused."""
        self._retired = True
        self._end_if_unneeded()
        self._refuse_waiting()

    def _end_if_unneeded(self) -> None:
        if self._retired and not self._children and not self._expected:
            self._process.kill()

    def _refuse_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, out, err, birth, _ in waiting:
            _close([out, err])
            birth.refused()

    def _fork_waiting(self) -> None:
        while self._waiting and not self.busy:
            self.fork(*self._waiting.pop(0))

    # -- packets -----------------------------------------------------------------------------------------------------

    def _send(self, message: Dict[str, Any], descriptors: Optional[List[int]] = None) -> None:
        self._outbox.append((json.dumps(message).encode(), descriptors or []))
        self._writable()

    def _writable(self) -> None:
        try:
            while self._outbox:
                data, descriptors = self._outbox[0]
                rights = struct.pack(f"{len(descriptors)}i", *descriptors)
                extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if descriptors else []
                self._socket.sendmsg([data], extra)
                self._outbox.popleft()
                _close(descriptors)
            self._loop.remove_writer(self._socket)
        except BlockingIOError:
            self._loop.add_writer(self._socket, self._writable)
        except OSError:
            pass  # it is gone: the reader hears so too

    def _readable(self) -> None:
        try:
            data = self._socket.recv(_PACKET)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._died()
            return
        ((word, content),) = json.loads(data).items()
        if word == "hello":
            self.greeted, self.busy = True, False
            self._listener.greeted(self, content["python"])
            self._fork_waiting()
        elif word == "preloaded":
            self._asked -= 1
            self.busy = self._asked > 0
            self._listener.preloaded(self, content)
            self._fork_waiting()
        elif word == "forked":
            birth = self._children[content["pid"]] = self._expected.pop(content["id"])
            birth.born(content["pid"])
        elif word == "refused":
            birth = self._expected.pop(content["id"])
            self._listener.refused(content["why"])
            birth.refused()
        elif word == "exited" and content["pid"] in self._children:
            self._children.pop(content["pid"]).ended(_status(content["status"]))
        self._end_if_unneeded()

    def _died(self) -> None:
        """Its workers die with it. So do those that it was asked for and may have forked; others are just refused."""
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        last_words = os.pread(self._said[1], _PACKET, max(0, os.fstat(self._said[1]).st_size - 2000))
        self._forget()
        self._process.kill()
        self._process.wait()  # no wait: its socket is among the last things that a process lets go of
        for pid in self._children:
            processes.signal_group(pid, signal.SIGKILL)
        lost = [*self._children.values(), *self._expected.values()]
        self._children, self._expected = {}, {}
        self.busy = False
        self._listener.gone(self, _why(self._process.returncode, last_words))
        for birth in lost:
            birth.ended(-signal.SIGKILL)
        self._refuse_waiting()

    def _forget(self) -> None:
        self._socket.close()
        _close(self._said)
        for _, descriptors in self._outbox:
            _close(descriptors)
        self._outbox.clear()


def _start(launch: Launch, channel: int, said: List[int]) -> subprocess.Popen[bytes]:
    env = {name: value for name, value in launch.env.items() if name not in ROUND_NAMES}
    # First with a command that only says that startup/ was not run: the worker's own would, in that case, just run.
    check = [*launch.argv[: launch.interpreter], "-c", f"raise SystemExit({_NOT_RUN})", *launch.argv]
    return subprocess.Popen(
        check,
        env=startup.environment(env, startup.CHECK, str(channel)),
        cwd=launch.cwd,
        stdin=subprocess.DEVNULL,
        stdout=said[0],
        stderr=said[1],
        pass_fds=[channel],
        start_new_session=True,
        preexec_fn=native.die_with_parent(),
    )


def _packets(groups: List[Tuple[Any, List[str]]]) -> List[List[Tuple[Any, List[str]]]]:
    """Parts of the list that are small enough to be sent, at least one."""
    pieces = [
        (state, names[first : first + _NAMES]) for state, names in groups for first in range(0, len(names), _NAMES)
    ]
    packets: List[List[Tuple[Any, List[str]]]] = [[]]
    size = 0
    for piece in pieces:
        length = len(json.dumps(piece))
        if size and size + length > _MOST_SENT:
            packets.append([])
            size = 0
        packets[-1].append(piece)
        size += length
    return packets


def _identity(launch: Launch) -> Tuple[Any, ...]:
    env = {name: value for name, value in launch.env.items() if name not in ROUND_NAMES}
    return launch.argv, launch.cwd, env


def _status(wait_status: int) -> int:
    return -os.WTERMSIG(wait_status) if os.WIFSIGNALED(wait_status) else os.WEXITSTATUS(wait_status)


def _why(code: int, last_words: bytes) -> str:
    if code == _NOT_RUN:
        return "the interpreter ignores PYTHONPATH or has no site module"
    if code == _TOO_OLD:
        return "the interpreter is older than Python 3.8"
    lines = last_words.decode("utf-8", "replace").strip().splitlines()
    end = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{end}: {lines[-1]}" if lines and code >= 0 else end


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def possible() -> bool:
    """Whether this system has what a zygote needs."""
    return sys.platform.startswith("linux") and hasattr(os, "memfd_create") and os.path.isdir("/proc/self/task")
