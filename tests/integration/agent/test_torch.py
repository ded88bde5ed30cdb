"""PyTorch's own process group and launcher, on two nodes: the reserved port works, and its error file is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from petctl.rendezvous.core.messages import ENDED_FAILED, SUCCEEDED
from tests.integration.agent.conftest import Bench

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]

SCRIPT = """
import os, signal, torch, torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    dist.init_process_group("gloo")
    one = torch.ones(1)
    dist.all_reduce(one)
    os.write(1, f"sum {int(one.item())}\\n".encode())  # in one piece: two processes share this file
    dist.barrier()  # by now everybody has printed it
    if "BOOM" in os.environ:
        if dist.get_rank() == 1:
            raise RuntimeError("boom in rank 1")
        signal.pause()  # in no collective: gloo may end a process that loses a peer there without a word
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # gloo's threads may meet the end of the interpreter, and abort

main()
"""


@pytest.mark.parametrize("launcher", ["elastic", "torchrun"])
@pytest.mark.parametrize("fails", [False, True], ids=["well", "badly"])
def test_a_process_group_over_two_nodes(bench: Bench, torch_python: str, launcher: str, fails: bool) -> None:
    script = bench.directory / "train.py"
    script.write_text(SCRIPT)
    env = {"BOOM": "1"} if fails else {}
    procs = "2" if fails and launcher == "torchrun" else "1"
    bench.open("script", [str(script)], nodes=2, procs=procs, python=torch_python, launcher=launcher, env=env)
    for name in ("n0", "n1"):
        bench.agent(node=name)
    outcome = bench.ended(150)
    world = 2 * int(procs)
    assert bench.log().read_text().splitlines()[0] == f"sum {world}"
    assert outcome.state == (ENDED_FAILED if fails else SUCCEEDED), outcome
    if fails:
        assert outcome.failure is not None and "boom in rank 1" in outcome.failure.message
        assert "Traceback" in outcome.failure.traceback
