"""What a node finds out about the machine it runs on: processors, GPUs, its address, a place for its logs.

It looks and decides; nothing is started and nothing is sent.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
from dataclasses import dataclass
from typing import Mapping, Optional

from petctl.agent.node.options import Options
from petctl.errors import PetctlError, Unreachable, UsageError
from petctl.files import make_private_directory
from petctl.job.task import Task
from petctl.rendezvous.net.join_file import JoinFile

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Devices:
    """What the node was told about its accelerators: their indices, or only how many it shall claim to have."""

    gpus: Optional[str] = None  # "0,1"
    nominal: Optional[int] = None

    def count(self, environ: Mapping[str, str]) -> int:
        """How many GPUs a worker of this node would see."""
        if self.gpus is not None:
            return len([index for index in self.gpus.split(",") if index.strip()])
        if self.nominal is not None:
            return self.nominal
        visible = environ.get("CUDA_VISIBLE_DEVICES")
        if visible is not None:
            indices = [index.strip() for index in visible.split(",")]
            return next((n for n, index in enumerate(indices) if index in ("", "-1")), len(indices))
        try:
            return sum(1 for name in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", name))
        except OSError:
            return 0


def count_processes(procs: str, devices: Devices, environ: Mapping[str, str]) -> int:
    """How many workers this node runs, for a number, `cpu`, `gpu` or `auto`."""
    if procs.isdigit() and int(procs) > 0:
        return int(procs)
    gpus = devices.count(environ) if procs in ("gpu", "auto") else 0
    if gpus:
        return gpus
    if procs in ("cpu", "auto"):
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if procs == "gpu":
        raise UsageError(
            "this node has no GPU, but the job asks for one process per GPU; use `procs: auto` or a number"
        )
    raise UsageError(f"procs is {procs!r}; it must be a number above 0, cpu, gpu or auto")


def own_address(join: JoinFile) -> str:
    """The address of this machine that faces the coordinator; nothing is sent to find it."""
    from petctl.rendezvous.net.locator import is_loopback, resolve

    try:
        host, port = resolve(join.locator, 5.0)
        if is_loopback(host) or host == "localhost":
            return "127.0.0.1"
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except (OSError, Unreachable):
        return socket.gethostname()


def state_directory(task: Task, options: Options) -> str:
    """What belongs to this node alone."""
    home = os.environ.get("PETCTL_HOME") or os.path.expanduser("~/.local/state/petctl")
    return options.state_dir or os.path.join(home, "nodes", task.job, options.node)


def choose_log_dir(task: Task, options: Options) -> str:
    """Where the job wants its logs, if this machine has that place; else the node's own."""
    state_dir = state_directory(task, options)
    if task.log_dir and not _here(task.log_dir):
        log.info("the job's directory of logs, %s, is on another machine; this node keeps its own", task.log_dir)
    for directory in (_here(task.log_dir), os.path.join(state_dir, "logs")):
        if directory:
            try:
                make_private_directory(os.path.dirname(directory))
                os.makedirs(directory, exist_ok=True)
                return os.path.abspath(directory)
            except OSError as error:
                log.warning("cannot write logs to %s on this machine: %s", directory, error.strerror)
    raise PetctlError(f"found no directory for log files on this machine (tried {state_dir}); give --state-dir")


def make_outputs(task: Task, options: Options) -> str:
    """The directory for what the job makes, with one for each of its outputs; on other machines the node's own."""
    directory = _here(task.output_dir) or os.path.join(state_directory(task, options), "outputs")
    try:
        make_private_directory(os.path.dirname(directory))
        for name in ("", *task.outputs):
            os.makedirs(os.path.join(directory, name), exist_ok=True)
    except OSError as error:
        raise PetctlError(f"cannot make the directory {error.filename} for outputs: {error.strerror}") from None
    return directory


def make_checkpoints(task: Task) -> None:
    """The directory for checkpoints, if this machine has that place."""
    if _here(task.checkpoint_dir):
        with contextlib.suppress(OSError):  # whoever writes there will say why not
            os.makedirs(task.checkpoint_dir, exist_ok=True)


def _here(directory: str) -> str:
    """The directory, if this is the machine that has it: what it is in must be there already."""
    return directory if directory and os.path.isdir(os.path.dirname(directory)) else ""
