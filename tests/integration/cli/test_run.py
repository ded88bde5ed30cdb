"""`petctl run` as a user meets it: output, exit codes, root cause, Ctrl-C, a reader that goes away."""

from __future__ import annotations

import subprocess

import pytest

from tests.integration.waiting import until

from .conftest import PATIENCE, Petctl, Terminal

HELLO = "import os, sys\nprint('hello from', os.environ['RANK'], *sys.argv[1:], flush=True)\n"
WAITS = "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITS


def test_one_worker_prints_as_if_it_ran_here(petctl: Petctl) -> None:
    done = petctl("run", "-q", petctl.script("hello.py", HELLO), "--lr", "0.1", "a b", "-n", "5")
    assert done.stdout == "hello from 0 --lr 0.1 a b -n 5\n"
    assert done.stderr == ""


def test_several_workers_lines_carry_their_rank(petctl: Petctl) -> None:
    done = petctl("run", "-n", "2", "--procs", "2", petctl.script("hello.py", HELLO))
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] hello from {rank}" for rank in range(4)]
    assert "succeeded" in done.stderr


def test_a_workers_stderr_is_on_stderr(petctl: Petctl) -> None:
    done = petctl("run", "-q", "--shell", "echo out; echo problem >&2")
    assert (done.stdout, done.stderr) == ("out\n", "problem\n")


@pytest.mark.parametrize(
    ("line", "code"),
    [("exit 3", 3), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)],
)
def test_the_workers_exit_code_is_petctls(petctl: Petctl, line: str, code: int) -> None:
    petctl("run", "--restarts", "0", "--shell", line, code=code)


def test_over_the_time_limit(petctl: Petctl) -> None:
    done = petctl("run", "--max-time", "1s", "--grace", "1s", petctl.script("waits.py", WAITS), code=124)
    assert "time limit" in done.stderr


def test_a_failure_names_its_root_cause_and_the_next_command(petctl: Petctl) -> None:
    script = petctl.script("fails.py", "import os\nif os.environ['RANK'] == '1':\n    raise ValueError('boom')\n")
    done = petctl("run", "-n", "2", "--restarts", "0", script, code=1)
    assert "rank 1 on node" in done.stderr
    assert "ValueError: boom" in done.stderr
    assert "petctl logs fails-" in done.stderr
    assert "--rank 1" in done.stderr


def test_json_is_the_one_document_on_stdout(petctl: Petctl) -> None:
    status = petctl.json("run", "--name", "named", "--shell", "echo x")
    assert (status["state"], status["exit_code"]) == ("succeeded", 0)
    assert status["id"].startswith("named-")


def test_a_reader_that_goes_away_leaves_the_job_running(petctl: Petctl) -> None:
    script = petctl.script(
        "talks.py", "import time\nwhile True:\n    print('line', flush=True)\n    time.sleep(0.05)\n"
    )
    process = subprocess.Popen(
        [*petctl.argv, "run", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=petctl.directory,
        env=petctl.environment,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        assert process.stdout.readline() == b"line\n"
        process.stdout.close()
        assert process.wait(PATIENCE) == 141
        assert b"keeps running" in process.stderr.read()
        until(lambda: [job["state"] for job in petctl.json("list")] == ["running"], "a job that runs")
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_control_c_cancels_and_follows_to_the_end(petctl: Petctl) -> None:
    terminal = Terminal(petctl, "run", petctl.script("waits.py", WAITS))
    try:
        terminal.until(b"ready")
        terminal.press_control_c()
        assert terminal.exit_code() == 130
        assert b"press Ctrl-C again to kill" in terminal.screen
        assert b"cancelled" in terminal.screen
    finally:
        terminal.close()
    (job,) = petctl.json("list")
    assert job["state"] == "cancelled"


def test_control_c_twice_kills(petctl: Petctl) -> None:
    terminal = Terminal(petctl, "run", "--grace", "10m", petctl.script("stubborn.py", STUBBORN))
    try:
        terminal.until(b"ready")
        terminal.press_control_c()
        terminal.until(b"press Ctrl-C again to kill")
        terminal.press_control_c()
        assert terminal.exit_code() == 130
    finally:
        terminal.close()
    (job,) = petctl.json("list")
    assert job["state"] == "cancelled"


def test_the_terminal_shows_a_status_line(petctl: Petctl) -> None:
    terminal = Terminal(petctl, "run", "--name", "shown", petctl.script("waits.py", WAITS))
    try:
        terminal.until(b"1/1 nodes")
        terminal.press_control_c()
        assert terminal.exit_code() == 130
    finally:
        terminal.close()


@pytest.mark.parametrize(
    ("text", "code", "word"),
    [
        ("import nowhere_installed\n", 1, "No module named 'nowhere_installed' (the interpreter is "),
        ("x ===\n", 1, "cause       syntax"),
        ("from . import other\n", 1, "cause       relative-import"),
        ("input()\n", 1, "cause       no-stdin"),
        ("import argparse\nargparse.ArgumentParser().parse_args(['--x'])\n", 2, "cause       arguments"),
        ("import argparse\nargparse.ArgumentParser().error('the rate must be positive')\n", 2, "cause       arguments"),
        ("import click\nclick.command()(click.argument('n')(lambda n: 0))()\n", 2, "cause       arguments"),
    ],
)
def test_what_cannot_get_better_ends_the_job_at_once_and_is_told_once(
    petctl: Petctl, text: str, code: int, word: str
) -> None:
    petctl.script("fails.py", text)
    done = petctl("run", "fails.py", code=code)
    assert word in done.stderr and "a restart would not help" in done.stderr and "round 2" not in done.stderr
    assert done.stderr.count("Traceback") <= 1 and done.stderr.count('fails.py", line') <= 1


def test_the_same_failure_again_is_one_line(petctl: Petctl) -> None:
    petctl.script("fails.py", "raise ValueError('again')\n")
    done = petctl("run", "--restarts", "2", "fails.py", code=1)
    assert done.stderr.count("Traceback") == 1
    assert [line for line in done.stderr.splitlines() if line.endswith("ValueError: again (2 of 2 restarts used)")]


def test_each_workers_error_is_shown_once_and_not_again_as_the_root_cause(petctl: Petctl) -> None:
    petctl.script("fails.py", "import os\nraise ValueError('again ' + os.environ['RANK'])\n")
    done = petctl("run", "-n", "2", "--restarts", "3", "fails.py", code=1)
    lines = done.stderr.splitlines()
    for rank in (0, 1):
        assert lines.count(f"[{rank}] ValueError: again {rank}") <= 1
    assert [line for line in lines if "] the same error as in round " in line]
    assert [line for line in lines if line.startswith("  root cause")]
    assert not [line for line in lines if line.startswith("    ValueError")]
    job = lines[-1].split()[3]
    written = petctl("logs", "--stream", "err", job).stderr
    assert written.count("ValueError: again") > 2 and "the same error" not in written
