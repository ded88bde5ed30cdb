"""Claim: growing, shrinking and starting below the maximum cost no blind wait.

    1 -> 2      a job of one node is scaled to two; until both ranks step
    2 -> 1      ... and back; until the one that stays steps
    below max   a job of 2 to 3 nodes starts where there is room for only two; until both ranks step

Peer: torchrun 2.13, best settings (last_call_timeout=1 and more, see subjects.py): scaling up is one more agent,
scaling down SIGTERM for the one that does not keep the store. "below max" is also measured with torchrun's
defaults, which wait 30 s for a third node. Workers import PyTorch, so a cold start of two bare workers is shown
beside.
"""

from __future__ import annotations

import sys
import time
from functools import partial

from common import Claim, Samples, finish, interleave, options, print_table
from recovery import cold_start
from subjects import PetctlJob, TorchrunNodes

START = 60.0


def petctl_up(command: str, python: str) -> float:
    """1 -> 2."""
    with PetctlJob(command, python) as job:
        job.start("1:1:2", "--no-warm")
        job.marks.stepping(START, world=1, steps=5)
        begin = time.monotonic()
        job.call("scale", job.id, "2")
        return job.marks.stepping(START, world=2) - begin


def petctl_down(command: str, python: str) -> float:
    """2 -> 1."""
    with PetctlJob(command, python) as job:
        job.start("1:2", "--no-warm")
        job.marks.stepping(START, world=2, steps=5)
        begin = time.monotonic()
        job.call("scale", job.id, "1")
        return job.marks.stepping(START, world=1) - begin


def petctl_below(command: str, python: str) -> float:
    """2 of at most 3, because the cluster has two slots."""
    with PetctlJob(command, python) as job:
        (job.directory / "petctl.yaml").write_text("clusters:\n  local:\n    slots: 2\n")
        begin = job.start("2:3", "--no-warm")
        return job.marks.stepping(START, world=2) - begin


def torchrun_up(python: str, deadline: float) -> float:
    """1 -> 2."""
    with TorchrunNodes(python, "1:2") as nodes:
        nodes.start(1)
        nodes.marks.stepping(START, world=1, steps=5)
        begin = time.monotonic()
        nodes.restart(1)
        return nodes.marks.stepping(deadline, world=2) - begin


def torchrun_down(python: str, deadline: float) -> float:
    """2 -> 1."""
    with TorchrunNodes(python, "1:2", quick=True) as nodes:
        nodes.start(2)
        nodes.marks.stepping(START, world=2, steps=5)
        begin = time.monotonic()
        nodes.agents[1].terminate()

        def ended() -> str:
            return "the remaining agent ended" if nodes.agents[0].poll() is not None else ""

        return nodes.marks.stepping(deadline, world=1, vain=ended) - begin


def torchrun_below(python: str, deadline: float, best: bool) -> float:
    """2 of at most 3."""
    with TorchrunNodes(python, "2:3", best=best) as nodes:
        begin = nodes.start(2)
        return nodes.marks.stepping(deadline, world=2) - begin


def main() -> int:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--deadline", type=float, default=60.0, metavar="SECONDS", help="for torchrun (default: 60)")
    chosen = parser.parse_args()
    ours, torch, deadline = (chosen.petctl, chosen.torch_python), chosen.torch_python, chosen.deadline
    cold = partial(cold_start, torch)
    scenarios = {
        "1 -> 2": {
            "petctl": partial(petctl_up, *ours),
            "torchrun, best settings": partial(torchrun_up, torch, deadline),
            "cold start, no launcher": cold,
        },
        "2 -> 1": {
            "petctl": partial(petctl_down, *ours),
            "torchrun, best settings": partial(torchrun_down, torch, deadline),
        },
        "below max": {
            "petctl": partial(petctl_below, *ours),
            "torchrun, best settings": partial(torchrun_below, torch, deadline, True),
            "torchrun, defaults": partial(torchrun_below, torch, deadline, False),
            "cold start, no launcher": cold,
        },
    }
    tables: dict[str, list[Samples]] = {}
    claims = []
    for title, subjects in scenarios.items():
        samples = interleave(chosen.pairs, subjects)
        tables[title] = list(samples.values())
        print_table(title, tables[title], "petctl")
        faster = samples["petctl"].median < samples["torchrun, best settings"].median
        claims.append(Claim(f"{title}: petctl is faster than torchrun with its best settings", faster))
    return finish("scale", chosen.output, tables, claims)


if __name__ == "__main__":
    sys.exit(main())
