"""Claim: SIGKILL of the supervisor (with the coordinator inside) is not noticed by the training.

A job of two nodes steps every 10 ms without any collective. After an undisturbed stretch its supervisor is killed
and the stretch is measured again: same worker pids, same round, and the longest gap between two steps of a rank at
most 3 times the undisturbed 99th percentile. Then a node is killed right away: the new supervisor must handle that
too.

There is no peer: torchrun's counterpart is the agent that keeps the store, and its loss ends the job (see
recovery.py).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable

from common import Claim, Missed, Samples, finish, options, print_table, progress
from processes import Mark, kill, wait_gone
from subjects import PetctlJob

START = 30.0


def gaps(marks: Iterable[Mark]) -> list[float]:
    """The time between each two steps of the same rank."""
    last: dict[int, float] = {}
    found = []
    for mark in marks:
        if mark.rank in last:
            found.append(mark.time - last[mark.rank])
        last[mark.rank] = mark.time
    return found


def stretch(job: PetctlJob, steps: int) -> list[Mark]:
    """The marks of the next `steps` steps of each rank."""
    begin = time.monotonic()

    def found(marks: list[Mark]) -> float | None:
        count = sum(mark.time >= begin for mark in marks[-2 * steps - 100 :])
        return time.monotonic() if count >= 2 * steps else None

    job.marks.until(f"{steps} steps", found, START)
    return [mark for mark in job.marks.all if mark.time >= begin]


def one_kill(petctl: str, steps: int, calm: Samples, disturbed: Samples, back: Samples, after: Samples) -> None:
    """One job, one supervisor killed, one node killed after it."""
    with PetctlJob(petctl, sys.executable, pace=0.01, alone=True) as job:
        job.start("2")
        job.marks.stepping(START, world=2, steps=50)
        before = stretch(job, steps)
        pids, this_round, supervisor = {mark.pid for mark in before}, job.status()["round"], job.supervisor()

        moment = time.monotonic()
        kill(supervisor)
        wait_gone(supervisor, 5)
        during = stretch(job, steps)
        new = await_supervisor(job, supervisor)
        back.seconds.append(new - moment)
        if {mark.pid for mark in during} != pids:
            raise Missed("workers were restarted")
        if job.status()["round"] != this_round:
            raise Missed("a new round was opened")
        calm.seconds.append(sorted(gaps(before))[int(0.99 * 2 * steps)])
        disturbed.seconds.append(max(gaps(during)))

        old = job.marks.pids()
        killed = job.kill_node(job.node_names()[0])
        after.seconds.append(job.marks.stepping(START, world=2, old=old) - killed)


def await_supervisor(job: PetctlJob, old: int) -> float:
    """When coordinator.json names a living supervisor again."""

    def found(_: list[Mark]) -> float | None:
        path = job.path / "coordinator.json"
        return path.stat().st_mtime if job.supervisor() != old else None

    offset = time.time() - time.monotonic()
    return job.marks.until("a new supervisor", found, 10.0) - offset


def main() -> int:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--steps", type=int, default=300, help="steps of each stretch (default: 300)")
    chosen = parser.parse_args()
    calm, disturbed = Samples("99th percentile, undisturbed"), Samples("longest gap, supervisor killed")
    back, after = Samples("supervisor back"), Samples("node killed after: all stepping")
    problems = []
    for number in range(chosen.pairs):
        try:
            one_kill(chosen.petctl, chosen.steps, calm, disturbed, back, after)
            progress(f"run {number + 1} of {chosen.pairs}: {1000 * disturbed.seconds[-1]:.1f} ms")
        except Missed as missed:
            problems.append(str(missed))
            progress(f"run {number + 1} of {chosen.pairs}: {missed}")
    rows = [disturbed, calm, back, after]
    print_table("SIGKILL of the supervisor, 2 workers stepping every 10 ms", rows, disturbed.name)
    claims = [Claim(f"same pids, same round, in all runs {problems or ''}".rstrip(), not problems)]
    if calm.seconds:
        share = disturbed.median / calm.median
        claims.append(Claim(f"longest gap: {share:.2f} times the undisturbed 99th percentile (at most 3)", share <= 3))
        claims.append(Claim(f"the supervisor is back after {back.median:.2f} s (at most 1)", back.median <= 1))
    return finish("supervisor_kill", chosen.output, {"gaps": rows}, claims)


if __name__ == "__main__":
    sys.exit(main())
