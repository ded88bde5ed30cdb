"""Scripts that know nothing of petctl run unchanged under it: Lightning, accelerate and JAX, also after a kill.

Some are the libraries' own, run from where they are installed; the others are in examples/, written as the libraries'
documents show. The libraries are in an environment of their own, which `make test` sets up.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
PROCESS = re.compile(r"rank (\d+) of (\d+) is process (\d+)")
PROGRESS = re.compile(r"^(?:epoch|step) (\d+) of \d+: loss ([0-9.]+)$", re.MULTILINE)
pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]


class Job:
    """One `petctl run` and what its workers have written."""

    def __init__(self, directory: Path, python: str) -> None:
        self.directory = directory
        self.python = python
        self.home = directory / "home"
        self.environment = {**os.environ, "PETCTL_HOME": str(self.home), "XDG_CACHE_HOME": str(directory / "cache")}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str) -> None:
        command = [sys.executable, "-m", "petctl", "run", "--python", self.python, *words]
        with (self.directory / "output").open("ab") as output:
            self.process = subprocess.Popen(
                command,
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def ended(self, timeout: float = 200.0) -> int:
        """The exit code."""
        assert self.process is not None
        return self.process.wait(timeout)

    @property
    def output(self) -> str:
        return (self.directory / "output").read_text()

    def log(self, number: int, rank: int) -> str:
        """What a rank has written in a round, so far."""
        found = list(self.home.glob(f"jobs/*/logs/round-{number:04d}/rank-{rank}.out"))
        return found[0].read_text() if found else ""

    def pid(self, number: int, rank: int) -> int:
        """The process that a rank said it is."""
        words = PROCESS.search(self.log(number, rank))
        assert words is not None and int(words[1]) == rank, self.output
        return int(words[3])

    def rounds(self) -> int:
        return len(list(self.home.glob("jobs/*/logs/round-*")))

    def until(self, look: Callable[[], bool], what: str, timeout: float = 100.0) -> None:
        """Waits until it is so; the job's end or the deadline fail the test."""
        assert self.process is not None
        deadline = time.monotonic() + timeout
        while not look():
            if self.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"did not see {what}; the job says:\n{self.output}")
            try:
                self.process.wait(0.05)
            except subprocess.TimeoutExpired:
                pass

    def close(self) -> None:
        """Ends the job if the test did not come so far."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60)


@pytest.fixture
def job(tmp_path: Path, foreign_python: str) -> Iterator[Job]:
    job = Job(tmp_path, foreign_python)
    try:
        yield job
    finally:
        job.close()


def progress(text: str) -> list[tuple[int, float]]:
    """The epochs or steps that rank 0 wrote down, with their losses."""
    return [(int(number), float(loss)) for number, loss in PROGRESS.findall(text)]


def parent_of(pid: int) -> bytes:
    """The command line of the process that started it."""
    parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    return Path(f"/proc/{parent}/cmdline").read_bytes()


@pytest.mark.long
def test_lightning_takes_its_place_among_four(job: Job) -> None:
    job.start("-n", "2", "--procs", "2", str(EXAMPLES / "lightning" / "train.py"), "--epochs", "10")
    assert job.ended() == 0, job.output
    assert {PROCESS.search(job.log(1, rank))[2] for rank in range(4)} == {"4"}  # type: ignore[index]
    assert [epoch for epoch, _ in progress(job.log(1, 0))] == list(range(10))


def test_accelerates_own_test_script_passes(job: Job) -> None:
    """The script behind `accelerate test`: process control, data loaders, samplers, training against one process."""
    job.environment["ACCELERATE_USE_CPU"] = "true"
    # It leaves its process group open, and PyTorch then aborts now and then at the very end of a process ("terminate
    # called without an active exception", under torchrun too): usual restarts are for that. Round 1 must pass.
    job.start("-n", "2", "-m", "accelerate.test_utils.scripts.test_script")
    assert job.ended() == 0, job.output
    assert "Training yielded the same results" in job.log(1, 0)


@pytest.mark.parametrize(
    ("name", "size"),
    [("lightning", ["--epochs", "40"]), ("accelerate", ["--epochs", "40"]), ("jax", ["--steps", "3000"])],
)
def test_a_killed_worker_costs_a_fork_and_nothing_else(job: Job, name: str, size: list[str]) -> None:
    job.start("-n", "2", "--preload", name, str(EXAMPLES / name / "train.py"), *size)
    job.until(lambda: len(progress(job.log(1, 0))) >= 4, "some progress")
    os.kill(job.pid(1, 1), signal.SIGKILL)
    job.until(lambda: len(progress(job.log(2, 0))) >= 2, "progress in the second round")
    parent = parent_of(job.pid(2, 1))
    assert job.ended() == 0, job.output
    before, after = progress(job.log(1, 0)), progress(job.log(2, 0))
    assert job.rounds() == 2
    assert before[0][0] < after[0][0] <= before[-1][0] + (after[1][0] - after[0][0]), "it went on from its checkpoint"
    assert after[-1][1] < before[0][1] / 10, "it learnt"
    assert {job.pid(2, 0), job.pid(2, 1)}.isdisjoint({job.pid(1, 0), job.pid(1, 1)})
    assert b"petctl.agent" not in parent, "it was forked from the zygote, not started by the agent"
