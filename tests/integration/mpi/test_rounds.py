"""Ranks that mpirun starts are workers as all others, with their place, their logs, their grace, their failures."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import petctl
from petctl.agent.workers import processes
from petctl.job.spec import IN_PLACE
from petctl.jobs import JobHandle, submit
from tests.integration.local.conftest import Stage, children, exists, guardian, job_path, supervisor_pid
from tests.integration.mpi.conftest import PATIENCE
from tests.integration.waiting import until

pytestmark = pytest.mark.timeout(300)

SAVES = """
import os, signal, sys, threading, time
rank = os.environ["RANK"]
if rank == "3":
    def save(number, frame):
        threading.Event().wait(4)  # longer than mpirun would let it
        open("saved", "w").close()
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
open(f"ready-{rank}", "w").close()
threading.Event().wait()
"""
HANGS = """
import os, pathlib, threading, time
from petctl import elastic
rank, first, step = int(os.environ["RANK"]), os.environ["PETCTL_ROUND"] == "1", 0

def wait_for_ever_here():
    threading.Event().wait()

while not pathlib.Path("finish").exists():
    step += 1
    if first and rank == 1 and step == 5:
        wait_for_ever_here()
    elastic.report(step, loss=1 / step)
    if first and step == 6:
        threading.Barrier(2).wait()
    time.sleep(0.05)
"""


def start(mpi: Stage, *words: str, **fields: Any) -> JobHandle:
    return mpi.start(*words, **{"launcher": "mpi", "nodes": 3, "procs": 2, "python": sys.executable, **fields})


def run(mpi: Stage, text: str, **fields: Any) -> JobHandle:
    """Another script than the stage's own."""
    (mpi.path / "train.py").write_text(text)
    own = {"launcher": "mpi", "python": sys.executable, "cwd": mpi.path, "code": IN_PLACE, "grace": 2, **fields}
    return submit(petctl.Job(script="train.py", **own))


def stepping(mpi: Stage, world: int, after: int = 0) -> int:
    """The first round after `after` of which all ranks make steps."""

    def look() -> int:
        rounds = sorted({mark.round for mark in mpi.marks() if mark.round > after and mark.world == world})
        return next((n for n in rounds if all(mpi.steps(n, rank) for rank in range(world))), 0)

    return int(until(look, f"a round after {after} with {world} ranks", PATIENCE))


def test_ranks_have_their_places_their_logs_and_their_end(mpi: Stage) -> None:
    mpi.finish()
    handle = start(mpi)
    lines = list(handle.logs(follow=True))
    status = handle.wait(PATIENCE)
    assert (status.state, status.exit_code, status.world_size) == ("succeeded", 0, 6)
    assert sorted(line.text for line in lines) == [b"rank %d of 6 in round 1\n" % rank for rank in range(6)]
    assert {(line.rank, line.node) for line in lines} == {(rank, str(rank // 2)) for rank in range(6)}
    assert {(mark.rank, mark.node) for mark in mpi.marks()} == {(rank, str(rank // 2)) for rank in range(6)}


def test_a_number_of_processes_is_spread_over_the_nodes(mpi: Stage) -> None:
    mpi.finish()
    status = start(mpi, procs=1, processes=5).wait(PATIENCE)
    assert (status.state, status.world_size) == ("succeeded", 5)
    assert {mark.rank: mark.node for mark in mpi.marks()} == {0: "0", 1: "0", 2: "1", 3: "1", 4: "2"}


def test_a_killed_rank_is_named_and_costs_one_restart(mpi: Stage) -> None:
    handle = start(mpi)
    first = stepping(mpi, 6)
    before = mpi.marks(first)
    os.kill(next(mark.pid for mark in before if mark.rank == 3), signal.SIGKILL)
    stepping(mpi, 6, after=first)
    assert not [mark for mark in before if exists(mark.pid)]
    mpi.finish()
    status = handle.wait(PATIENCE)
    assert (status.state, status.spent) == ("succeeded", 1)
    assert "rank 3 on node 1 was killed by SIGKILL" in status.rounds[1].reason


def test_a_rank_that_fails_has_the_last_word(mpi: Stage) -> None:
    status = start(mpi, "fail", restarts=0).wait(PATIENCE)
    assert (status.state, status.exit_code) == ("failed", 1)
    assert status.error is not None
    assert (status.error.rank, status.error.node, status.error.message) == (0, "0", "RuntimeError: out of luck")
    assert "Traceback" in status.error.traceback


@pytest.mark.parametrize("who", ["agent", "guardian"])
@pytest.mark.parametrize("node", ["0", "1"])
def test_a_lost_node_is_replaced_and_not_charged(mpi: Stage, who: str, node: str) -> None:
    handle = start(mpi, nodes=2, procs=1)
    first = stepping(mpi, 2)
    top = guardian(handle, node)
    os.kill(top if who == "guardian" else children(top)[0], signal.SIGKILL)
    stepping(mpi, 2, after=first)
    mpi.finish()
    status = handle.wait(PATIENCE)
    assert (status.state, status.spent) == ("succeeded", 0)


def test_a_killed_launcher_is_a_failure_that_is_restarted_from(mpi: Stage) -> None:
    handle = start(mpi, nodes=2, procs=1)
    first = stepping(mpi, 2)
    agent = children(guardian(handle, "0"))[0]
    (mpirun,) = [pid for pid in children(agent) if b"mpirun" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(mpirun, signal.SIGKILL)
    stepping(mpi, 2, after=first)
    mpi.finish()
    status = handle.wait(PATIENCE)
    assert (status.state, status.spent) == ("succeeded", 1)
    assert "mpirun" in status.rounds[1].reason


def test_a_rank_whose_end_nobody_can_tell_is_named_by_mpirun(mpi: Stage) -> None:
    handle = start(mpi, nodes=2, procs=1)
    first = stepping(mpi, 2)
    before = mpi.marks(first)
    rank = next(mark.pid for mark in before if mark.rank == 1)
    script = processes.table()[rank].parent
    os.kill(script, signal.SIGKILL)
    stepping(mpi, 2, after=first)
    assert not [mark for mark in before if exists(mark.pid)]
    mpi.finish()
    status = handle.wait(PATIENCE)
    assert (status.state, status.spent) == ("succeeded", 1)
    assert "rank 1 on node 1 was killed by SIGKILL" in status.rounds[1].reason


def test_nodes_come_and_go_between_rounds(mpi: Stage) -> None:
    handle = start(mpi, nodes="1:3", procs=1, rendezvous={"resize_interval": 0.1})
    handle.scale(2)
    first = stepping(mpi, 2)
    handle.scale(3)
    second = stepping(mpi, 3, after=first)
    handle.scale(1)
    stepping(mpi, 1, after=second)
    mpi.finish()
    status = handle.wait(PATIENCE)
    assert (status.state, status.spent) == ("succeeded", 0)


@pytest.mark.long
def test_a_rank_has_its_whole_grace_whatever_mpirun_thinks(mpi: Stage) -> None:
    handle = run(mpi, SAVES, nodes=2, procs=2, grace=30)
    until(lambda: len(list(mpi.path.glob("ready-*"))) == 4, "all ranks", PATIENCE)
    handle.cancel()
    assert handle.wait(PATIENCE).state == "cancelled"
    assert (mpi.path / "saved").exists()


def test_a_supervisor_that_dies_while_mpirun_asks_for_other_nodes(mpi: Stage) -> None:
    gate = mpi.path / "gate"
    os.mkfifo(gate)
    shim = mpi.path / "bin" / "mpirun"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nread line <{gate}\nPATH=${{PATH#*:}} exec mpirun "$@"\n')
    shim.chmod(0o755)
    handle = start(mpi, nodes=2, procs=1, env={"PATH": f"{shim.parent}:{os.environ['PATH']}"})
    entrance = os.open(gate, os.O_WRONLY)  # waits until mpirun is about to run
    os.kill(supervisor_pid(handle), signal.SIGKILL)
    os.write(entrance, b"go\n")
    os.close(entrance)
    first = stepping(mpi, 2)
    mpi.finish()
    status = handle.wait(PATIENCE)
    assert (status.state, status.spent, first) == ("succeeded", 0, 1)


def test_a_node_without_mpirun_says_what_to_install(mpi: Stage) -> None:
    status = start(mpi, nodes=1, restarts=0, env={"PATH": str(mpi.path)}).wait(PATIENCE)
    assert (status.state, status.exit_code) == ("failed", 127)
    assert status.error is not None and "install Open MPI on every node" in status.error.message


def test_what_mpirun_refuses_is_told_in_its_words(mpi: Stage) -> None:
    status = start(mpi, restarts=0, mpi_options=["--no-such-option"]).wait(PATIENCE)
    assert status.state == "failed"
    assert status.error is not None
    assert status.error.message.startswith("mpirun: ") and "no-such-option" in status.error.traceback


def test_a_hang_is_found_and_the_stacks_are_told(mpi: Stage) -> None:
    handle = run(mpi, HANGS, nodes=1, procs=2, stall_after=5, restarts=1)
    failed = until(lambda: handle.status().spent, "the stall", PATIENCE)
    (mpi.path / "finish").touch()
    status = handle.wait(PATIENCE)
    assert (failed, status.state) == (1, "succeeded")
    events = (job_path(handle) / "events.jsonl").read_text()
    assert "rank 1 on node 0 hangs" in events and "wait_for_ever_here" in events


def test_ranks_that_mpirun_never_starts_are_missed(mpi: Stage) -> None:
    status = start(mpi, nodes=1, restarts=0, mpi_options=["--version"]).wait(PATIENCE)
    assert status.state == "failed"
    assert status.error is not None and status.error.message == "mpirun ended before all ranks of this node had"
