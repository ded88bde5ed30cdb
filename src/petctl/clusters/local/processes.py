"""Finding and ending the processes that a local job left on this machine.

A guardian ends everything below it, so there is normally nothing to find. This is for the massacre: guardian and
agent killed at once, a machine out of memory. Workers are recognised by the marker in their environment, guardians
and agents by the node's state directory among their words. Only such processes are ever ended, and each through a
pidfd, so that a recycled process id cannot hit a stranger. Another $PETCTL_HOME may have a job of the same id, whose
workers carry the same marker: their directory of outputs tells whose they are.
"""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path
from typing import Iterator, List

from petctl.agent.node import runtime_dir

MARKER = b"PETCTL_NODE_KEY="
_OUTPUTS = b"PETCTL_OUTPUT_DIR="


class _Mark:
    """What the processes of a node have in common; of all nodes of the job when `node` is empty."""

    def __init__(self, job: str, state_directories: Path, node: str) -> None:
        self._key = MARKER + (f"{job}/{node}/" if node else f"{job}/").encode()
        self._place = os.fsencode(state_directories / node if node else state_directories)
        self._outputs = os.fsencode(state_directories.parent / "outputs")
        self._alike = f"/jobs/{job}/outputs".encode()

    def found(self) -> List[int]:
        """Their process ids."""
        return [pid for pid in _processes() if self.is_on(pid)]

    def is_on(self, pid: int) -> bool:
        """Whether this process is one of them."""
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = file.read()
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            return False  # ended meanwhile, or another user's
        if environment.startswith(self._key) or b"\0" + self._key in environment:
            return not self._elsewhere(environment.split(b"\0"))
        place = self._place
        return b"--state-dir" in words and any(word == place or word.startswith(place + b"/") for word in words)

    def _elsewhere(self, environment: List[bytes]) -> bool:
        said = next((entry[len(_OUTPUTS) :] for entry in environment if entry.startswith(_OUTPUTS)), b"")
        alike = said.endswith(self._alike) and said != self._outputs
        return alike and os.path.realpath(said) != os.path.realpath(self._outputs)


def node_processes(job: str, state_directories: Path, node: str = "") -> List[int]:
    """Process ids of a node's guardian, agent and workers; of all nodes of the job when `node` is empty."""
    return _Mark(job, state_directories, node).found()


def _processes() -> Iterator[int]:
    own = os.getpid()
    for path in Path("/proc").glob("[0-9]*"):
        if path.name.isdigit() and int(path.name) != own:
            yield int(path.name)


def sweep(job: str, state_directories: Path, node: str = "", patience: float = 5.0) -> int:
    """Ends what is left of a node (or of the whole job), until nothing is; returns how many processes it ended."""
    mark = _Mark(job, state_directories, node)
    deadline = time.monotonic() + patience
    ended = 0
    while True:
        found = mark.found()
        if not found or time.monotonic() > deadline:
            for directory in [state_directories / node] if node else state_directories.glob("*"):
                runtime_dir.remove_of(str(directory))
                if (directory / "cgroups").exists():
                    from petctl.clusters.local.controller import cgroups  # few jobs have any

                    cgroups.remove(directory)
            return ended
        for pid in found:
            ended += _end(pid, mark, deadline)


def _end(pid: int, mark: _Mark, deadline: float) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not mark.is_on(pid):  # it may be another's number by now
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
