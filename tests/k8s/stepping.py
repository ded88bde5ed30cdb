"""A training that writes down every step it makes, and what can be read from that: who, when, without a gap?"""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.k8s.user import User

REMARK = 'print(f"at {time.monotonic():.4f} step {%s} of {%s}/{%s} in {%s} by {os.getpid()}", flush=True)'
"""The line of a step, with places for step, rank, world size and round; `User.steps` reads it too."""
TIMED = f"""
import os, time
number, rank, world = (os.environ[name] for name in ("PETCTL_ROUND", "RANK", "WORLD_SIZE"))
step = 0
while not os.path.exists("/petctl/state/finish"):
    {REMARK % ("step", "rank", "world", "number")}
    step += 1
    time.sleep(0.1)
"""
_LINE = re.compile(r"at (\S+) step (\d+) of (\d+)/(\d+) in (\d+) by (\d+)$")


class Step(NamedTuple):
    """One line."""

    time: float  # the clock of the node's machine
    step: int
    rank: int
    world: int
    round: int
    pid: int


def steps_of(user: User, job: str, rank: int = 0) -> list[Step]:
    """All steps of one rank, in the order in which it made them."""
    lines = user.petctl("logs", job).stdout.splitlines(keepends=True)
    found = [_LINE.search(line) for line in lines if line.endswith("\n")]
    steps = [Step(float(match[1]), *map(int, match.groups()[1:])) for match in found if match]
    return [step for step in steps if step.rank == rank]


def gaps(steps: list[Step]) -> list[float]:
    """Seconds between a step and the next."""
    return [after.time - before.time for before, after in zip(steps, steps[1:])]


def usual(steps: list[Step]) -> float:
    """The 99th percentile of the gaps of a calm time."""
    ordered = sorted(gaps(steps))
    return ordered[int(0.99 * (len(ordered) - 1))]
