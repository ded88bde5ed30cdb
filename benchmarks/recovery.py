"""Claim: after a SIGKILL of a worker or of a whole node, all ranks step again within half a second of a cold start.

Two nodes with one worker each run an all-reduce loop (PyTorch, gloo). In the middle dies

    worker      one worker process
    other       a whole node, all of its processes at once, that does not hold rank 0
    rank0       the node of rank 0 (for torchrun it is also the one that keeps the agents' store)

and the clock runs until every rank of the next round has made a step. Peers: torchrun 2.13 with its best settings
(see BEST_* in subjects.py; a node that died is started again at once, as a cluster would), and a cold start of the
same two workers without any launcher. torchrun gets a deadline (--deadline), and is said to have missed when its
job ends.

Read it so: "petctl" minus "cold start" is what the loss itself cost, the rest is Python importing PyTorch. Workers are
started cold here (--no-warm); restart.py shows what warm and in-place restarts make of it.
"""

from __future__ import annotations

import sys
import time
from functools import partial

from common import Claim, Missed, Samples, finish, interleave, options, print_table
from processes import kill
from subjects import BareProcesses, PetctlJob, TorchrunNodes

START = 60.0


def cold_start(python: str) -> float:
    """Two bare workers, from the first fork to both stepping."""
    with BareProcesses(python, 2) as bare:
        begin = bare.start()
        return bare.marks.stepping(START, world=2) - begin


def petctl(command: str, python: str, scenario: str) -> float:
    """One loss under petctl."""
    with PetctlJob(command, python) as job:
        job.start("1:2", "--no-warm")
        job.marks.stepping(START, world=2, steps=5)
        rank_zero, other = job.node_names()
        old = job.marks.pids()
        if scenario == "worker":
            victim = job.worker(other)
            moment = time.monotonic()
            kill(victim)
        else:
            moment = job.kill_node(rank_zero if scenario == "rank0" else other)
        return job.marks.stepping(START, old=old) - moment


def torchrun(python: str, scenario: str, deadline: float) -> float:
    """One loss under torchrun."""
    with TorchrunNodes(python, "1:2", quick=True) as nodes:
        nodes.start(2)
        try:
            nodes.marks.stepping(START, world=2, steps=5)
        except Missed as missed:
            raise Missed(f"at the start: {missed}") from None
        old = nodes.marks.pids()
        survivors = list(nodes.agents.values())
        if scenario == "worker":
            victim = nodes.worker(1)
            moment = time.monotonic()
            kill(victim)
        else:
            node = 0 if scenario == "rank0" else 1
            survivors.remove(nodes.agents[node])
            moment = nodes.kill_node(node)
            nodes.restart(node)

        def ended() -> str:
            return "the surviving agents ended" if all(agent.poll() is not None for agent in survivors) else ""

        return nodes.marks.stepping(deadline, old=old, vain=ended) - moment


def main() -> int:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--scenario", choices=("worker", "other", "rank0"), action="append", help="default: all three")
    parser.add_argument("--deadline", type=float, default=60.0, metavar="SECONDS", help="for torchrun (default: 60)")
    parser.add_argument("--skip-torchrun", action="store_true", help="only petctl beside the cold start")
    chosen = parser.parse_args()
    tables: dict[str, list[Samples]] = {}
    claims = []
    for scenario in chosen.scenario or ("worker", "other", "rank0"):
        subjects = {
            "petctl": partial(petctl, chosen.petctl, chosen.torch_python, scenario),
            "cold start, no launcher": partial(cold_start, chosen.torch_python),
        }
        if not chosen.skip_torchrun:
            subjects["torchrun, best settings"] = partial(torchrun, chosen.torch_python, scenario, chosen.deadline)
        samples = interleave(chosen.pairs, subjects)
        tables[scenario] = list(samples.values())
        print_table(f"SIGKILL of: {scenario}", tables[scenario], "petctl")
        above = samples["petctl"].median - samples["cold start, no launcher"].median
        claims.append(Claim(f"{scenario}: {above:+.2f} s above a cold start (at most +0.50)", above <= 0.5))
    return finish("recovery", chosen.output, tables, claims)


if __name__ == "__main__":
    sys.exit(main())
