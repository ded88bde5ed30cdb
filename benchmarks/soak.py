"""Claim: 200 random kills of workers, agents, guardians and the supervisor in one job, and it still ends well.

One job of 1 to 3 nodes with 2 workers each steps without end. Again and again one of its processes, chosen at
random, gets SIGKILL: half of the time when everything steps again, half of the time in the middle of the recovery
from the last kill. Only what would leave neither a supervisor nor an agent is not done: then nobody is left to go
on, and the job is rightly lost. Then the workers are told to end. Must hold: after every calm kill all ranks of
some round step again within the deadline, the job ends `succeeded` with exit code 0, and no process of it is left.
The seed is printed and can be given again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

from common import Claim, Missed, finish, options, progress
from processes import Mark, carriers, descendants, kill
from subjects import PetctlJob

KINDS = ("worker", "worker", "agent", "guardian", "supervisor")


def victim(job: PetctlJob, kind: str, random_source: random.Random) -> int | None:
    """The pid of a living process of that kind, or None while there is none that may die."""
    guardians = [int(path.read_text() or 0) for path in sorted(job.path.glob("nodes/*/pid"))]
    chains = [chain for pid in guardians if alive(pid) and len(chain := descendants(pid)) > 1 and alive(chain[1])]
    supervised = alive(job.supervisor())
    if kind == "supervisor":
        return job.supervisor() if supervised and chains else None
    if kind != "worker" and not supervised and len(chains) < 2:
        return None  # the last one that could bring the supervisor back
    workers = {mark.pid for mark in job.marks.read()[-200:]}
    found = {
        "guardian": [chain[0] for chain in chains],
        "agent": [chain[1] for chain in chains],
        "worker": [pid for chain in chains for pid in chain if pid in workers],
    }[kind]
    return random_source.choice(found) if found else None


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def soak(chosen: argparse.Namespace) -> list[Claim]:
    """The whole life of the job."""
    random_source = random.Random(chosen.seed)
    kills: Counter[str] = Counter()
    slowest = 0.0
    with PetctlJob(chosen.petctl, sys.executable, pace=0.02, alone=True) as job:
        job.start("1:3", "--procs", "2", restarts=100_000)
        job.marks.stepping(30.0, world=6, steps=5)
        last_kill = time.monotonic()
        while kills.total() < chosen.kills:
            kind = random_source.choice(KINDS)
            pid = victim(job, kind, random_source)
            if pid is None:
                if time.monotonic() > last_kill + chosen.deadline:
                    raise Missed(f"nothing left to kill {chosen.deadline:.0f} s after kill {kills.total()}")
                job.marks.change(0.2)
                continue
            gone = {pid} if kind == "supervisor" else set(descendants(pid))
            moment = last_kill = time.monotonic()
            kill(pid)
            kills[kind] += 1
            if random_source.random() < 0.5:
                slowest = max(slowest, stepping_since(job, moment, gone, chosen.deadline) - moment)
            else:
                pause_until = moment + random_source.uniform(0, 0.5)
                while (left := pause_until - time.monotonic()) > 0:
                    job.marks.change(left)
            if kills.total() % 10 == 0:
                progress(f"{kills.total()} of {chosen.kills} kills, slowest recovery {slowest:.2f} s")
        stepping_since(job, time.monotonic(), set(), chosen.deadline)
        job.stop()
        code = job.call("wait", job.id, check=False, timeout=120).returncode
        status = job.status()
        orphans = left_over(job, 5.0)
    print(f"\n{kills.total()} kills: " + ", ".join(f"{count} {kind}" for kind, count in sorted(kills.items())))
    print(f"  rounds: {status['round']}, epochs: {status['epoch']}, slowest recovery: {slowest:.2f} s")
    return [
        Claim(f"the job ended {status['state']} with code {code}", status["state"] == "succeeded" and code == 0),
        Claim(f"every recovery within {chosen.deadline:.0f} s", slowest <= chosen.deadline),
        Claim(f"no process is left ({orphans or 'none'})", not orphans),
    ]


def stepping_since(job: PetctlJob, moment: float, gone: set[int], deadline: float) -> float:
    """When every rank of one group had stepped after `moment`; the last steps of those in `gone` do not count."""

    def found(marks: list[Mark]) -> float | None:
        recent = [mark for mark in marks[-2000:] if mark.time > moment and mark.step and mark.pid not in gone]
        if not recent:
            return None
        group = {mark.rank: mark.time for mark in reversed(recent) if mark.world == recent[-1].world}
        return max(group.values()) if len(group) == recent[-1].world else None

    return job.marks.until("all ranks stepping", found, deadline)


def left_over(job: PetctlJob, patience: float) -> list[int]:
    """Processes of the job that outlive it by more than a moment."""
    until = time.monotonic() + patience
    while (left := carriers(job.key)) and time.monotonic() < until:
        job.marks.change(0.2)
    return left


def main() -> int:
    """Soak and print."""
    parser = options(__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--deadline", type=float, default=60.0, metavar="SECONDS", help="per recovery (default: 60)")
    chosen = parser.parse_args()
    progress(f"seed {chosen.seed}")
    try:
        claims = soak(chosen)
    except Missed as missed:
        claims = [Claim(f"{missed} (seed {chosen.seed})", False)]
    return finish("soak", chosen.output, {}, claims)


if __name__ == "__main__":
    sys.exit(main())
