"""Reading never writes: `status`, `list`, `logs` and events of jobs in every state change no file and start no process;
what has to be done for jobs that nobody looks after is done by the commands that change jobs or wait for them."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import petctl
from petctl.clusters.local.job_directory import JobDirectory, write_json
from petctl.jobs import JobHandle, Status, get, list_jobs, submit
from tests.integration.local.conftest import (
    Stage,
    exists,
    job_path,
    processes_of,
)
from tests.integration.waiting import DEADLINE, until

Picture = dict[str, tuple[object, ...]]


def picture(home: Path) -> Picture:
    """Every file below $PETCTL_HOME, but for the cache of ended jobs, with all that a write would change.

    Not its ctime: SQLite gives a journal that it reads the owner that it has already.
    """
    found: Picture = {}
    for path in sorted(home.rglob("*")):
        if not path.name.startswith("registry.db"):
            facts = path.lstat()
            data = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            found[str(path)] = (facts.st_ino, facts.st_mode, facts.st_size, facts.st_mtime_ns, data)
    return found


def supervised(home: Path) -> set[int]:
    """Every process that works for a job of this home."""
    return {pid for path in (home / "jobs").iterdir() for pid in processes_of(path)}


def petctl_(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "petctl", *words], capture_output=True, text=True, check=False, timeout=120
    )


def send(pids: list[int], *numbers: signal.Signals) -> None:
    """All of them get one signal, then the next, so that nobody is brought back between two kills."""
    for number in numbers:
        for pid in pids:
            if exists(pid):
                os.kill(pid, number)


def kill(*handles: JobHandle, spared: int = 0) -> None:
    pids = [pid for handle in handles for pid in processes_of(job_path(handle)) if pid != spared]
    send(pids, signal.SIGSTOP, signal.SIGKILL)
    until(lambda: not any(map(exists, pids)), "their ends")
    # The last thread of a process lets go of its locks, which may be a moment after its first thread has ended.
    until(lambda: not any(JobDirectory(job_path(handle)).alive() for handle in handles), "that no lock is held")


def _stands_by(pid: int) -> bool:
    with suppress(OSError):
        return b"--standby" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return False


def complete(handle: JobHandle) -> None:
    """Waits until the job has all its processes: supervisor, standby, guardian, agent and worker."""
    until(lambda: len(processes_of(job_path(handle))) == 5, "all processes of the job")


def test_reading_jobs_in_every_state_changes_nothing(stage: Stage) -> None:
    home = stage.path / "home"
    (stage.path / "petctl.yaml").write_text("clusters: {local: {slots: 3}}\n")
    ended = submit(petctl.Job(shell="echo done", name="ended", code="none"))
    ended.wait(DEADLINE)
    works = 'touch "$PETCTL_JOB_ID"; echo at work; sleep 600'
    names = ("running", "killed", "restarted")
    running, killed, restarted = (submit(petctl.Job(shell=works, name=name, code="none")) for name in names)
    for handle in (running, killed, restarted):
        until((stage.path / handle.id).exists, f"{handle.id} at work")
        complete(handle)
    queued = submit(petctl.Job(shell="true", name="queued", code="none", nodes=3))
    until(lambda: len(processes_of(job_path(queued))) == 1, "the supervisor of the head")
    frozen = [*processes_of(job_path(running)), *processes_of(job_path(queued))]
    send(frozen, signal.SIGSTOP)  # they live, and write nothing meanwhile
    try:
        kill(killed, restarted)
        place = JobDirectory(job_path(restarted)).coordinator
        write_json(place, {**json.loads(place.read_text()), "boot": "of-yesterday"})
        (home / "jobs" / "damaged-1111").mkdir()
        (home / "jobs" / "damaged-1111" / "job.json").write_text("{")
        before, processes = picture(home), supervised(home)
        jobs = [handle.id for handle in (ended, running, killed, restarted, queued)]
        for words in (("list",), ("list", "-o", "json"), ("list", "-c", "local")):
            done = petctl_(*words)
            assert done.returncode == 0, done.stderr
            assert all(job in done.stdout for job in [*jobs, "damaged-1111"])
        for job in jobs:
            for read in (("status", job), ("status", "-o", "json", job), ("logs", job)):
                done = petctl_(*read)
                assert done.returncode == 0, done.stderr
            assert list(get(job).events()) or job == queued.id
            get(job).watch(None, 0.1)
            list(get(job).logs())
        assert petctl_("status", "damaged-1111").returncode == 70
        found = {status.name: status for status in list_jobs()}
        assert picture(home) == before
        assert supervised(home) == processes
    finally:
        send(frozen, signal.SIGCONT)
    states = {name: (status.state, status.unattended) for name, status in found.items()}
    assert states == {
        "ended": ("succeeded", False),
        "running": ("running", False),
        "killed": ("lost", True),
        "restarted": ("lost", True),
        "queued": ("queued", False),
        "damaged-1111": ("lost", False),
    }
    assert "were killed" in found["killed"].sentence and "restarted while it ran" in found["restarted"].sentence
    assert f"petctl cancel {killed.id} ends what is left of it" in found["killed"].sentence
    assert petctl_("rm", "damaged-1111").returncode == 0
    running.cancel(kill=True)
    assert queued.wait(DEADLINE).state == "succeeded"  # it also waits until the lost ones hold no slots any more


def cancelled(handle: JobHandle) -> None:
    assert petctl_("cancel", handle.id).stdout.startswith(f"{handle.id}: has ended already (lost)")


def waited(handle: JobHandle) -> None:
    assert petctl_("wait", handle.id).returncode == 70


def removed(handle: JobHandle) -> None:
    assert petctl_("rm", handle.id).returncode == 0


def scaled(handle: JobHandle) -> None:
    done = petctl_("scale", handle.id, "2")
    assert done.returncode == 2 and "has ended (lost)" in done.stderr


def another(handle: JobHandle) -> None:
    """Its supervisor looks after the queue, and finds what the lost one holds there."""
    submit(petctl.Job(shell="while ! test -e go; do sleep 0.05; done", name="another", code="none"))


@pytest.mark.parametrize("act", [cancelled, waited, removed, scaled, another])
def test_a_lost_job_is_finished_by_who_changes_jobs_or_waits(stage: Stage, act: Callable[[JobHandle], None]) -> None:
    script = "setsid sleep 600 & echo $! > left.new; mv left.new left; wait"
    handle = submit(petctl.Job(shell=script, name="leaves", code="none", nodes="1:1:2"))
    until((stage.path / "left").exists, "what a worker has started")
    path, left = JobDirectory(job_path(handle)), int((stage.path / "left").read_text())
    until(lambda: len(found := processes_of(path.path)) == 6 and any(map(_stands_by, found)), "its standby, too")
    kill(handle, spared=left)
    status = handle.status()
    assert (status.state, status.unattended, status.exit_code) == ("lost", True, 70)
    assert exists(left) and not path.outcome.exists()
    table = petctl_("list")
    assert f"petctl: to end what is left of lost jobs: petctl cancel {handle.id}" in table.stderr
    act(handle)
    until(lambda: not exists(left), "the end of what was left")
    if act is not removed:
        until(path.outcome.exists, "its outcome")
        status = until(lambda: (now := handle.status()).final and not now.unattended and now, "its end")
        assert (status.state, status.exit_code) == ("lost", 70)
        assert status.sentence.startswith("its supervisor and all of its nodes were killed")
    (stage.path / "go").touch()


def test_a_lost_job_that_was_to_be_cancelled_is_cancelled(stage: Stage) -> None:
    handle = stage.start()
    stage.running(1)
    complete(handle)
    kill(handle)
    write_json(JobDirectory(job_path(handle)).cancel, {"kill": False})  # and then everything was killed
    assert (handle.status().state, handle.status().unattended) == ("cancelled", True)
    assert handle.wait(DEADLINE).state == "cancelled"


class Stopped:
    """A queue of jobs whose every process was killed."""

    def __init__(self, stage: Stage) -> None:
        (stage.path / "petctl.yaml").write_text("clusters: {local: {slots: 1}}\n")
        self.path = stage.path
        self.ended = self._submit("true")
        self.ended.wait(DEADLINE)
        self.first = self._submit('touch "$PETCTL_JOB_ID"; sleep 600')
        until((self.path / self.first.id).exists, "the first at work")
        complete(self.first)
        self.second, self.third = self._submit('touch "$PETCTL_JOB_ID"', nodes="1:2"), self._submit("true")
        until(lambda: len(processes_of(job_path(self.second))) == 1, "the supervisor of the head")
        kill(self.first, self.second, self.third)
        until(lambda: self.second.status().unattended, "that nobody looks after the queue")

    def _submit(self, script: str, nodes: int | str = 1) -> JobHandle:
        return submit(petctl.Job(shell=script, name="short", code="none", nodes=nodes))

    def status(self) -> Status:
        return self.second.status()


def test_a_queue_that_has_stopped_says_what_starts_it_again(stage: Stage) -> None:
    stopped = Stopped(stage)
    advice = f"the queue has stopped, petctl wait {stopped.second.id} starts it again"
    assert stopped.status().state in ("queued", "pending") and advice in stopped.status().sentence
    assert advice in petctl_("status", stopped.second.id).stdout
    told = petctl_("list").stderr
    assert f"petctl: the queue of local has stopped; petctl wait {stopped.second.id} starts it again" in told
    assert processes_of(job_path(stopped.second)) == []


VERBS: dict[str, Callable[[Stopped], list[str]]] = {
    "wait": lambda stopped: ["wait", "--timeout", "60s", stopped.third.id],
    "submit": lambda stopped: ["submit", "--", "true"],
    "run": lambda stopped: ["run", "--", "true"],
    "scale": lambda stopped: ["scale", stopped.second.id, "1"],
    "cancel": lambda stopped: ["cancel", stopped.third.id],
    "cancel of the lost one": lambda stopped: ["cancel", stopped.first.id],
    "rm": lambda stopped: ["rm", stopped.ended.id],
    "rm of the lost one": lambda stopped: ["rm", stopped.first.id],
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_queue_that_has_stopped_is_started_by_who_changes_jobs_or_waits(stage: Stage, verb: str) -> None:
    stopped = Stopped(stage)
    done = petctl_(*VERBS[verb](stopped))
    assert done.returncode == 0, done.stderr
    until((stage.path / stopped.second.id).exists, "the second at work, without anybody who acts on it")
    assert stopped.second.wait(DEADLINE).state == "succeeded"
    third = "cancelled" if verb == "cancel" else "succeeded"
    assert stopped.third.wait(DEADLINE).state == third
