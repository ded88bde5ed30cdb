"""The top process of a node: outlives its agent by design, and does so little that little can go wrong.

    guardian  (child subreaper, holds the node's lock)
      `-- agent  -> workers -> whatever they start

It forks the agent before anything heavy is imported, forwards signals to it and waits. However the agent ends, the
guardian then kills everything that descends from it, also what called setsid, and exits with the agent's code. Should
the guardian itself be killed, the agent notices (its end of a pipe closes) and kills the workers.

The one other thing it does: start a new supervisor on the agent's request, because a process that the agent starts
would stay a descendant of this node and end with it.

It must not talk to the network, read job data or import asyncio.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import Any, Callable, Dict, List, Set

from petctl.agent.node import native, runtime_dir
from petctl.agent.workers import processes
from petctl.errors import UsageError
from petctl.files import make_private_directory, release, take_lock

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
CGROUPS = "PETCTL_CGROUPS"  # the control groups that limit the agent and all below it, one a line
_PATIENCE = 10.0  # for killed processes to vanish; one in an uninterruptible system call may never


class Lifeline:
    """The agent's end: whether the guardian lives, and the way to ask it for something."""

    def __init__(self, alive: int, requests: int, guardian: int, subreaper: bool, directory: str) -> None:
        self.alive = alive  # readable, at end of file, when the guardian is dead
        self.guardian = guardian
        self.subreaper = subreaper
        self.directory = directory  # the node's private one; empty: there is none
        self._requests = requests

    def own(self, groups: List[int]) -> None:
        """Tells which process groups are the workers'; needed only where descendants cannot be looked up."""
        if not processes.can_be_listed():
            self._request({"groups": groups})

    def spawn(self, argv: List[str], log: str) -> None:
        """Asks the guardian to start a process that does not belong to this node."""
        self._request({"argv": argv, "log": log})

    def _request(self, wanted: Dict[str, Any]) -> None:
        import json

        os.write(self._requests, json.dumps(wanted).encode() + b"\n")


def guard(run_agent: Callable[[Lifeline], int], state_dir: str, key_tail: str) -> int:
    """Runs the agent in a child and returns its exit code when nothing of it is left.

    `key_tail` is how the PETCTL_NODE_KEY of all its processes ends: NODE/INCARNATION.
    """
    lock = _take_lock(state_dir) if state_dir else -1
    directory = runtime_dir.make(state_dir)
    subreaper = native.set_child_subreaper(True)
    groups = os.environ.pop(CGROUPS, "").splitlines()  # not for what the guardian starts beside the agent
    alive_read, alive_write = os.pipe()
    request_read, request_write = os.pipe()
    # Blocked until each side can handle them: a signal that comes early must not be lost, nor kill only one of the two.
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    guardian = os.getpid()
    agent = os.fork()
    if agent == 0:
        os.close(alive_write)
        os.close(request_read)
        os.setsid()  # Ctrl-C reaches it once, through the guardian
        _enter(groups)
        _leave(run_agent(Lifeline(alive_read, request_write, guardian, subreaper, directory)))
    os.close(alive_read)
    os.close(request_write)
    workers: List[int] = []
    code = _wait(agent, request_read, workers)
    _kill_the_rest(key_tail, workers)
    runtime_dir.remove(directory)
    os.close(alive_write)
    if lock >= 0:
        release(lock)
    return code


def _take_lock(state_dir: str) -> int:
    """Holds the node's lock for the life of this process, and for the agent's, which shares the open file."""
    make_private_directory(state_dir)
    lock = take_lock(os.path.join(state_dir, "lock"))
    if lock is None:
        raise UsageError(f"another agent uses the state directory {state_dir}; stop it, or give another --state-dir")
    _write_pid(os.path.join(state_dir, "pid"))
    return lock


def _write_pid(path: str) -> None:
    """In place, because that works on a full disk too; without its number a node works, but cannot be adopted."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.ftruncate(fd, os.write(fd, b"%d\n" % os.getpid()))
    except OSError:
        pass  # said nowhere: its log is on the same disk
    finally:
        os.close(fd)


def _enter(groups: List[str]) -> None:
    for group in groups:
        try:
            with open(os.path.join(group, "cgroup.procs"), "w", encoding="ascii") as file:
                file.write("0\n")
        except OSError as error:
            print(f"petctl: runs without the limits of {group}: {error.strerror}", file=sys.stderr, flush=True)


def _leave(code: int) -> None:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # also when there is no room for what they held
        os._exit(code)


def _wait(agent: int, requests: int, groups: List[int]) -> int:
    """Forwards, reaps and spawns until the agent has ended; says with which code."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    for number in FORWARDED:
        signal.signal(number, lambda number, frame: processes.signal_each([agent], number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    sources = [wake_read, requests]
    pending = b""
    while True:
        # Reaping comes first: the agent may have ended before SIGCHLD had its handler.
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == agent:
                signal.set_wakeup_fd(-1)
                return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        ready, _, _ = select.select(sources, [], [])
        if wake_read in ready:
            os.read(wake_read, 4096)
        if requests in ready:
            data = os.read(requests, 65536)
            if not data:
                sources.remove(requests)
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                _obey(line, groups)


def _obey(request: bytes, groups: List[int]) -> None:
    import json

    wanted = json.loads(request)
    if "groups" in wanted:
        groups[:] = wanted["groups"]
    else:
        _spawn(wanted["argv"], wanted["log"])


def _spawn(argv: List[str], log: str) -> None:
    """Starts a process outside this node: an orphan that the system's own init adopts."""
    # A subreaper would adopt it and, at the end, kill it. An orphan of a worker that slips out of the node in this
    # moment still carries the node's key, by which it is found at the end.
    native.set_child_subreaper(False)
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                _become(argv, log)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    native.set_child_subreaper(True)


def _become(argv: List[str], log: str) -> None:
    signal.set_wakeup_fd(-1)
    for number in (*FORWARDED, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.chdir("/")
    os.execvp(argv[0], argv)


def _kill_the_rest(key_tail: str, groups: List[int]) -> None:
    for group in groups:
        processes.signal_group(group, signal.SIGKILL)
    me = os.getpid()
    entry = f"{processes.NODE_KEY}=/{key_tail}"

    def find() -> Set[int]:
        _reap()
        living = processes.table()
        below = processes.descendants(me, living)
        others = set(living) - below - {me}
        return below | processes.carrying(entry, others, tail=True)

    left = processes.extinguish(find, _PATIENCE)
    if left:
        print(f"petctl: could not end these processes of the node: {sorted(left)}", file=sys.stderr)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
