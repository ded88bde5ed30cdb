"""mpirun over pods, without ssh: the agents start its daemons for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.k8s.cluster.cluster import Cluster
from tests.k8s.openmpi import collect, template
from tests.k8s.test_elastic import packages_of
from tests.k8s.user import User

pytestmark = [pytest.mark.root, pytest.mark.torch]

HELLO = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
names = world.allgather(os.environ["PETCTL_NODE"])
assert [str(world.rank), str(world.size)] == [os.environ["RANK"], os.environ["WORLD_SIZE"]]
print("rank", world.rank, "of", world.size, "sum", world.allreduce(world.rank), "nodes", *names, flush=True)
"""
TORCH = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.ones(3) * dist.get_rank()
dist.all_reduce(value)
print("rank", dist.get_rank(), "sum", int(value[0]), flush=True)
dist.destroy_process_group()
os._exit(0)  # gloo's threads may meet the end of the interpreter, and abort
"""
BREAKS = """
import os, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
if world.rank != 3:
    world.send("through", dest=3)  # who is still within MPI when another ends may end of that, and first
else:
    for _ in range(world.size - 1):
        world.recv()
    print("this one cannot go on", file=sys.stderr, flush=True)
    os._exit(7)
time.sleep(600)
"""


@pytest.fixture
def user(own_cluster: Cluster, namespace: str, tmp_path: Path) -> User:
    """Somebody whose pods have Open MPI, mpi4py and PyTorch."""
    user = User(own_cluster, namespace, tmp_path)
    collect(tmp_path / "openmpi")
    tmp_path.chmod(0o755)
    user.configure(pod=template(tmp_path / "openmpi", packages_of(os.environ["PETCTL_TORCH_PYTHON"])))
    for name, text in {"hello.py": HELLO, "sums.py": TORCH, "breaks.py": BREAKS}.items():
        (user.project / name).write_text(text)
    return user


def test_mpi4py_over_two_pods(user: User) -> None:
    done = user.petctl("run", "-c", "k8s", "--launcher", "mpi", "-n", "2", "--procs", "2", "hello.py")
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        assert f"rank {rank} of 4 sum 6 nodes 0 0 1 1" in done.stdout


def test_torch_distributed_over_two_pods(user: User) -> None:
    done = user.petctl("run", "-c", "k8s", "--launcher", "mpi", "-n", "2", "--procs", "2", "sums.py")
    assert done.returncode == 0, done.stderr
    assert all(f"rank {rank} sum 6" in done.stdout for rank in range(4))


def test_a_failed_rank_is_named_with_its_last_words(user: User) -> None:
    words = ("--launcher", "mpi", "-n", "2", "--procs", "2", "--restarts", "0")
    done = user.petctl("run", "-c", "k8s", *words, "breaks.py")
    assert done.returncode == 7, done.stderr
    assert "rank 3" in done.stderr and "code 7" in done.stderr and "this one cannot go on" in done.stderr
