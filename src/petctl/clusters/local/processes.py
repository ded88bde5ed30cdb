"""Finding and ending the processes that a local job left on this machine.

A guardian ends everything below it, so there is normally nothing to find. This is for the massacre: guardian and
agent killed at once, a machine out of memory. Workers are recognised by the marker in their environment, guardians
and agents by the node's state directory among their words. Only such processes are ever ended, and each through a
pidfd, so that a recycled process id cannot hit a stranger.
"""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path
from typing import Callable, Iterator, List

from petctl.agent import private

MARKER = b"PETCTL_NODE_KEY="


def node_processes(job: str, state_directories: Path, node: str = "") -> List[int]:
    """Process ids of a node's guardian, agent and workers; of all nodes of the job when `node` is empty."""
    key = MARKER + f"{job}/{node}/".encode() if node else MARKER + f"{job}/".encode()
    place = os.fsencode(state_directories / node if node else state_directories)
    return [pid for pid in _processes() if _belongs(pid, key, place)]


def _processes() -> Iterator[int]:
    own = os.getpid()
    for path in Path("/proc").glob("[0-9]*"):
        if path.name.isdigit() and int(path.name) != own:
            yield int(path.name)


def _belongs(pid: int, key: bytes, place: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return False  # ended meanwhile, or another user's
    if environment.startswith(key) or b"\0" + key in environment:
        return True
    return b"--state-dir" in words and any(word == place or word.startswith(place + b"/") for word in words)


def sweep(job: str, state_directories: Path, node: str = "", patience: float = 5.0) -> int:
    """Ends what is left of a node (or of the whole job), until nothing is; returns how many processes it ended."""
    key = MARKER + f"{job}/{node}/".encode() if node else MARKER + f"{job}/".encode()
    place = os.fsencode(state_directories / node if node else state_directories)
    deadline = time.monotonic() + patience
    ended = 0
    while True:
        found = [pid for pid in _processes() if _belongs(pid, key, place)]
        if not found or time.monotonic() > deadline:
            for directory in [state_directories / node] if node else state_directories.glob("*"):
                private.remove_of(str(directory))
            return ended
        for pid in found:
            ended += _end(pid, lambda pid=pid: _belongs(pid, key, place), deadline)  # type: ignore[misc]


def _end(pid: int, still_meant: Callable[[], bool], deadline: float) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not still_meant():
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.poll(max(0.0, deadline - time.monotonic()) * 1000)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)


def boot_id() -> str:
    """Names this run of the machine: another value later means that it was restarted."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
