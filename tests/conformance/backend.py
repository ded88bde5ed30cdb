"""The harness: how the cases reach a cluster of some kind, and break what there is to be broken.

For a backend of your own: a subclass with `name`, `lacks` and `environment`, and what it does not lack.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

from petctl.clusters.base import Cluster, LogLine, find_cluster
from petctl.errors import PetctlError
from petctl.home import petctl_home
from petctl.job.spec import Job
from petctl.jobs import JobHandle, Status, submit

ROOT = Path(__file__).parents[2]
HELLO = re.compile(rb"rank (\d+) of (\d+) in round (\d+) on (\S+) by (\d+)\n")

# What a cluster may lack. Everything else each of them must do.
TWO_STREAMS = "two streams"  # a worker's stderr is told from its stdout
OUTPUTS = "outputs"  # what jobs make is kept without further ado, in a directory of this machine
OTHER_PROCESSES = "other processes"  # a job is seen and steered by other processes than its submitter's
LOSE_NODE = "lose_node"  # a node can be lost without its job
LOSE_CONTROLLER = "lose_controller"  # what looks after a job is something that can be killed
WAITING = "waiting"  # a job can be accepted that does not begin
UNREACHABLE = "unreachable"  # there is somebody who may not answer
TOKEN = "token"  # a machine can join with a file


class Hello(NamedTuple):
    """A worker that has said who it is."""

    rank: int
    world: int
    round: int
    node: str
    pid: int


class Backend:
    """One cluster, and a user of it who has a directory, a home and a configuration."""

    name = ""  # of this harness, as in --backends
    cluster = ""  # what the user calls it: submit -c
    lacks: ClassVar[Mapping[str, str]] = {}  # capability -> why
    long: ClassVar[frozenset[str]] = (
        frozenset()
    )  # cases that are marked so, as they take long here and tell little more
    all_long = False  # whether all of them are
    patience = 60.0  # seconds in which anything that is waited for must have come
    slow = False  # a job takes seconds to begin

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.project = directory / "project"
        self.project.mkdir(parents=True)
        shutil.copy(Path(__file__).with_name("worker.py"), self.project)

    # -- what a backend says of itself ---------------------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """The user's variables, over those of the tests."""
        return {
            "PETCTL_HOME": str(self.directory / "home"),
            "XDG_CONFIG_HOME": str(self.directory / "config"),
            "XDG_CACHE_HOME": str(self.directory / "cache"),
        }

    def another_environment(self) -> dict[str, str]:
        """Those of a second client of the same cluster."""
        return self.environment()

    def close(self) -> None:
        """Gives back what the harness has taken, when its jobs are gone."""

    def left(self, job_id: str) -> list[str]:
        """What there still is of a job that was removed."""
        raise NotImplementedError

    def at_rest(self, job_id: str) -> bytes:
        """All that is kept of a job where somebody might read it, other than where the cluster keeps secrets."""
        return json.dumps(self.connect().record(job_id).to_dict()).encode()

    def lose_node(self, handle: JobHandle, node: str) -> None:
        """Takes a node from a job; whether it may say a last word is the cluster's way."""
        raise NotImplementedError

    def lose_controller(self, handle: JobHandle) -> None:
        """Kills what looks after the job."""
        raise NotImplementedError

    def waiting(self) -> AbstractContextManager[dict[str, Any]]:
        """Fields of a job that is accepted and cannot begin, as long as the context lasts."""
        raise NotImplementedError

    def unreachable(self, handle: JobHandle) -> AbstractContextManager[Callable[[], object]]:
        """Nobody answers any more; gives a question for them."""
        raise NotImplementedError

    # -- what the cases do with it -------------------------------------------------------------------------------------

    def needs(self, *capabilities: str) -> None:
        """Skips a case that the cluster cannot have, by its harness's own word."""
        for capability in capabilities:
            if capability in self.lacks:
                pytest.skip(f"{self.name} lacks {capability!r}: {self.lacks[capability]}")

    @contextmanager
    def inside(self) -> Iterator[None]:
        """As if the user had started this process."""
        with pytest.MonkeyPatch.context() as patch, open(os.devnull) as nothing:
            for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
                patch.delenv(name, raising=False)
            for name, value in self.environment().items():
                patch.setenv(name, value)
            patch.chdir(self.project)
            patch.setattr(sys, "stdin", nothing)
            yield

    def connect(self) -> Cluster:
        """The seam itself."""
        return find_cluster(self.cluster, petctl_home())

    def job(self, *words: str, **fields: Any) -> Job:
        """One that runs worker.py with these words."""
        return Job(script="worker.py", args=list(words), **{"grace": 5, "name": "case", **fields})

    def start(self, *words: str, id: str | None = None, **fields: Any) -> JobHandle:  # noqa: A002  as in petctl.submit
        """Submits it."""
        return submit(self.job(*words, **fields), self.cluster, id)

    def tell(self, handle: JobHandle, word: str, *nodes: str) -> None:
        """Tells the workers of these nodes something, or of all."""
        for node in nodes or [node.name for node in handle.status().nodes if node.state == "running"]:
            assert handle.exec(["sh", "-c", f'touch "${{PETCTL_OUTPUT_DIR:?}}/{word}"'], node) == 0

    def petctl(self, *words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """The command line, in a process of its own."""
        return self.python("-m", "petctl", *words, environment=environment)

    def python(self, *words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Another process of the user."""
        own = self.environment() if environment is None else environment
        known = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
        path = [str(ROOT / "src"), str(ROOT), *filter(None, [known.get("PYTHONPATH")])]
        env = {**known, "PYTHONPATH": os.pathsep.join(path), **own}
        argv = [sys.executable, *words]
        return subprocess.run(argv, cwd=self.project, env=env, capture_output=True, text=True, timeout=self.patience)

    def seen(self, handle: JobHandle, wanted: Callable[[Status], object], what: str) -> Status:
        """The first status that is as wanted."""
        deadline, status = time.monotonic() + self.patience, handle.status()
        while not wanted(status):
            assert time.monotonic() < deadline, f"not within {self.patience:g} s: {what}; {status}"
            status = handle.watch(status, deadline - time.monotonic())
        return status

    def printed(self, handle: JobHandle, wanted: Callable[[LogLine], object], what: str) -> LogLine:
        """The first line that is as wanted, as soon as it is there."""
        for line in handle.logs(follow=True):
            if wanted(line):
                return line
        raise AssertionError(f"the job has ended without {what}: {handle.status()}")

    def greeted(self, handle: JobHandle, world: int, after: int = 0) -> dict[int, Hello]:
        """The workers of the first round after that one in which so many have said who they are, by rank."""
        found: dict[int, dict[int, Hello]] = {}

        def complete(line: LogLine) -> bool:
            match = HELLO.fullmatch(line.text)
            if match:
                rank, size, number, node, pid = match.groups()
                hello = Hello(int(rank), int(size), int(number), node.decode(), int(pid))
                if hello.round > after and hello.world == world:
                    found.setdefault(hello.round, {})[hello.rank] = hello
            return any(len(workers) == world for workers in found.values())

        self.printed(handle, complete, f"{world} workers in a round after {after}")
        return next(workers for workers in found.values() if len(workers) == world)

    def running(self, handle: JobHandle, nodes: int, after: int = 0) -> Status:
        """The status once so many nodes run in a round after that one."""

        def runs(status: Status) -> bool:
            busy = [node for node in status.nodes if node.state == "running"]
            return status.state == "running" and status.round > after and len(busy) == len(status.nodes) == nodes

        return self.seen(handle, runs, f"{nodes} nodes that run after round {after}")

    def end(self, handle: JobHandle) -> None:
        """Whatever became of it, it goes."""
        try:
            handle.remove(force=True)
        except PetctlError:
            pass  # a case has removed it
