"""The examples do what they say: under petctl, under torchrun, and by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TRAIN = ROOT / "examples" / "ddp" / "train.py"


def run(*words: str, home: Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PETCTL_HOME": str(home), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        words, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=110
    )


def petctl(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "petctl", *words, home=home)


def losses(directory: Path) -> dict[int, float]:
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    return {entry["step"]: entry["loss"] for entry in map(json.loads, lines)}


def test_hello_runs_from_its_job_file(tmp_path: Path) -> None:
    done = petctl("run", "examples/hello/job.yaml", home=tmp_path)
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        assert f"hello from rank {rank} of 4" in done.stdout
        assert f"[{rank}] step 5 of 5" in done.stdout


def test_hello_that_fails_once_is_started_again(tmp_path: Path) -> None:
    words = ("--steps", "2", "--step-time", "0.1", "--fail-rank", "1")
    done = petctl("run", "-n", "2", "examples/hello/hello.py", *words, home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "hello from rank 0 of 2, node 0, round 2" in done.stdout


def test_hello_that_always_fails_ends_with_its_own_code(tmp_path: Path) -> None:
    words = ("--step-time", "0", "--fail-rank", "0", "--fail-rounds", "9", "--fail-code", "7")
    done = petctl("run", "--restarts", "1", "examples/hello/hello.py", *words, home=tmp_path)
    assert done.returncode == 7
    assert "rank 0 fails on purpose at step 1" in done.stderr


def test_a_parameter_server_job_runs_from_its_job_file(tmp_path: Path) -> None:
    done = petctl("run", "examples/parameter_server/job.yaml", home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[ps 0] serves 12 weights from step 0" in done.stdout
    for index in range(3):
        assert f"[worker {index}] ends at step 30" in done.stdout


@pytest.mark.torch
def test_ddp_is_the_same_curve_under_petctl_torchrun_and_by_hand(tmp_path: Path, torch_python: str) -> None:
    words = [str(TRAIN), "--steps", "30", "--checkpoint-dir"]
    torchrun = [torch_python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    results = {
        "petctl": petctl("run", "-n", "2", "--python", torch_python, *words, str(tmp_path / "petctl"), home=tmp_path),
        "torchrun": run(*torchrun, *words, str(tmp_path / "torchrun"), home=tmp_path),
        "hand": run(torch_python, *words, str(tmp_path / "hand"), home=tmp_path),
    }
    for name, done in results.items():
        assert done.returncode == 0, f"{name}: {done.stderr}"
    curves = {name: losses(tmp_path / name) for name in results}
    for name, curve in curves.items():
        assert curve == pytest.approx(curves["hand"], rel=1e-3), name


@pytest.mark.torch
def test_ddp_resumes_where_it_was_interrupted(tmp_path: Path, torch_python: str) -> None:
    words = [torch_python, str(TRAIN), "--checkpoint-every", "10", "--checkpoint-dir"]
    run(*words, str(tmp_path / "whole"), "--steps", "40", home=tmp_path)
    run(*words, str(tmp_path / "parts"), "--steps", "20", home=tmp_path)
    second = run(*words, str(tmp_path / "parts"), "--steps", "40", home=tmp_path)
    assert "resuming at step 21" in second.stdout
    assert losses(tmp_path / "parts") == pytest.approx(losses(tmp_path / "whole"), rel=1e-3)
    assert not list((tmp_path / "parts").glob("*.tmp"))
