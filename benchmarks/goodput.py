"""Claim: with a kill every 15 s, training in place keeps 0.97 of its samples where steps wait, 0.85 where they compute.

The same DistributedDataParallel training as in restart.py, two nodes with one worker each. Every 15 s dies, in turn,
one worker or one whole node, never rank 0's (for torchrun that would be the end). petctl replaces a lost node, for
torchrun it is started again at once. All write a checkpoint every ten steps, a step being about 50 ms.

    goodput   samples committed in the window, over those of two bare processes that nobody disturbs
    sleep     a step waits, as for a GPU; the machine has time to spare
    cpu       a step computes on one core per rank; whoever imports or restarts takes that time from the others

"undisturbed, beside imports" is what could be had at best where steps compute: nobody is killed, but whenever a node
would have been, a process beside the training imports what its replacement has to.

torchrun runs twice: quick to notice a lost node, with settings with which it lets no new one in, and without them.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from common import ROOT, Claim, Missed, finish, options, progress
from plot import Axis, Bar, draw
from processes import kill
from restart import COLD, IN_PLACE, START, WARM, new_job
from subjects import BareProcesses, Subject, TorchrunNodes

QUICK, LETS_IN = "torchrun, quick to notice", "torchrun, lets nodes in"
BARE, BESIDE = "undisturbed", "undisturbed, beside imports"
SYSTEMS = (QUICK, LETS_IN, COLD, WARM, IN_PLACE)
WORKS = {"sleep": 0.97, "cpu": 0.85}  # and what is claimed for them
IMPORTS = "import torch.distributed, torch._dynamo, torch.distributed.tensor, torch.nn.parallel"


def committed(subject: Subject, moment: float) -> int:
    """The samples that rank 0's training was worth then; steps that a restart repeats are not counted twice."""
    return next((mark.samples for mark in reversed(subject.marks.read()) if not mark.rank and mark.time <= moment), 0)


def window(subject: Subject, chosen: Namespace, strike: Callable[[int], None]) -> int:
    """Samples committed from now on, with a strike after every interval."""
    begin = time.monotonic()
    end = begin + chosen.seconds
    before = committed(subject, begin)
    for number in range(int(chosen.seconds / chosen.every)):
        moment = begin + (number + 1) * chosen.every
        if moment < end:
            time.sleep(max(moment - time.monotonic(), 0.0))
            strike(number)
    time.sleep(max(end - time.monotonic(), 0.0))
    return committed(subject, end) - before


def kill_worker(find: Callable[[Any], int], nodes: Sequence[object]) -> None:
    """A worker of the first of these nodes that has one; none where all of them are still recovering."""
    for node in nodes:
        try:
            kill(find(node))
            return
        except Missed:
            continue


def bare(chosen: Namespace, words: list[str], imports: bool) -> int:
    """Nobody is killed."""
    with BareProcesses(chosen.torch_python, 2, program="ddp.py", words=words) as workers:
        workers.start()
        workers.marks.stepping(START, world=2, steps=10)
        beside: list[subprocess.Popen[bytes]] = []

        def strike(number: int) -> None:
            if imports and number % 2:
                beside.append(workers.spawn([chosen.torch_python, "-c", IMPORTS]))

        try:
            return window(workers, chosen, strike)
        finally:
            for process in beside:
                process.kill()
                process.wait()


def torchrun(chosen: Namespace, words: list[str], quick: bool) -> int:
    """torchrun, whose node 0 keeps the store and is spared."""
    with TorchrunNodes(chosen.torch_python, "1:2", quick=quick, program="ddp.py", words=words) as nodes:
        nodes.start(2)
        nodes.marks.stepping(START, world=2, steps=10)

        def strike(number: int) -> None:
            if number % 2:
                nodes.kill_node(1)
                nodes.restart(1)
            else:
                kill_worker(nodes.worker, [1, 0])

        return window(nodes, chosen, strike)


def petctl(chosen: Namespace, words: list[str], system: str) -> int:
    """One job."""
    if system != COLD:
        with new_job(chosen, system, words=words) as job:
            job.teach(START)
    with new_job(chosen, system, words=words) as job:
        job.start("1:2", *(["--no-warm"] if system == COLD else []))
        job.marks.stepping(START, world=2, steps=10)

        def strike(number: int) -> None:
            names = job.node_names()
            if number % 2 and len(names) > 1:
                job.kill_node(names[-1])
            else:
                kill_worker(job.worker, names[::-1])

        return window(job, chosen, strike)


def measure(chosen: Namespace, work: str) -> dict[str, float]:
    """The goodput of every system; the undisturbed run is taken before and after, and its mean is the measure."""
    words = ["--work", work, "--checkpoint-every", "10"]
    runs: dict[str, Callable[[], int]] = {
        BARE: partial(bare, chosen, words, False),
        BESIDE: partial(bare, chosen, words, True),
        QUICK: partial(torchrun, chosen, words, True),
        LETS_IN: partial(torchrun, chosen, words, False),
        **{name: partial(petctl, chosen, words, name) for name in (COLD, WARM, IN_PLACE)},
    }
    samples: dict[str, list[int]] = {}
    for name in (BARE, BESIDE, *(chosen.system or SYSTEMS), BARE):
        try:
            samples.setdefault(name, []).append(runs[name]())
        except Missed as missed:
            samples.setdefault(name, []).append(0)
            progress(f"{work}: {name}: {missed}")
        progress(f"{work}: {name}: {samples[name][-1]} samples")
    whole = statistics.mean(samples[BARE])
    return {name: statistics.mean(counts) / whole for name, counts in samples.items() if name != BARE}


def main() -> int:
    """Measure, print, draw."""
    parser = options(__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="of each run (default: 120)")
    parser.add_argument("--full", action="store_true", help="10 minutes each")
    parser.add_argument("--every", type=float, default=15.0, metavar="SECONDS", help="between two kills (default: 15)")
    parser.add_argument("--work", choices=tuple(WORKS), action="append", help="default: both")
    parser.add_argument("--system", choices=SYSTEMS, action="append", help="default: all")
    parser.add_argument("--plot", type=Path, default=ROOT / "build" / "bench" / "goodput.svg", metavar="FILE")
    chosen = parser.parse_args()
    if chosen.full:
        chosen.seconds = 600.0
    with tempfile.TemporaryDirectory(prefix="petctl-bench-") as directory:
        chosen.directory = Path(directory)
        found = {work: measure(chosen, work) for work in chosen.work or WORKS}
    claims = []
    for work, figures in found.items():
        print(f"\n{work}-bound steps, a kill every {chosen.every:g} s for {chosen.seconds:g} s")
        for name, share in figures.items():
            print(f"  {name:34} {share:6.3f}")
        if IN_PLACE in figures:
            share, least = figures[IN_PLACE], WORKS[work]
            claims.append(Claim(f"{work}: goodput in place {share:.3f} (at least {least})", share >= least))
    names = list(next(iter(found.values())))
    bars = [[Bar(share, share, f"{share:.2f}") for share in figures.values()] for figures in found.values()]
    draw(chosen.plot, f"Goodput with a kill every {chosen.every:g} s", list(found), names, bars, Axis(0.0, 1.0, False))
    return finish("goodput", chosen.output, {}, claims, figures={"goodput": found, "seconds": chosen.seconds})


if __name__ == "__main__":
    sys.exit(main())
