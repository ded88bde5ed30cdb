"""A script of petctl.elastic, with PyTorch, in containers: a lost node costs a round, the others keep their state."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

import petctl
from petctl.jobs import submit
from tests.integration.containers.conftest import OPTIONS, PYTHON, ContainerStage
from tests.integration.local.conftest import job_path
from tests.integration.waiting import until

SCRIPT = """
import os, time
import torch
from petctl import elastic

model = torch.nn.Linear(2, 1)
state = elastic.State(model=model, step=0)

def train(state):
    print(f"begins at {state.step} pid {os.getpid()} of {os.environ['WORLD_SIZE']}", flush=True)
    while not (os.path.exists("finish") and state.step > 10):
        weight = next(model.parameters()).grad = torch.ones_like(next(model.parameters()))
        torch.distributed.all_reduce(weight)
        state.step += 1
        state.commit()
        elastic.report(state.step)
        time.sleep(0.02)

elastic.run(train, state)
print("ended well", flush=True)
"""


@pytest.mark.torch
def test_workers_keep_their_state_when_a_node_is_lost(stage: ContainerStage, torch_python: str) -> None:
    environment = Path(torch_python).parent.parent
    stage.configure(container_options=[*OPTIONS, "-v", f"{environment}:{environment}:ro"])
    (stage.path / "train.py").write_text(SCRIPT)
    handle = submit(petctl.Job(script="train.py", image=PYTHON, code="none", python=torch_python, nodes="1:2", grace=5))

    def lines() -> list[tuple[int, int, int]]:
        text = b"".join(line.text for line in handle.logs()).decode()
        return [tuple(map(int, found)) for found in re.findall(r"begins at (\d+) pid (\d+) of (\d+)", text)]  # type: ignore[misc]

    def step() -> int:
        progress = handle.status().progress
        return progress.step if progress else 0

    until(lambda: step() > 3, "steps of two nodes", 90)
    until(lambda: len([line for line in lines() if line[2] == 2]) >= 2, "both of them", 60)
    lost = int((job_path(handle) / "nodes" / "1" / "pid").read_text())
    before = step()
    os.kill(lost, signal.SIGKILL)
    until(lambda: len(handle.status().rounds) >= 2 and step() > before + 3, "steps after the loss", 90)
    survivors = {pid for _, pid, _ in lines() if len([1 for line in lines() if line[1] == pid]) > 1}
    assert survivors, "rank 0 kept its process"
    resumed = [at for at, pid, _ in lines() if pid in survivors and at > 0]
    assert resumed and min(resumed) >= before - 1, "... and its state, but for the step that all undo"
    (stage.path / "finish").touch()
    status = handle.wait(90)
    assert (status.state, status.spent) == ("succeeded", 0), status.error
