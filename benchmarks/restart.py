"""Claim: a lost worker or node costs an unmodified script a fork, and a script with petctl.elastic next to nothing.

The same DistributedDataParallel training (PyTorch, gloo, two nodes with one worker each) meets four events

    worker    SIGKILL of the worker that is not rank 0
    node      SIGKILL of that worker's whole node; petctl replaces it, for torchrun it is started again at once
    up        one node becomes two
    down      two nodes become one

under four systems: torchrun with its best settings (BEST_* in subjects.py), petctl with cold workers (--no-warm),
petctl with warm ones (the default) and petctl in place (programs/ddp_elastic.py: the same script with elastic lines).

"until the next step" is the time from the kill to the first step that all ranks of the next group have made. "seconds
lost" is the time without a step in all interruptions that the event brought until the job had its full size again: one
that goes on with the survivors and takes the replacement in later is interrupted twice. torchrun does not let a new
node in with the settings that notice the loss of one soonest: there the first step of the survivors ends the clock.

The bare fork is what remains when there is nothing but a fork of the same script from a process that has imported all
it needs.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from common import ROOT, Claim, Missed, Samples, finish, interleave, options, print_table, shown
from plot import Axis, Bar, draw
from processes import Mark, kill
from subjects import BareFork, PetctlJob, Subject, TorchrunNodes

EVENTS = ("worker", "node", "up", "down")
TORCHRUN, COLD, WARM, IN_PLACE = "torchrun, best settings", "petctl, cold", "petctl, warm", "petctl, in place"
SYSTEMS = (TORCHRUN, COLD, WARM, IN_PLACE)
BARE_FORK = "bare fork"
START = 90.0
PACE = 0.02


def lost(marks: list[Mark], moment: float, whole: float) -> float:
    """Seconds without a step, in all changes of the group from the event until the job was whole again."""
    chief = [mark for mark in marks if mark.rank == 0 and mark.step]
    pairs = list(itertools.pairwise(chief))
    usual = statistics.median(after.time - before.time for before, after in pairs if after.time < moment)
    changes = [(before, after) for before, after in pairs if after.step == 1 and moment < after.time <= whole + usual]
    return sum(max(after.time - before.time - usual, 0.0) for before, after in changes)


def settle(subject: Subject, moment: float, size: int, deadline: float, vain: Callable[[], str] = str) -> list[float]:
    """[until the next step, seconds lost], once the job has its size again (0: any)."""
    following = subject.marks.stepping(deadline, after=moment, vain=vain)
    whole = subject.marks.stepping(deadline, world=size, after=moment, vain=vain)
    return [following - moment, lost(subject.marks.read(), moment, whole)]


def new_job(chosen: Namespace, system: str, **words: Any) -> PetctlJob:
    """A job that is like others of its system and words, so that its imports are known once one has been taught."""
    place = chosen.directory / "-".join([system.rpartition(" ")[2], *words.get("words", ())])
    place.mkdir(exist_ok=True)
    program = "ddp_elastic.py" if system == IN_PLACE else "ddp.py"
    shared = {"program": program, "cache": place / "cache", "directory": place / "run"}
    return PetctlJob(chosen.petctl, chosen.torch_python, **shared, **words)


def petctl(chosen: Namespace, system: str, event: str) -> list[float]:
    """One event under petctl."""
    with new_job(chosen, system, pace=PACE) as job:
        before, after = {"up": (1, 2), "down": (2, 1)}.get(event, (2, 2))
        job.start("1:1:2" if event == "up" else "1:2", *(["--no-warm"] if system == COLD else []))
        job.marks.stepping(START, world=before, steps=10)
        other = job.node_names()[-1]
        victim = job.worker(other)
        moment = time.monotonic()
        if event == "worker":
            kill(victim)
        elif event == "node":
            moment = job.kill_node(other)
        else:
            job.call("scale", job.id, str(after))
        return settle(job, moment, after, START)


def torchrun(chosen: Namespace, event: str) -> list[float]:
    """One event under torchrun."""
    with TorchrunNodes(chosen.torch_python, "1:2", quick=event != "up", program="ddp.py", pace=PACE) as nodes:
        before, after = {"up": (1, 2), "down": (2, 1)}.get(event, (2, 2))
        nodes.start(before)
        try:
            nodes.marks.stepping(START, world=before, steps=10)
        except Missed as missed:
            raise Missed(f"at the start: {missed}") from None
        victim = nodes.worker(before - 1)
        moment = time.monotonic()
        if event == "worker":
            kill(victim)
        elif event == "down":
            nodes.agents[1].terminate()
        else:
            if event == "node":
                moment = nodes.kill_node(1)
            nodes.restart(1)

        def ended() -> str:
            return "the agent that holds the store ended" if nodes.agents[0].poll() is not None else ""

        return settle(nodes, moment, 0 if event == "node" else after, chosen.deadline, ended)


def measure(chosen: Namespace, event: str, bare: BareFork) -> tuple[list[Samples], list[Samples]]:
    """All systems in turn: until the next step, and seconds lost."""
    losses = {name: Samples(name) for name in SYSTEMS}

    def both(name: str, take: Callable[[], list[float]]) -> float:
        try:
            following, seconds = take()
        except Missed as missed:
            losses[name].seconds.append(math.inf)
            losses[name].reasons.append(str(missed))
            raise
        losses[name].seconds.append(seconds)
        return following

    takes: dict[str, Callable[[], list[float]]] = {TORCHRUN: partial(torchrun, chosen, event)}
    takes |= {name: partial(petctl, chosen, name, event) for name in SYSTEMS if name != TORCHRUN}
    takes = {name: take for name, take in takes.items() if not chosen.system or name in chosen.system}
    subjects: dict[str, Callable[[], float]] = {name: partial(both, name, take) for name, take in takes.items()}
    following = interleave(chosen.pairs, {**subjects, BARE_FORK: bare.measure})
    return list(following.values()), [losses[name] for name in takes]


def judge(event: str, following: list[Samples]) -> list[Claim]:
    """What must hold of an event; nothing is said about systems that were not measured."""
    found = {row.name: row for row in following}
    claims = []
    if event in ("worker", "node") and WARM in found:
        above = found[WARM].median - found[BARE_FORK].median
        claims.append(Claim(f"{event}: warm, {above:+.2f} s above a bare fork to step (at most +0.40)", above <= 0.4))
        if TORCHRUN in found:
            times = found[TORCHRUN].median / found[WARM].median
            claims.append(Claim(f"{event}: warm, {times:.1f} times faster than torchrun (at least 5)", times >= 5))
    if event == "node" and IN_PLACE in found:
        row = found[IN_PLACE]
        text = f"node: in place, median {shown(row.median)} (at most 250 ms), p90 {shown(row.p90)} (at most 500 ms)"
        claims.append(Claim(text, row.median <= 0.25 and row.p90 <= 0.5))
    return claims


def picture(path: Path, losses: dict[str, list[Samples]]) -> None:
    """The seconds lost, drawn."""
    rows = [[Bar(row.median, row.p90, shown(row.median)) for row in losses[event]] for event in losses]
    axis = Axis(0.01, 30.0, logarithmic=True)
    names = [row.name for row in next(iter(losses.values()))]
    draw(path, "Seconds lost per event: median, and 90th percentile", list(losses), names, rows, axis)


def main() -> int:
    """Measure, print, draw."""
    parser = options(__doc__)
    parser.add_argument("--event", choices=EVENTS, action="append", help="default: all four")
    parser.add_argument("--system", choices=SYSTEMS, action="append", help="default: all four")
    parser.add_argument("--deadline", type=float, default=60.0, metavar="SECONDS", help="for torchrun (default: 60)")
    parser.add_argument("--plot", type=Path, default=ROOT / "build" / "bench" / "restart.svg", metavar="FILE")
    chosen = parser.parse_args()
    tables: dict[str, list[Samples]] = {}
    losses: dict[str, list[Samples]] = {}
    claims: list[Claim] = []
    with (
        tempfile.TemporaryDirectory(prefix="petctl-bench-") as directory,
        BareFork(chosen.torch_python, 2, program="ddp.py", pace=PACE) as bare,
    ):
        chosen.directory = Path(directory)
        for system in (WARM, IN_PLACE):
            if not chosen.system or system in chosen.system:
                with new_job(chosen, system, pace=PACE) as job:
                    job.teach(START)
        for event in chosen.event or EVENTS:
            following, losses[event] = measure(chosen, event, bare)
            tables[f"{event}: until the next step"] = following
            tables[f"{event}: seconds lost"] = losses[event]
            claims += judge(event, following)
            best = losses[event][-1].name  # the others are shown beside it
            for title in (f"{event}: until the next step", f"{event}: seconds lost"):
                print_table(title, tables[title], best)
    picture(chosen.plot, losses)
    return finish("restart", chosen.output, tables, claims)


if __name__ == "__main__":
    sys.exit(main())
