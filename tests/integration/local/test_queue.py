"""The line of jobs with real processes: few supervisors however many jobs wait, and whoever is killed when, each job
runs exactly once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import petctl
from petctl.clusters.local.job_directory import JobDirectory, write_json
from petctl.clusters.local.processes import boot_id
from petctl.clusters.local.queue.scheduler import MOST_LIVES
from petctl.jobs import AlreadyExists, JobHandle, get, list_jobs, submit
from tests.integration.local.conftest import Stage, exists, job_path, processes_of
from tests.integration.waiting import DEADLINE, until

# A directory is made once; a second run would find it and say so.
ONCE = 'mkdir "{place}/$PETCTL_JOB_ID" || echo "$PETCTL_JOB_ID" >> "{place}/twice"; {rest}'


class Runs:
    """What the jobs of a test have left behind."""

    def __init__(self, path: Path) -> None:
        self.path = path / "runs"
        self.path.mkdir()

    def job(self, rest: str = "true") -> petctl.Job:
        return petctl.Job(shell=ONCE.format(place=self.path, rest=rest), name="short", code="none")

    def ran(self) -> set[str]:
        assert not (self.path / "twice").exists(), (self.path / "twice").read_text()
        return {path.name for path in self.path.iterdir()}


@pytest.fixture
def runs(stage: Stage) -> Runs:
    return Runs(stage.path)


def slots(stage: Stage, count: int) -> None:
    (stage.path / "petctl.yaml").write_text(f"clusters: {{local: {{slots: {count}}}}}\n")


def supervisors(handles: list[JobHandle]) -> dict[str, list[int]]:
    """The supervisors of jobs, standbys and all."""
    jobs = {os.fsencode(job_path(handle)): handle.id for handle in handles}
    found: dict[str, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"petctl.clusters.local.controller.supervisor" in words:
            for word in words:
                if word in jobs:
                    found.setdefault(jobs[word], []).append(int(path.parts[2]))
    return found


def test_only_those_that_run_and_the_head_have_a_supervisor(stage: Stage, runs: Runs) -> None:
    slots(stage, 2)
    handles = [submit(runs.job("while ! test -e go; do sleep 0.05; done")) for _ in range(12)]
    until(lambda: len(runs.ran()) == 2, "two at work")
    until(lambda: set(supervisors(handles)) == {handle.id for handle in handles[:3]}, "the head's supervisor")
    sentences = [status.sentence for status in reversed(list_jobs())][2:]
    assert [sentence.partition(",")[0] for sentence in sentences] == [
        f"queued: {ahead} job{'' if ahead == 1 else 's'} ahead" for ahead in range(10)
    ]
    assert handles[5].cancel() == "cancelled"
    assert handles[5].wait(DEADLINE).sentence == "cancelled while it was queued"
    assert handles[2].cancel() in ("cancelling", "cancelled")  # the head's supervisor does it, if it has come up
    assert handles[2].wait(DEADLINE).state == "cancelled"
    until(lambda: handles[3].id in supervisors(handles), "the next head")
    (stage.path / "go").touch()
    states = [handle.wait(DEADLINE).state for handle in handles]
    assert states.count("succeeded") == 10
    assert runs.ran() == {handle.id for handle in handles} - {handles[2].id, handles[5].id}


def test_a_higher_priority_takes_the_head_s_place(stage: Stage, runs: Runs) -> None:
    slots(stage, 1)
    first = submit(runs.job("while ! test -e go; do sleep 0.05; done"))
    until(lambda: first.id in runs.ran(), "the first at work")
    order = stage.path / "order"
    later = [submit(runs.job(f'echo "$PETCTL_JOB_ID" >> {order}')) for _ in range(2)]
    until(lambda: later[0].id in supervisors(later), "the head")
    urgent = submit(petctl.Job(shell=f'echo "$PETCTL_JOB_ID" >> {order}', name="urgent", code="none", priority=5))
    until(lambda: set(supervisors([urgent, *later])) == {urgent.id}, "the old head gone back into the line")
    (stage.path / "go").touch()
    assert [handle.wait(DEADLINE).state for handle in (first, urgent, *later)] == ["succeeded"] * 4
    assert order.read_text().split() == [urgent.id, *(handle.id for handle in later)]


SUBMITTER = """
import os, signal, sys
import petctl
from petctl.clusters.local import submit
from petctl.clusters.local.queue import queue, slots

def dies(*words, **more):
    os.kill(os.getpid(), signal.SIGKILL)

point = sys.argv[1]
if point == "before the claim":
    slots.Slots.enter = dies
elif point == "before the job":
    submit.Path.rename = dies
elif point == "before the look":
    queue.Queue.look = dies
elif point == "before the start":
    queue.Queue.start = dies
elif point == "with the lock":
    queue.start_supervisor.__globals__["start_detached"] = dies
petctl.submit(petctl.Job(shell=sys.argv[2], name="short", code="none"), id="mine")
"""


@pytest.mark.parametrize(
    "point", ["before the claim", "before the job", "before the look", "before the start", "with the lock"]
)
def test_a_submitter_killed_anywhere_submits_again(stage: Stage, runs: Runs, point: str) -> None:
    job = runs.job()
    words = [sys.executable, "-c", SUBMITTER, point, str(job.command.words[0])]
    assert subprocess.run(words, check=False, timeout=120).returncode == -signal.SIGKILL
    accepted = (stage.path / "home" / "jobs" / "mine").exists()
    assert accepted == (not point.endswith(("claim", "job")))
    if accepted:
        with pytest.raises(AlreadyExists):
            submit(job, id="mine")
    else:
        submit(job, id="mine")
    assert get("mine").wait(DEADLINE).state == "succeeded"
    assert runs.ran() == {"mine"}


def test_a_line_that_nobody_is_left_to_look_after_moves_on_when_somebody_waits(stage: Stage, runs: Runs) -> None:
    slots(stage, 1)
    first = submit(runs.job("sleep 600"))
    until(lambda: first.id in runs.ran(), "the first at work")
    others = [submit(runs.job()) for _ in range(3)]
    until(lambda: others[0].id in supervisors(others), "the head")
    found = [pid for handle in (first, *others) for pid in processes_of(job_path(handle))]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in found:
            if exists(pid):
                os.kill(pid, number)
    assert until(lambda: first.status().final, "its end")
    assert first.status().state == "lost"
    assert [handle.wait(DEADLINE).state for handle in others] == ["succeeded"] * 3
    assert runs.ran() == {first.id, *(handle.id for handle in others)}


@pytest.mark.timeout(300)
def test_supervisors_killed_at_random_lose_no_job_and_run_none_twice(stage: Stage, runs: Runs) -> None:
    slots(stage, 2)
    chance, kills = random.Random(20), Counter[str]()  # a job is given up when that happens too often before it begins
    handles = [submit(runs.job("sleep 0.3"), id=f"short-{number}") for number in range(10)]

    def over() -> bool:
        alive = [
            (job, pid) for job, pids in supervisors(handles).items() for pid in pids if kills[job] < MOST_LIVES - 1
        ]
        if alive and chance.random() < 0.1:
            job, victim = chance.choice(alive)
            if exists(victim):
                os.kill(victim, signal.SIGKILL)
                kills[job] += 1
        return all(status.final for status in list_jobs())

    # When all supervisors are killed in the same moment, a command that waits starts the queue again.
    words = [sys.executable, "-m", "petctl", "wait", *(handle.id for handle in handles)]
    with subprocess.Popen(words) as waiting:
        try:
            until(over, "the end of all", 240)
        except BaseException:
            waiting.kill()
            raise
    assert {handle.status().state for handle in handles} == {"succeeded"}
    assert runs.ran() == {handle.id for handle in handles}


def test_a_supervisor_killed_before_its_first_node_costs_nothing(
    stage: Stage, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots(stage, 1)
    first = submit(runs.job("while ! test -e go; do sleep 0.05; done"))
    until(lambda: first.id in runs.ran(), "the first at work")
    with monkeypatch.context() as submitter:
        submitter.setenv("OF_THE_SUBMITTER", "yes")
        second = submit(runs.job('test "$OF_THE_SUBMITTER" = yes'))
    (head,) = until(lambda: supervisors([second]).get(second.id), "the head")
    os.kill(head, signal.SIGSTOP)
    left = {"address": "127.0.0.1:1", "pid": head, "epoch": 1, "boot": boot_id()}
    write_json(JobDirectory(job_path(second)).coordinator, left)  # it had come so far
    os.kill(head, signal.SIGKILL)
    (stage.path / "go").touch()
    assert [handle.wait(DEADLINE).state for handle in (first, second)] == ["succeeded"] * 2
    assert runs.ran() == {first.id, second.id}


def test_the_slots_file_removed_by_hand_costs_nothing(stage: Stage, runs: Runs) -> None:
    slots(stage, 1)
    first = submit(runs.job("while ! test -e go; do sleep 0.05; done"))
    until(lambda: first.id in runs.ran(), "the first at work")
    others = [submit(runs.job()) for _ in range(3)]
    for path in (stage.path / "home" / "clusters" / "local").iterdir():
        path.unlink()
    assert others[2].status().sentence == "queued: 2 jobs ahead, needs 1 of 1 node slots, 0 free"
    (stage.path / "go").touch()
    assert [handle.wait(DEADLINE).state for handle in (first, *others)] == ["succeeded"] * 4
    assert runs.ran() == {first.id, *(handle.id for handle in others)}


def test_the_program_in_the_docs(stage: Stage) -> None:
    """As it is written there, with fewer jobs, killed after some of them and run again."""
    text = (Path(__file__).parents[3] / "docs" / "queue.md").read_text()
    program = text.partition("```python\n")[2].partition("```")[0]
    assert program.count("range(500)") == 2
    program = program.replace("range(500)", "range(4)")
    (stage.path / "train.py").write_text("import sys\nopen(f'seed-{sys.argv[2]}', 'x')\n")
    for seed in range(2):
        job = petctl.Job(script="train.py", args=["--seed", seed], cwd=stage.path)
        submit(job, id=f"sweep-{seed:03d}")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "0 0\n1 0\n2 0\n3 0\n"), done.stderr
