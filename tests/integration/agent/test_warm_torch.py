"""Warm starts with torch: as many threads as in a cold one, little memory of its own, and a working process group."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from petctl.rendezvous.core.messages import SUCCEEDED
from tests.integration.agent.conftest import Bench
from tests.integration.agent.warm_scene import Ended, WarmScene, play
from tests.integration.waiting import until

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]

PRELOAD = ["torch", "numpy", "torch.nn.parallel", "torch._dynamo"]

# Numbers of threads that torch says it uses, and those that there are after work in each library.
THREADS = """
import os, numpy, torch
print(torch.get_num_threads(), torch.get_num_interop_threads())
a = numpy.ones((600, 600))
a @ a
print("numpy", len(os.listdir("/proc/self/task")))
b = torch.ones(600, 600)
b @ b
torch.ones(1 << 22).add_(1)
print("torch", len(os.listdir("/proc/self/task")))
print(os.environ.get("OPENBLAS_NUM_THREADS"), os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK"))
"""


@pytest.mark.parametrize(
    "env", [{}, {"OMP_NUM_THREADS": "1"}, {"OPENBLAS_NUM_THREADS": "2"}], ids=["", "omp", "openblas"]
)
def test_numeric_libraries_have_the_threads_of_a_cold_start(
    tmp_path: Path, torch_python: str, env: dict[str, str]
) -> None:
    (tmp_path / "threads.py").write_text(THREADS)
    seen: list[Ended] = []

    async def act(scene: WarmScene) -> None:
        seen.append(await scene.cold(torch_python, "-u", "threads.py"))
        seen.append(await scene.forked(torch_python, "-u", "threads.py", preload=PRELOAD))

    play(tmp_path, act, env)
    assert seen[0].code == 0, seen[0].err
    assert seen[1] == seen[0]


def test_chance_is_fresh_in_each_worker(tmp_path: Path, torch_python: str) -> None:
    (tmp_path / "chance.py").write_text("import numpy, torch\nprint(torch.initial_seed())\nprint(numpy.random.rand())")

    async def act(scene: WarmScene) -> None:
        seen = [await scene.forked(torch_python, "chance.py", preload=PRELOAD) for _ in range(2)]
        first, second = (done.out.splitlines() for done in seen)
        assert len(first) == 2
        assert not set(first) & set(second)

    play(tmp_path, act)


AFTER_JOINING = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
imported = []
sys.addaudithook(lambda event, words: event == "import" and imported.append(words[0]))
import torch._dynamo
print("by the worker" if len(imported) > 100 else "ahead")
"""


def test_what_torch_imports_after_joining_a_group_is_imported_ahead(
    tmp_path: Path, torch_python: str, own_cache: None
) -> None:
    (tmp_path / "joins.py").write_text(AFTER_JOINING)

    async def act(scene: WarmScene) -> None:
        launch = scene.launch(torch_python, "-u", "joins.py", local_rank=0)
        scene.warm.begin(launch, [])
        scene.workers.start([launch])
        seen = [await scene.ended(launch)]
        await scene.warmed()
        seen.append(await scene.forked(torch_python, "-u", "joins.py"))
        assert [each.out for each in seen] == ["by the worker\n", "ahead\n"], seen
        assert not scene.said

    play(tmp_path, act)


def test_an_idle_worker_has_little_memory_of_its_own(tmp_path: Path, torch_python: str) -> None:
    (tmp_path / "idle.py").write_text("import torch, gc, time\ngc.collect()\nprint('up', flush=True)\ntime.sleep(600)")

    async def act(scene: WarmScene) -> None:
        launches = [scene.launch(torch_python, "-u", "idle.py", local_rank=rank) for rank in (1, 2)]
        scene.warm.begin(launches[0], PRELOAD)
        scene.workers.start(launches)
        for launch in launches:
            await asyncio.get_running_loop().run_in_executor(
                None, until, lambda launch=launch: "up" in Path(launch.out).read_text(), "it is idle", 90.0
            )
        for worker in scene.workers.running:
            assert worker.process is None
            assert own_memory(worker.pid) < 30 << 20

    play(tmp_path, act)


def own_memory(pid: int) -> int:
    """Bytes that no other process uses."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))


GROUP = """
import os, sys, torch, torch.distributed as dist
model = torch.nn.Linear(4, 4)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(model)
model(torch.ones(2, 4)).sum().backward()
with open("/proc/%d/comm" % os.getppid()) as file:
    print(file.read().strip(), dist.get_world_size(), flush=True)
if os.environ["PETCTL_ROUND"] == "1" and dist.get_rank() == 0:
    sys.exit(1)
dist.barrier()
dist.destroy_process_group()
os._exit(0)  # gloo's threads may meet the end of the interpreter, and abort
"""


def test_a_process_group_of_forked_workers(bench: Bench, torch_python: str) -> None:
    script = bench.directory / "train.py"
    script.write_text(GROUP)
    bench.open("script", [str(script)], nodes=2, python=torch_python, restarts=1)
    for name in ("n0", "n1"):
        bench.agent(node=name)
    assert bench.ended(200).state == SUCCEEDED
    assert {bench.line(rank, number=2) for rank in (0, 1)} == {"petctl-zygote 2"}
    logs = [(bench.directory / f"{name}.log").read_text() for name in ("n0", "n1")]
    assert not any("cold" in log for log in logs), logs
