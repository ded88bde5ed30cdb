"""Programs that speak MPI, and others that do not, over three nodes of this machine."""

from __future__ import annotations

from typing import Any

import pytest

import petctl
from petctl.job.spec import IN_PLACE
from petctl.jobs import JobHandle, submit
from tests.integration.elastic.harness import IMPORTS
from tests.integration.local.conftest import Stage, job_path

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

MPI4PY = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
assert [str(world.rank), str(world.size)] == [os.environ["RANK"], os.environ["WORLD_SIZE"]]
names = world.allgather(os.environ["PETCTL_NODE"])
print("sum", world.allreduce(world.rank), "nodes", *names, flush=True)
print(open(os.environ["PETCTL_MPI_HOSTFILE"]).readline().strip(), os.environ["AZ_BATCH_HOST_LIST"], flush=True)
"""
ABORTS = """
import time
from mpi4py import MPI
MPI.COMM_WORLD.barrier()
if MPI.COMM_WORLD.rank == 3:
    MPI.COMM_WORLD.Abort(5)
time.sleep(600)
"""
RAISES = """
from mpi4py import MPI
MPI.COMM_WORLD.barrier()
if MPI.COMM_WORLD.rank == 3:
    raise ValueError("no more of this")
MPI.COMM_WORLD.barrier()
"""
GLOO = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.ones(3) * dist.get_rank()
dist.all_reduce(value)
print("sum", int(value[0]), flush=True)
dist.destroy_process_group()
os._exit(0)  # gloo's threads may meet the end of the interpreter, and abort
"""
ELASTIC = """
import torch, torch.distributed as dist
from petctl import elastic
state = elastic.State(step=0)

def train(state):
    value = torch.ones(1)
    dist.all_reduce(value)
    state.step += 1
    state.commit()
    return int(value[0])

print("together", elastic.run(train, state, backend="gloo"), flush=True)
"""


def run(mpi: Stage, python: str, text: str, **fields: Any) -> JobHandle:
    (mpi.path / "train.py").write_text(text)
    own = {"launcher": "mpi", "nodes": 3, "procs": 2, "python": python, "cwd": mpi.path, "code": IN_PLACE, **fields}
    return submit(petctl.Job(script="train.py", **own))


def outputs(handle: JobHandle) -> list[str]:
    logs = job_path(handle) / "logs" / "round-0001"
    return [(logs / f"rank-{rank}.out").read_text() for rank in range(6)]


def test_mpi4py(mpi: Stage, torch_python: str) -> None:
    handle = run(mpi, torch_python, MPI4PY)
    status = handle.wait(IMPORTS)
    assert status.state == "succeeded", status.error
    hosts = "127.0.0.1 slots=2 max-slots=2 127.0.0.1,127.0.0.1,127.0.0.1"
    assert outputs(handle) == [f"sum 15 nodes 0 0 1 1 2 2\n{hosts}\n"] * 6


def test_torch_distributed(mpi: Stage, torch_python: str) -> None:
    handle = run(mpi, torch_python, GLOO)
    status = handle.wait(2 * IMPORTS)
    assert status.state == "succeeded", status.error
    assert outputs(handle) == ["sum 15\n"] * 6


def test_elastic_run_makes_one_round_of_it(mpi: Stage, torch_python: str) -> None:
    handle = run(mpi, torch_python, ELASTIC)
    status = handle.wait(2 * IMPORTS)
    assert status.state == "succeeded", status.error
    assert outputs(handle) == ["together 6\n"] * 6


def test_a_rank_that_calls_abort_is_named(mpi: Stage, torch_python: str) -> None:
    status = run(mpi, torch_python, ABORTS, restarts=0).wait(IMPORTS)
    assert (status.state, status.exit_code) == ("failed", 5)
    assert status.error is not None
    assert (status.error.rank, status.error.node) == (3, "1")


def test_an_exception_under_mpi4pys_own_runner_is_the_root_cause(mpi: Stage, torch_python: str) -> None:
    (mpi.path / "train.py").write_text(RAISES)
    own = {"launcher": "mpi", "nodes": 3, "procs": 2, "python": torch_python, "cwd": mpi.path, "code": IN_PLACE}
    status = submit(petctl.Job(module="mpi4py", args=["train.py"], restarts=0, **own)).wait(IMPORTS)
    assert status.state == "failed"
    assert status.error is not None
    assert (status.error.rank, status.error.message) == (3, "ValueError: no more of this")
