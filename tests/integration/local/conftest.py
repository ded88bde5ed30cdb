"""A private $PETCTL_HOME per test, a worker that leaves marks to wait for, and proof that nothing is left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import petctl
from petctl.agent.workers.processes import signal_each
from petctl.clusters.local.processes import node_processes
from petctl.errors import PetctlError
from petctl.jobs import JobHandle, Status, get, list_jobs, submit
from tests.integration.waiting import DEADLINE, until

WORKER = """
import os, pathlib, signal, sys, time
here = pathlib.Path(sys.argv[1])
mode = sys.argv[2] if len(sys.argv) > 2 else ""
rank, world, number = (os.environ[name] for name in ("RANK", "WORLD_SIZE", "PETCTL_ROUND"))
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
marks = os.open(here / "marks", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(marks, f"{number} {rank} {world} {os.getpid()} {os.environ['PETCTL_NODE']}\\n".encode())
print(f"rank {rank} of {world} in round {number}", flush=True)
if mode == "fail" and rank == "0":
    raise RuntimeError("out of luck")
if mode == "exit":
    sys.exit(int(sys.argv[3]))
steps = os.open(here / f"steps-{number}-{rank}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
while not (here / "finish").exists():
    os.write(steps, b".")
    time.sleep(0.02)
"""


class Mark(NamedTuple):
    """A worker that was started."""

    round: int
    rank: int
    world: int
    pid: int
    node: str


class Stage:
    """One test's directory and jobs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "worker.py").write_text(WORKER)

    def start(self, *words: str, **fields: Any) -> JobHandle:
        fields = {"grace": 2, "cwd": self.path, **fields}
        return submit(petctl.Job(script="worker.py", args=[str(self.path), *words], **fields))

    def finish(self) -> None:
        (self.path / "finish").touch()

    def marks(self, number: int | None = None) -> list[Mark]:
        try:
            lines = (self.path / "marks").read_text().splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            *numbers, node = line.split()
            started_in, rank, world, pid = map(int, numbers)
            found.append(Mark(started_in, rank, world, pid, node))
        return [mark for mark in found if number is None or mark.round == number]

    def steps(self, number: int, rank: int) -> int:
        try:
            return (self.path / f"steps-{number}-{rank}").stat().st_size
        except FileNotFoundError:
            return 0

    def running(self, world: int, after: int = 0) -> int:
        """The first round after `after` of which `world` workers are stepping."""

        def look() -> int:
            rounds = sorted({mark.round for mark in self.marks() if mark.round > after and mark.world == world})
            stepping = [n for n in rounds if all(self.steps(n, rank) for rank in range(world))]
            return stepping[0] if stepping else 0

        return until(look, f"a round after {after} with {world} workers")

    def status(self, handle: JobHandle, number: int) -> Status:
        """What is known once a round runs: its workers may begin before a busy supervisor has written that down."""

        def look() -> Status | None:
            status = handle.status()
            return status if status.round >= number and status.state == "running" else None

        return until(look, f"a status of round {number}")

    def goes_on(self, number: int, world: int) -> None:
        """Waits until every worker of the round has made steps from now on."""
        before = [self.steps(number, rank) for rank in range(world)]
        until(
            lambda: all(self.steps(number, rank) > before[rank] + 2 for rank in range(world)),
            f"steps of round {number}",
        )


def exists(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    """The direct children of a process."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def guardian(handle: JobHandle, node: str) -> int:
    """The top process of a node, once the status tells: that is written after the fact."""

    def look() -> int:
        return next((row.pid for row in handle.status().nodes if row.name == node), 0)

    return int(until(look, f"the process of node {node}"))


def job_path(handle: JobHandle) -> Path:
    """The job's directory."""
    return Path(handle.status().directory)


def supervisor_pid(handle: JobHandle) -> int:
    """The process id that the newest supervisor has written down."""
    import json

    return int(json.loads((job_path(handle) / "coordinator.json").read_text())["pid"])


def processes_of(job_directory: Path) -> list[int]:
    """Everything that belongs to a job: supervisor, guardians, agents, workers."""
    found = node_processes(job_directory.name, job_directory / "nodes")
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"petctl.clusters.local.controller.supervisor" in words and os.fsencode(job_directory) in words:
            found.append(int(path.name))
    return found


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A place for one test's jobs; afterwards every process of them must be gone, by itself or by force."""
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    stage = Stage(tmp_path)
    monkeypatch.chdir(tmp_path)
    try:
        yield stage
    finally:
        left = end_all(list_jobs())
    assert not left, f"processes were left behind: {left}"


def end_all(jobs: list[Status]) -> list[int]:
    """Ends what has not ended by itself; the processes that outlived even that, which are killed now."""
    for status in jobs:
        try:
            if not status.final:
                get(status.id).cancel(kill=True)
                get(status.id).wait(DEADLINE)
        except (PetctlError, TimeoutError):
            pass
    left = still_there([Path(status.directory) for status in jobs])
    signal_each(left, signal.SIGKILL)
    return left


def still_there(jobs: list[Path], patience: float = DEADLINE) -> list[int]:
    """What has not ended by itself: after its last word a supervisor still takes a moment."""
    deadline = time.monotonic() + patience
    while left := [pid for path in jobs for pid in processes_of(path)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return left
