"""The same script under petctl, under torchrun and by hand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from tests.integration.elastic.harness import IMPORTS, ROOT, environment
from tests.integration.elastic.jobs import Job, lines

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
TRAINING = Path(__file__).with_name("training.py")
EXAMPLE = ROOT / "examples" / "elastic_ddp" / "train.py"


def test_by_hand_and_under_torchrun_it_learns_the_same(tmp_path: Path, torch_python: str) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    results = [
        subprocess.run(
            [torch_python, *launcher, str(TRAINING)],
            env=environment(STEPS="40"),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=2 * IMPORTS,
        )
        for launcher in ([], torchrun)
    ]
    for done in results:
        assert done.returncode == 0, done.stderr
    by_hand, under_torchrun = (lines(done.stdout) for done in results)
    assert {line["world"] for line in by_hand} == {1}
    assert {line["world"] for line in under_torchrun} == {2}
    ends = [line["weight"] for line in by_hand + under_torchrun if "done" in line]
    assert len(ends) == 3
    assert ends == pytest.approx([ends[0]] * 3, rel=1e-4)


@pytest.fixture
def job(tmp_path: Path, torch_python: str) -> Iterator[Job]:
    job = Job(tmp_path, "-n", "1:2", "--python", torch_python, str(TRAINING))
    try:
        yield job
    finally:
        job.petctl("cancel", job.id)


def test_survivors_keep_their_process_when_a_node_is_killed_and_replaced(job: Job) -> None:
    first, begun = job.steps(rank=0, world=2)
    os.kill(job.guardian(rank=1), signal.SIGKILL)
    second, alone = job.steps(rank=0, world=1, after=first)
    third, both = job.steps(rank=0, world=2, after=second)
    assert alone["pid"] == both["pid"] == begun["pid"]
    assert both["step"] > alone["step"]
    assert job.steps(rank=1, world=2, after=third - 1)[1]["step"] >= both["step"]


def test_a_scale_down_undoes_nothing(job: Job) -> None:
    first, begun = job.steps(rank=0, world=2)
    before = job.lines(0, first)
    assert job.petctl("scale", job.id, "1").returncode == 0
    second, alone = job.steps(rank=0, world=1, after=first)
    assert alone["pid"] == begun["pid"]
    made = max(line["made"] for line in job.lines(0, first) if "made" in line)
    assert made >= before[-1].get("step", 0)
    assert next(line["entered"] for line in job.lines(0, second) if "entered" in line) == made


def test_the_example_ends_well_under_petctl(tmp_path: Path, torch_python: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "petctl", "run", "-n", "2", "--python", torch_python, str(EXAMPLE), "--epochs", "2"],
        env=environment(PETCTL_HOME=str(tmp_path)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=2 * IMPORTS,
    )
    assert done.returncode == 0, done.stderr
    assert "2 ranks, process" in done.stdout
    for rank in range(2):
        assert f"rank {rank} is done: 80 steps" in done.stdout
