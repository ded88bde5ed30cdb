"""Process 1 of a coordinator's container, with a coordinator that is a few lines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from petctl.controller.state_dir import Memory

PARENT = """
import os, signal, sys, time
from pathlib import Path
from petctl.controller import init_process

def run(start, ready):
    def listen():
        os.write(ready, b".")
        print(start, os.getpid(), flush=True)
{body}

sys.exit(init_process.keep_alive(run, Path(sys.argv[1]), 3))
"""


@pytest.fixture
def parents() -> object:
    """Starts process 1 around a body; nothing of it is left."""
    started: list[subprocess.Popen[str]] = []

    def start(state: Path, body: str) -> subprocess.Popen[str]:
        code = PARENT.format(body="".join(f"    {line}\n" for line in body.strip().splitlines()))
        argv = [sys.executable, "-c", code, str(state)]
        started.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()  # the coordinator dies with it
        process.communicate(timeout=30)


@pytest.mark.parametrize("code", [0, 91, 2])
def test_a_final_code_ends_the_container(tmp_path: Path, parents, code: int) -> None:
    process = parents(tmp_path, f"return {code}")
    assert process.wait(30) == code


def test_it_starts_anew_after_death_and_counts(tmp_path: Path, parents) -> None:
    body = """
listen()
if start == 0:
    os.kill(os.getpid(), signal.SIGKILL)
if start == 1:
    return 70
return 0
"""
    out, err = parents(tmp_path, body).communicate(timeout=30)
    assert [line.split()[0] for line in out.splitlines()] == ["0", "1", "2"]
    assert "was killed by SIGKILL; restarting it" in err and "ended with code 70; restarting it" in err
    assert Memory(tmp_path).next_start(3) == 3  # a container that is started again goes on counting
    assert Memory(tmp_path).next_start(4) == 0  # another one has numbers of its own


def test_a_full_disk_does_not_end_it(tmp_path: Path, parents) -> None:
    body = """
listen()
if start == 0:
    os.rename(sys.argv[1], sys.argv[1] + ".gone")
    return 70
return 91
"""
    process = parents(tmp_path / "state", body)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 91 and [line.split()[0] for line in out.splitlines()] == ["0", "1"]


def test_ten_short_lives_are_enough(tmp_path: Path, parents) -> None:
    process = parents(tmp_path, "return 70")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and err.count("restarting it") == 9 and "10 times in a row" in err


def test_sigterm_is_passed_on_and_waited_for(tmp_path: Path, parents) -> None:
    body = """
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(print("asked", flush=True)))
listen()
signal.pause()
"""
    process = parents(tmp_path, body)
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 143 and out == "asked\n"


def test_sigterm_between_two_lives_ends_it(tmp_path: Path, parents) -> None:
    process = parents(tmp_path, "listen()\nreturn 70")
    for _ in range(5):  # the pause is long by now
        process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143


def test_a_deaf_coordinator_is_killed(tmp_path: Path, parents) -> None:
    process = parents(tmp_path, "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nlisten()\ntime.sleep(600)")
    child = int(process.stdout.readline().split()[1])
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143
    assert not Path(f"/proc/{child}").exists()


def test_orphans_are_reaped(tmp_path: Path, parents) -> None:
    body = """
read, write = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.write(write, b"%d" % os.getpid())
    os._exit(0)
os.wait()
orphan = os.read(read, 20).decode()
while os.path.exists("/proc/" + orphan):
    time.sleep(0.01)
return 91
"""
    assert parents(tmp_path, body).wait(30) == 91


def test_the_coordinator_does_not_outlive_process_1(tmp_path: Path, parents) -> None:
    process = parents(tmp_path, "listen()\ntime.sleep(600)")
    child = int(process.stdout.readline().split()[1])
    descriptor = os.pidfd_open(child)
    try:
        process.kill()
        import select

        assert select.select([descriptor], [], [], 30)[0]
    finally:
        os.close(descriptor)


def test_a_state_directory_that_cannot_be_is_said(tmp_path: Path, parents) -> None:
    (tmp_path / "file").touch()
    process = parents(tmp_path / "file", "return 0")
    _, err = process.communicate(timeout=30)
    assert process.returncode != 0 and "give another --state" in err
