"""A full disk under $PETCTL_HOME costs records, never the end of a job: it is reached, told, and leaves nothing."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from petctl.clusters.local.job_directory import JobDirectory
from petctl.errors import PetctlError
from petctl.files import read_json_or_none
from petctl.jobs import JobHandle, list_jobs
from tests.integration.local.conftest import (
    Stage,
    guardian,
    job_path,
    processes_of,
    still_there,
    supervisor_pid,
)
from tests.integration.waiting import DEADLINE, until

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small file system"),
]

SIZE = 4 << 20
FLOOD = """
while True:
    print("x" * 1000)
"""


class Disk:
    """A small file system that holds $PETCTL_HOME and nothing else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.filler = path / "filler"

    def fill(self, leave: int = 0) -> None:
        """Until not one byte fits, but for the last `leave`."""
        with open(self.filler, "ab", buffering=0) as file:
            for size in (1 << 16, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError as error:
                    assert error.errno == errno.ENOSPC
            file.truncate(file.tell() - leave)

    def make_room(self) -> None:
        self.filler.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Asked for before `stage`, so that it is unmounted after the last job has gone."""
    home = tmp_path / "home"
    home.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "petctl-test", str(home)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr.strip()}")
    try:
        yield Disk(home)
    finally:
        try:
            end_all(list((home / "jobs").glob("[!.]*")))
        finally:
            subprocess.run(["umount", "--lazy", str(home)], check=True)


def end_all(jobs: list[Path]) -> None:
    """Whatever a failed test has left: stopped first, because a job's processes bring each other back."""

    def left() -> list[int]:
        return [pid for path in jobs for pid in processes_of(path)]

    def none_left() -> bool:
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in left():
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        return not left()

    until(none_left, "the end of every process")


def petctl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "petctl", *words], capture_output=True, text=True, timeout=60)


def supervisors(handle: JobHandle) -> list[int]:
    """The supervisor and its standby."""
    found = []
    for pid in processes_of(job_path(handle)):
        try:
            if b"petctl.clusters.local.controller.supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


def another_supervisor(handle: JobHandle, before: list[int]) -> int:
    """The process id of one that is none of those before, 0 as long as there is none."""
    place = read_json_or_none(job_path(handle) / "coordinator.json") or {"pid": 0}
    return 0 if place["pid"] in before else int(place["pid"])


def reserve_used(handle: JobHandle, name: str) -> bool:
    return not (job_path(handle) / f".{name}.spare").exists()


def test_a_job_that_fills_the_disk_fails_and_says_why(disk: Disk, stage: Stage) -> None:
    (stage.path / "petctl.yaml").write_text("clusters: {local: {slots: 1}}\n")
    (stage.path / "flood.py").write_text(FLOOD)
    done = petctl("run", "--restarts", "0", "flood.py")
    assert done.returncode == 1, done.stderr
    assert "no space left" in done.stderr
    (status,) = list_jobs()
    assert (status.state, status.exit_code) == ("failed", 1)
    assert status.error is not None and "no space left on the disk of its log files" in status.error.message
    path = Path(status.directory)
    assert not still_there([path])
    assert not list(path.glob(".*"))  # what was set aside
    assert json.loads(petctl("status", "-o", "json", status.id).stdout)["state"] == "failed"
    assert petctl("rm", status.id).returncode == 0
    assert petctl("run", "-q", "--", "true").returncode == 0  # the only slot is free again


@pytest.mark.parametrize("how", ["supervisor", "both"])
def test_a_supervisor_killed_on_a_full_disk_comes_back_and_ends_the_job(disk: Disk, stage: Stage, how: str) -> None:
    handle = stage.start(nodes=1)
    number = stage.running(1)
    before = stage.marks()
    both = until(lambda: len(supervisors(handle)) == 2 and supervisors(handle), "the supervisor and its standby")
    killed = both if how == "both" else [supervisor_pid(handle)]
    disk.fill()
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    second = until(lambda: another_supervisor(handle, killed), "a new supervisor")
    assert reserve_used(handle, "epoch")  # coordinator.json fits where the old epoch was
    os.kill(second, signal.SIGKILL)  # again: now what was set aside for this is used up
    until(lambda: another_supervisor(handle, [*killed, second]), "another supervisor")
    stage.goes_on(number, 1)
    assert stage.marks() == before  # nobody has disturbed the worker
    stage.finish()
    status = handle.wait(DEADLINE)
    assert (status.state, status.exit_code, status.spent) == ("succeeded", 0, 0)
    assert not still_there([job_path(handle)])
    assert not list(job_path(handle).glob(".*"))


def test_a_node_replaced_on_a_full_disk_cannot_work_and_says_so(disk: Disk, stage: Stage) -> None:
    handle = stage.start(nodes=1, restarts=0)
    stage.running(1)
    node = guardian(handle, "0")
    disk.fill()
    os.kill(node, signal.SIGKILL)
    status = handle.wait(DEADLINE)
    assert (status.state, status.exit_code) == ("failed", 1)
    assert status.error is not None and "no space left" in status.error.message
    assert [mark.round for mark in stage.marks()] == [1, 2]
    assert not still_there([job_path(handle)])


@pytest.mark.parametrize("leave", [0, 64 << 10])
def test_nothing_can_be_submitted_to_a_full_disk(disk: Disk, stage: Stage, leave: int) -> None:
    assert petctl("run", "-q", "--", "true").returncode == 0
    (before,) = (disk.path / "jobs").iterdir()
    disk.fill(leave)
    done = petctl("run", "--", "true")
    assert done.returncode == 1
    assert done.stderr.startswith("petctl: the job was not submitted: no space left on the disk of ")
    assert list((disk.path / "jobs").iterdir()) == [before]
    disk.make_room()
    assert petctl("run", "-q", "--", "true").returncode == 0


def test_a_job_goes_on_when_there_is_room_again(disk: Disk, stage: Stage) -> None:
    handle = stage.start(nodes="1:1:2")
    first = stage.running(1)
    disk.fill()
    with pytest.raises(PetctlError, match="no space left"):
        handle.scale(2)
    stage.goes_on(first, 1)
    disk.make_room()
    assert "from 1 to 2" in handle.scale(2)
    stage.running(2, after=first)
    stage.finish()
    status = handle.wait(DEADLINE)
    assert (status.state, status.spent, len(status.rounds)) == ("succeeded", 0, 2)


def test_a_job_can_be_cancelled_on_a_full_disk(disk: Disk, stage: Stage) -> None:
    handle = stage.start("stubborn", nodes=1, grace=60)
    stage.running(1)
    disk.fill()
    handle.cancel()
    handle.cancel(kill=True)
    status = handle.wait(DEADLINE)
    assert (status.state, status.exit_code) == ("cancelled", 130)


def test_a_queued_job_waits_for_room_too(disk: Disk, stage: Stage) -> None:
    (stage.path / "petctl.yaml").write_text("clusters: {local: {slots: 1}}\n")
    running = stage.start(nodes=1)
    stage.running(1)
    queued = stage.start("exit", "3", nodes=1)
    until(lambda: queued.status().state == "queued", "a job in line")
    directory = JobDirectory(job_path(queued))
    disk.fill()
    stage.finish()
    assert running.wait(DEADLINE).state == "succeeded"
    disk.fill()  # what the ended job has given back
    assert directory.supervised(), directory.supervisor_log.read_text()
    disk.make_room()
    status = queued.wait(DEADLINE)
    assert (status.state, status.exit_code, status.epoch) == ("failed", 3, 1)
