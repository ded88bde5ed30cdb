"""Whole jobs whose script has several calls of elastic.run, while their workers and nodes are killed."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.integration.elastic.harness import IMPORTS
from tests.integration.elastic.jobs import Job, lines
from tests.integration.waiting import DEADLINE, until

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
SCRIPT = Path(__file__).with_name("twice.py")


@pytest.fixture
def start(tmp_path: Path, torch_python: str) -> Iterator[Callable[..., Job]]:
    """Submits the script with these variables; the job is over at the end of the test."""
    jobs: list[Job] = []

    def submit(nodes: str = "2", **options: object) -> Job:
        words = [word for name, value in options.items() for word in ("-e", f"{name}={value}")]
        job = Job(tmp_path, "-n", nodes, "--restarts", "50", "--python", torch_python, *words, str(SCRIPT))
        jobs.append(job)
        return job

    try:
        yield submit
    finally:
        for job in jobs:
            job.petctl("cancel", "--kill", job.id)


def said(job: Job) -> list[dict[str, Any]]:
    """What all ranks have said so far, in the order of the rounds."""
    logs = sorted(job.directory.glob("logs/round-*/rank-*.out"))
    return [line for log in logs for line in lines(log.read_text().rpartition("\n")[0])]


def over(job: Job) -> bool:
    return bool(job.status()["state"] in ("succeeded", "failed", "lost", "cancelled"))


def ends_well(job: Job, done: float) -> list[dict[str, Any]]:
    """Waits for the end; every number that was ever said is exact."""
    until(lambda: over(job), f"the end: {job.status()}", 3 * DEADLINE)
    everything = said(job)
    assert job.status()["state"] == "succeeded", (job.status(), everything[-5:])
    assert {line["done"] for line in everything if "done" in line} == {done}
    for line in everything:
        if "step" in line:
            assert line["weight"] == 20 * (line["call"] - 1) + line["step"], line
        elif "entered" in line:
            assert line["weight"] == 20 * (line["entered"] - 1) + line["at"], line
        elif "ended" in line:
            assert line["weight"] == line["model"] == min(20.0 * line["ended"], done) or line["weight"] == done, line
    return everything


def more_lines(job: Job, count: int) -> None:
    """Waits until the workers have said so many more lines, or the job is over."""
    enough = len(said(job)) + count
    until(lambda: over(job) or len(said(job)) >= enough, f"{enough} lines: {job.status()}", IMPORTS)


def kill_one(job: Job, chance: random.Random) -> None:
    """A worker, or the top process of a node, of the newest round that has said something."""
    newest = max(job.directory.glob("logs/round-*"), key=lambda path: path.name)
    pids = {log.name: lines(log.read_text().rpartition("\n")[0])[-1:] for log in newest.glob("rank-*.out")}
    workers = [found[0]["pid"] for found in pids.values() if found]
    nodes = [node["pid"] for node in job.status().get("nodes", ()) if node.get("pid")]
    victims = nodes if chance.random() < 0.3 else workers
    if victims:
        with suppress(ProcessLookupError):
            os.kill(chance.choice(victims), signal.SIGKILL)


@pytest.mark.parametrize("same", ["", "1"])
def test_a_worker_killed_in_the_second_call_is_replaced_there(start: Callable[..., Job], same: str) -> None:
    job = start(SAME=same, STEPS=200, STEP_TIME=0.02)

    def steps_of_second() -> list[int]:
        return [line["pid"] for line in said(job) if line.get("call") == 2 and line["rank"] == 1]

    pids = until(steps_of_second, "the second call", IMPORTS)
    os.kill(pids[-1], signal.SIGKILL)
    everything = ends_well(job, 220.0)
    assert len({line["pid"] for line in everything}) == 3, "the survivor kept its process"
    assert {line["call"] for line in everything if line.get("pid") not in {pids[-1]} and "step" in line} == {1, 2}
    assert len({(line["rank"], line["step"]) for line in everything if line.get("call") == 1}) == 40
    assert len([line for line in everything if line.get("call") == 1]) == 40, "no step of the first was made twice"


def test_a_node_that_joins_in_the_second_call_takes_part(start: Callable[..., Job]) -> None:
    job = start("1:1:2", STEPS=100, WORLD=2)
    until(lambda: any(line.get("call") == 2 for line in said(job)), "the second call", IMPORTS)
    assert job.petctl("scale", job.id, "2").returncode == 0
    everything = ends_well(job, 120.0)
    joined = [line for line in everything if line["world"] == 2 and "step" in line]
    assert joined and {line["call"] for line in joined} == {2}
    steps = [line["step"] for line in everything if line["rank"] == 0 and line.get("call") == 2]
    assert sorted(steps) == sorted(set(steps)), "no step was undone"


@pytest.mark.parametrize(("seed", "every", "same"), [(1, 0, ""), (2, 0, "1"), (3, 3, ""), (4, 3, "1")])
def test_every_number_is_exact_under_kills_at_any_time(
    start: Callable[..., Job], seed: int, every: int, same: str
) -> None:
    chance = random.Random(seed)
    job = start(EVERY=every, SAME=same, CALLS=3, STEPS=60, STEP_TIME=0.02)
    for _ in range(6):
        more_lines(job, chance.randint(5, 70))
        kill_one(job, chance)
    ends_well(job, 100.0)
