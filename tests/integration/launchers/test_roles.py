"""Parameter-server jobs on three local nodes: the example trains, and goes on when any of its tasks is killed."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

import petctl
from petctl.jobs import JobHandle, Status, submit
from tests.integration.local.conftest import Stage, children, guardian, supervisor_pid
from tests.integration.waiting import until

TRAIN = str(Path(__file__).resolve().parents[3] / "examples" / "parameter_server" / "train.py")
NAMES = ["ps 0", "worker 0", "ps 1", "worker 1", "worker 2"]  # by rank
_PID = re.compile(rb"pid (\d+)")
_STEP = re.compile(rb"(?:from|at) step (\d+)")


def train(stage: Stage, *words: str, **fields: Any) -> JobHandle:
    roles = [{"name": "ps", "count": 2}, {"name": "worker", "count": 3}]
    more = {"nodes": 3, "launcher": "plain", "roles": roles, "grace": 5, "cwd": str(stage.path), **fields}
    return submit(petctl.Job(script=TRAIN, args=words, **more))


def said(handle: JobHandle, number: int, task: str, what: re.Pattern[bytes]) -> list[int]:
    """Numbers in what a task has printed in a round."""
    lines = handle.logs(rank=NAMES.index(task), round=number)
    return [int(match[1]) for line in lines for match in what.finditer(line.text)]


def pid_of(handle: JobHandle, number: int, task: str) -> int:
    return int(until(lambda: said(handle, number, task, _PID), f"{task} in round {number}", 60)[0])


def steps(handle: JobHandle) -> int:
    progress = handle.status().progress
    return progress.step if progress is not None else 0


def ended(handle: JobHandle) -> Status:
    status = handle.wait(120)
    assert status.state == "succeeded", status.sentence
    number = status.rounds[-1].number
    for task in ("worker 0", "worker 1", "worker 2"):
        lines = b"".join(line.text for line in handle.logs(rank=NAMES.index(task), round=number))
        assert b"0.0000 from the truth" in lines
    return status


def test_it_trains_and_the_servers_are_stopped_at_the_end(stage: Stage) -> None:
    handle = train(stage, "--steps", "400")
    status = ended(handle)
    assert (status.spent, status.world_size, [role.name for role in status.roles]) == (0, 5, ["ps", "worker"])
    assert [(node.name, node.ranks) for node in status.nodes] == [("0", [0, 1]), ("1", [2, 3]), ("2", [4])]
    for task in ("ps 0", "ps 1"):
        pid = said(handle, 1, task, _PID)[0]
        assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("victim", ["worker 2", "ps 1"])
def test_whoever_is_killed_all_go_on_from_what_the_servers_kept(stage: Stage, victim: str) -> None:
    handle = train(stage, "--steps", "500", "--step-time", "0.02")
    pid = pid_of(handle, 1, victim)
    until(lambda: steps(handle) > 60, "steps", 60)
    os.kill(pid, signal.SIGKILL)
    pid_of(handle, 2, "worker 0")
    status = ended(handle)
    assert (status.spent, len(status.rounds)) == (1, 2)
    assert status.last_failure is not None
    assert (status.last_failure.task, status.last_failure.signal) == (victim, "SIGKILL")
    assert f"{victim} (rank {NAMES.index(victim)}) on node " in status.rounds[1].reason
    assert min(said(handle, 2, "ps 0", _STEP)[0], said(handle, 2, "ps 1", _STEP)[0]) >= 20, "they began anew"


def test_the_loss_of_a_node_that_only_serves_is_not_missed(stage: Stage) -> None:
    roles = [{"name": "worker", "count": 1}, {"name": "ps", "count": 2}]
    handle = train(stage, "--steps", "500", "--step-time", "0.02", nodes=2, roles=roles)
    until(lambda: steps(handle) > 60, "steps", 60)
    os.kill(children(guardian(handle, "1"))[0], signal.SIGKILL)
    status = handle.wait(120)
    assert (status.state, status.spent, len(status.rounds)) == ("succeeded", 0, 2)


def test_a_replaced_coordinator_still_knows_who_serves(stage: Stage) -> None:
    handle = train(stage, "--steps", "500", "--step-time", "0.02")
    until(lambda: steps(handle) > 60, "steps", 60)
    os.kill(supervisor_pid(handle), signal.SIGKILL)
    status = ended(handle)
    assert (status.spent, len(status.rounds)) == (0, 1), list(handle.events())


def test_a_server_that_always_fails_is_the_root_cause(stage: Stage) -> None:
    roles = [
        {"name": "worker", "shell": "exec sleep 600"},
        {"name": "ps", "count": 1, "shell": "echo bad disk >&2; exit 4"},
    ]
    status = train(stage, nodes=2, roles=roles, restarts=1).wait(60)
    assert (status.state, status.exit_code, status.spent) == ("failed", 4, 1)
    assert status.error is not None and (status.error.task, status.error.message) == ("ps 0", "bad disk")
