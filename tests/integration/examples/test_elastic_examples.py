"""The elastic examples train through the loss of a node, and the guide shows the scripts that it speaks of."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]


def run_and_kill_a_node(directory: Path, python: str, sign: str, *words: str) -> str:
    """Runs the job on two nodes, kills node 1 when rank 0 has written `sign`, and gives all that was written."""
    environment = {**os.environ, "PETCTL_HOME": str(directory / "home"), "XDG_CACHE_HOME": str(directory / "cache")}
    command = [
        sys.executable,
        "-m",
        "petctl",
        "run",
        "-n",
        "1:2",
        "--python",
        python,
        "-e",
        "OMP_NUM_THREADS=1",
        *words,
    ]
    written = directory / "written"
    with written.open("wb") as output:
        job = subprocess.Popen(
            command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        deadline = time.monotonic() + 100
        while sign not in written.read_text():
            assert job.poll() is None and time.monotonic() < deadline, written.read_text()
            try:
                job.wait(0.02)
            except subprocess.TimeoutExpired:
                pass
        node = next((directory / "home").glob("jobs/*/nodes/1/pid"))
        os.kill(int(node.read_text()), signal.SIGKILL)
        assert job.wait(120) == 0, written.read_text()
    finally:
        if job.poll() is None:
            job.send_signal(signal.SIGINT)
            job.send_signal(signal.SIGINT)
            job.wait(60)
    return written.read_text()


@pytest.mark.long
def test_imagenet_goes_on_without_the_node_that_was_lost(tmp_path: Path, torch_python: str) -> None:
    script = str(EXAMPLES / "imagenet" / "main.py")
    data = ["--input_path", str(tmp_path / "images"), "--make-data", "240", "--image_size", "32"]
    written = run_and_kill_a_node(tmp_path, torch_python, "epoch 1:", script, *data, "--epochs", "12")
    begins = [int(step) for step in re.findall(r"\[0\] \d rank\(s\) on cpu, 240 images, step (\d+)", written)]
    assert begins[0] == 0 and begins[1] > 7, "the second round went on after the first two epochs of four steps"
    assert "epoch 11:" in written
    assert [path.name for path in tmp_path.glob("images*")] == ["images"], "of two painters one was first"
    assert len(list((tmp_path / "images").rglob("*.ppm"))) == 240


def test_sharded_weights_come_back_for_another_number_of_ranks(tmp_path: Path, torch_python: str) -> None:
    script = str(EXAMPLES / "elastic_fsdp" / "train.py")
    written = run_and_kill_a_node(tmp_path, torch_python, "step 40 of", script, "--steps", "200")
    begins = re.findall(r"\[0\] (\d) rank\(s\) on cpu, process (\d+), from step (\d+)", written)
    assert int(begins[1][2]) >= 40 and int(begins[1][2]) % 20 == 0, (
        "from the last checkpoint: a piece of later steps is lost"
    )
    assert begins[0][0] == "2" and begins[1][0] == "1", "it goes on with the rank that is left"
    assert begins[0][1] == begins[1][1], "in the same process"
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", written)]
    assert losses[-1] < losses[0]


def test_the_guide_shows_its_scripts() -> None:
    guide = (ROOT / "docs" / "guide.md").read_text()
    for path in sorted((EXAMPLES / "guide").glob("*.py")):
        code = path.read_text().split('"""\n', 1)[1].strip()
        assert f"```python\n{code}\n```" in guide, f"docs/guide.md does not show {path.name} as it is"


@pytest.mark.parametrize("name", ["plain", "in_place"])
def test_the_scripts_of_the_guide_run(tmp_path: Path, torch_python: str, name: str) -> None:
    environment = {**os.environ, "PETCTL_HOME": str(tmp_path), "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "petctl", "run", "-o", "json", "--python", torch_python]
    done = subprocess.run(
        [*command, str(EXAMPLES / "guide" / f"{name}.py")],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"] == "succeeded"
