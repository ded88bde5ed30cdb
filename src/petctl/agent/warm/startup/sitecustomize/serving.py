"""The zygote: one process with one thread that imports modules ahead and forks workers, as the agent asks it to.

    agent -> zygote   {"preload": {"groups": [[STATE, [...]], ...], "without": [...], "own": [...]}}
                      {"fork": {"id": N, "env": {...}, "cwd": PATH, "learn": PATH}}, with descriptors of out and err
    zygote -> agent   {"hello": {"python": TEXT}}
                      {"preloaded": {"loaded": [...], "foreign": [...], "failed": {...}, "left": [...],
                                     "trouble": [[...], TEXT]}}
                      {"forked": {"id": N, "pid": N}}, {"refused": {"id": N, "why": TEXT}}
                      {"exited": {"pid": N, "status": WAIT_STATUS}}

One JSON object a packet. The zygote ends with its socket, and its workers end with it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
from typing import Any, Dict, List, Optional, Tuple

from . import VARIABLE, threads
from .learning import Notes
from .module_store import Store
from .preloading import Preloading, hidden_modules
from .process_state import Start, State

_PR_SET_PDEATHSIG = 1
_LARGEST = 1 << 20
_NAME = b"petctl-zygote"  # as ps and top show it


def serve(descriptor: int) -> None:
    """Returns in each worker that is forked; the zygote itself never does."""
    os.set_inheritable(descriptor, False)
    _Zygote(socket.socket(fileno=descriptor)).serve()


class _Zygote:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._spoilt = ""
        self._start, self._store = Start(), Store()
        self._wake, self._woken = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._woken, False)
        self._name = _process_name()
        _set_process_name(_NAME)

    def serve(self) -> None:
        self._say("hello", {"python": f"{sys.executable} {sys.version} {sys.prefix}"})
        self._store.hide()
        while True:
            if self._wait():
                message, descriptors = self._receive()
                if "preload" in message:
                    self._preload(**message["preload"])
                elif "fork" in message and self._fork(message["fork"], descriptors):
                    return

    def _wait(self) -> bool:
        """Until a child has ended or the agent says something: then True. Signals are handled by us only in here."""
        handler = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        wakeup = signal.set_wakeup_fd(self._woken)
        try:
            self._reap()
            readable, _, _ = select.select([self._channel.fileno(), self._wake], [], [])
            if self._wake in readable:
                os.read(self._wake, 4096)
            self._reap()
        finally:
            signal.set_wakeup_fd(wakeup)
            signal.signal(signal.SIGCHLD, handler or signal.SIG_DFL)
        return self._channel.fileno() in readable

    def _say(self, word: str, data: Dict[str, Any]) -> None:
        self._channel.sendall(json.dumps({word: data}).encode())

    def _receive(self) -> Tuple[Dict[str, Any], List[int]]:
        size = struct.calcsize("2i")
        data, extra, _, _ = self._channel.recvmsg(_LARGEST, socket.CMSG_SPACE(size))
        if not data:
            os._exit(0)  # the agent is gone, or needs this zygote no more
        descriptors = [struct.unpack("2i", content) for level, kind, content in extra if kind == socket.SCM_RIGHTS]
        return json.loads(data), list(descriptors[0]) if descriptors else []

    def _reap(self) -> None:
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                self._say("exited", {"pid": pid, "status": status})
        except ChildProcessError:
            pass

    def _preload(self, groups: List[Tuple[State, List[str]]], without: List[str], own: List[str]) -> None:
        gc.collect()
        self._store.show()
        self._start.own = frozenset(own)
        findings = Preloading(self._start, self._store).load(groups, without)
        if findings.trouble is not None:
            self._spoilt = f"{findings.trouble[0][0]} {findings.trouble[1]}"
        self._store.hide()
        gc.collect()
        gc.freeze()  # a collection in a worker must not touch, and so copy, every object that it shares with us
        self._say("preloaded", findings._asdict())

    def _fork(self, wanted: Dict[str, Any], descriptors: List[int]) -> bool:
        """True in the worker."""
        why = self._spoilt or _why_not(self._store)
        if why:
            self._say("refused", {"id": wanted["id"], "why": why})
            _close(descriptors)
            return False
        sys.stdout.flush()
        sys.stderr.flush()
        ready, is_ready = os.pipe()
        zygote = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            _die_with(zygote)
            _close([ready, self._wake, self._woken])
            self._channel.close()
            _set_process_name(self._name)
            self._become_worker(wanted, *descriptors)
            os.close(is_ready)
            return True
        _close([*descriptors, is_ready])
        os.read(ready, 1)  # until it leads its own session: a signal to its group must find it
        os.close(ready)
        self._say("forked", {"id": wanted["id"], "pid": pid})
        return False

    def _become_worker(self, wanted: Dict[str, Any], out: int, err: int) -> None:
        """Everything in which a fork differs from a process that the agent itself has started."""
        for captured, file in ((1, out), (2, err)):
            os.dup2(file, captured)
            os.close(file)
        os.environ.update(wanted["env"])
        self._start.env.update(wanted["env"])
        if wanted["cwd"]:
            os.chdir(wanted["cwd"])
        _make_fresh(self._store)
        notes: Optional[Notes] = Notes(wanted["learn"], self._start) if wanted["learn"] else None
        self._store.open(self._start, notes, lambda: _begin_again(wanted))


def _begin_again(wanted: Dict[str, Any]) -> None:
    """The same worker as a new process, for which nothing was imported. What this one has printed stays."""
    sys.stdout.flush()
    sys.stderr.flush()
    with open("/proc/self/environ", "rb") as file:
        pairs = [entry.partition(b"=") for entry in file.read().split(b"\0") if b"=" in entry]
    env = {name: value for name, _, value in pairs}
    env.update({os.fsencode(name): os.fsencode(value) for name, value in wanted["env"].items()})
    env[os.fsencode(VARIABLE)] = os.fsencode("learn:" + wanted["learn"])
    if wanted["cwd"]:
        os.chdir(wanted["cwd"])
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP) and signal.getsignal(number) is not None:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    with open("/proc/self/cmdline", "rb") as file:
        argv = file.read().split(b"\0")[:-1]
    os.execvpe(argv[0], argv, env)


def _why_not(store: Store) -> str:
    """Why no worker can be forked from this process as it is now."""
    if threads.count() > 1:
        return "the zygote has more than one thread"
    hidden = sorted(hidden_modules(store))
    return f"a file beside the script takes the place of the module {hidden[0]}" if hidden else ""


def _make_fresh(store: Store) -> None:
    """State that a process draws for itself when it starts; `random` and `ssl` see to themselves."""
    numbers = store.get("numpy.random")
    if numbers is not None:
        numbers.seed()
    torch = store.get("torch.random")
    if torch is not None:
        torch.default_generator.seed()  # those of CUDA devices do not exist yet
    process = store.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)
    threading = store.get("threading")
    if threading is not None and hasattr(threading.main_thread(), "_set_native_id"):
        threading.main_thread()._set_native_id()


def _die_with(parent: int) -> None:
    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = [ctypes.c_int, *4 * [ctypes.c_ulong]]
    prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(128 + signal.SIGKILL)


def _process_name() -> bytes:
    with open("/proc/self/comm", "rb") as file:
        return file.read().strip()


def _set_process_name(name: bytes) -> None:
    with open("/proc/self/comm", "wb") as file:
        file.write(name)


def _close(descriptors: List[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
