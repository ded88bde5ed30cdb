"""Checkpoints in real jobs: a cold start goes on from one, and a worker that must go writes its last commit first."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import petctl
from petctl.clusters.local.processes import node_processes
from petctl.elastic.checkpoints import saved
from petctl.job.spec import IN_PLACE
from petctl.jobs import JobHandle, submit
from tests.integration.local.conftest import Stage, guardian
from tests.integration.waiting import DEADLINE, until

TRAIN = """
import os, pathlib, sys, time
from petctl import elastic
state = elastic.State(step=0)
kept = elastic.checkpoint(state, every=int(sys.argv[1]))
marks = open("entered", "a")

def train(state):
    print(os.environ["PETCTL_ROUND"], state.step, os.getpid(), file=marks, flush=True)
    while not pathlib.Path("finish").exists():
        state.step += 1
        elastic.report(state.step)
        if len(sys.argv) > 2 and state.step == int(sys.argv[2]) and os.environ["PETCTL_ROUND"] == "1":
            kept.flush()
            os._exit(3)
        state.commit()
        time.sleep(0.02)

elastic.run(train, state)
"""


def run(stage: Stage, *words: object, **fields: Any) -> JobHandle:
    (stage.path / "train.py").write_text(TRAIN)
    fields = {"grace": 10, "cwd": stage.path, **fields}
    return submit(petctl.Job(script="train.py", args=[str(word) for word in words], code=IN_PLACE, **fields))


def entered(stage: Stage) -> list[tuple[int, int, int]]:
    """(round, step, pid) of each time that the training function was entered."""
    lines = (stage.path / "entered").read_text().splitlines()
    return [tuple(map(int, line.split())) for line in lines]  # type: ignore[misc]


def directory(handle: JobHandle) -> Path:
    return Path(handle.status().directory, "checkpoints")


def step(handle: JobHandle) -> int:
    progress = handle.status().progress
    return progress.step if progress is not None else 0


def of_round_2(handle: JobHandle) -> bool:
    marks = saved.marks(directory(handle))
    return bool(marks) and all(mark.round == 2 for mark in marks)


def test_a_new_process_goes_on_from_the_newest_checkpoint(stage: Stage) -> None:
    handle = run(stage, 5, 18)
    until(lambda: step(handle) > 30, "steps beyond the failure")
    until(lambda: of_round_2(handle), "three checkpoints of the second round, and no other")
    stage.finish()
    assert handle.wait(DEADLINE).state == "succeeded"
    assert [(number, at) for number, at, _ in entered(stage)] == [(1, 0), (2, 15)]
    assert of_round_2(handle)


def test_a_cancelled_job_writes_its_last_commit(stage: Stage) -> None:
    handle = run(stage, 1_000_000)
    until(lambda: step(handle) > 20, "some steps")
    assert saved.marks(directory(handle)) == []
    handle.cancel()
    assert handle.wait(DEADLINE).state == "cancelled"
    [mark] = saved.marks(directory(handle))
    assert mark.step > 20
    assert saved.read(directory(handle), mark).mark == mark


def test_a_node_that_is_asked_to_go_writes_its_last_commit_and_its_replacement_goes_on(stage: Stage) -> None:
    handle = run(stage, 1_000_000)
    until(lambda: step(handle) > 20, "some steps")
    os.kill(guardian(handle, "0"), 15)  # preemption
    until(lambda: len(entered(stage)) == 2, "a second entrance")
    (_, _, before), (_, at, after) = entered(stage)
    assert before != after and at > 20
    assert not [pid for pid in node_processes(handle.id, Path(handle.status().directory, "nodes")) if pid == before]
    stage.finish()
    final = handle.wait(DEADLINE)
    assert (final.state, final.spent) == ("succeeded", 0)
