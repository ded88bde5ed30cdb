"""The other verbs, on real jobs."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import PATIENCE, Petctl, Terminal

WAITS = "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"


def test_detach_wait_logs(petctl: Petctl) -> None:
    job = petctl("run", "--detach", "-n", "2", "--shell", "echo out $RANK; echo err $RANK >&2").stdout.strip()
    petctl("wait", job)
    done = petctl("logs", job)
    assert sorted(done.stdout.splitlines()) == ["[0] out 0", "[1] out 1"]
    assert sorted(done.stderr.splitlines()) == ["[0] err 0", "[1] err 1"]
    assert petctl("logs", "--rank", "1", "--stream", "out", job).stdout == "out 1\n"
    lines = [json.loads(line) for line in petctl("logs", "-o", "json", job).stdout.splitlines()]
    assert {(line["rank"], line["stream"], line["text"]) for line in lines} == {
        (rank, stream, f"{stream} {rank}") for rank in (0, 1) for stream in ("out", "err")
    }


def test_tail_and_following(petctl: Petctl) -> None:
    job = petctl.submit("--shell", "seq 1 100")
    assert petctl("logs", "-f", job).stdout.split() == [str(k) for k in range(1, 101)]
    petctl("wait", job)
    assert petctl("logs", "--tail", "3", job).stdout == "98\n99\n100\n"


def test_wait_exits_with_the_jobs_code_or_gives_up(petctl: Petctl) -> None:
    good, bad = petctl.submit("true"), petctl.submit("--restarts", "0", "--shell", "exit 5")
    petctl("wait", good, bad, code=5)
    assert [status["exit_code"] for status in petctl.json("wait", good, bad, code=5)] == [0, 5]
    job = petctl.submit(petctl.script("waits.py", WAITS))
    done = petctl("wait", "--timeout", "0.2s", job, code=3)
    assert job in done.stderr


def test_list_and_status(petctl: Petctl) -> None:
    assert petctl.json("list") == []
    job = petctl.submit("--name", "named", "-n", "1:2", petctl.script("waits.py", WAITS))
    petctl.follow_until(job, "ready")
    assert petctl("list", "-q").stdout.split() == [job]
    assert petctl("list", "-q", "--state", "succeeded").stdout == ""
    table = petctl("list").stdout
    assert table.splitlines()[0].split() == ["ID", "STATE", "NODES", "ROUND", "AGE", "COMMAND"]
    assert job in table and "waits.py" in table
    status = petctl.json("status", job)
    assert (status["id"], status["size"]) == (job, {"min": 1, "wanted": 2, "max": 2})
    assert status["rounds"][0]["number"] == 1
    page = petctl("status", job.rpartition("-")[2]).stdout
    assert "running" in page and str(petctl.directory) in page


def test_an_unknown_job_is_named(petctl: Petctl) -> None:
    done = petctl("status", "nothing-here", code=2)
    assert "nothing-here" in done.stderr
    error = petctl("status", "nothing-here", "-o", "json", code=2)
    assert json.loads(error.stderr)["code"] == 2


def test_scale(petctl: Petctl) -> None:
    job = petctl.submit("-n", "1:1:2", petctl.script("waits.py", WAITS))
    petctl.follow_until(job, "ready")
    petctl("scale", job, "2")
    petctl.follow_until(job, "[1] ready")
    assert petctl("scale", job, "5", code=2).stderr


def test_cancel_and_rm(petctl: Petctl) -> None:
    job = petctl.submit(petctl.script("waits.py", WAITS))
    petctl.follow_until(job, "ready")
    refused = petctl("rm", job, code=None)
    assert refused.returncode != 0 and "--force" in refused.stderr
    petctl("cancel", job)
    petctl("wait", job, code=130)
    assert petctl("rm", "--finished").stdout == f"{job}: removed\n"
    assert petctl.json("list") == []
    assert not (petctl.home / "jobs" / job).exists()


def test_rm_force_ends_a_running_job(petctl: Petctl) -> None:
    job = petctl.submit(petctl.script("waits.py", WAITS))
    petctl.follow_until(job, "ready")
    petctl("rm", "--force", job)
    assert petctl.json("list") == []


def test_a_secret_reaches_the_worker_and_nothing_else(petctl: Petctl) -> None:
    petctl("secret", "set", "wandb", stdin="s3cr3t value\n")
    assert petctl("secret", "ls").stdout == "wandb\n"
    assert petctl.json("secret", "ls") == ["wandb"]
    script = petctl.script("backwards.py", "import os\nprint(os.environ['KEY'][::-1])\n")
    assert petctl("run", "-q", "--secret", "KEY=wandb", script).stdout == "eulav t3rc3s\n"
    kept = [path for path in (petctl.home / "jobs").rglob("*") if path.is_file() and b"s3cr3t" in path.read_bytes()]
    assert kept == []
    assert "s3cr3t" not in petctl("render", "--secret", "KEY=wandb", "true").stdout
    petctl("secret", "rm", "wandb")
    assert petctl("secret", "ls").stdout == ""
    petctl("secret", "set", "empty", stdin="", code=2)


def test_exec_runs_beside_the_workers(petctl: Petctl) -> None:
    job = petctl.submit("-e", "MARK=mark", petctl.script("waits.py", WAITS))
    petctl.follow_until(job, "ready")
    done = petctl("exec", job, "--", "sh", "-c", "echo $PETCTL_JOB_ID; pwd; exit 4", code=4)
    assert done.stdout.split() == [job, str(petctl.directory)], "where the workers are: the user's own directory"


def test_forward_leads_to_a_port_of_the_job(petctl: Petctl) -> None:
    serves = (
        "import socket\ns = socket.create_server(('127.0.0.1', 0))\nprint('port', s.getsockname()[1], flush=True)\n"
        "while True:\n    c, _ = s.accept()\n    c.sendall(b'hello')\n    c.close()\n"
    )
    job = petctl.submit(petctl.script("serves.py", serves))
    petctl.follow_until(job, "port")
    port = petctl("logs", job).stdout.split()[-1]
    process = subprocess.Popen(
        [*petctl.argv, "forward", job, f"0:{port}"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=petctl.directory,
        env=petctl.environment,
        # A shell's background job, such as a test run may be, ignores SIGINT, and so would what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    try:
        address = process.stderr.readline().split()[0]
        host, local = address.split(":")
        with socket.create_connection((host, int(local)), timeout=PATIENCE) as connection:
            assert connection.recv(100) == b"hello"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_forward_says_that_nothing_listens_and_ends_with_its_job(petctl: Petctl) -> None:
    job = petctl.submit(petctl.script("waits.py", WAITS))
    petctl.follow_until(job, "ready")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]  # free from here on, and most likely for as long as this test takes
    process = subprocess.Popen(
        [*petctl.argv, "forward", job, f"0:{port}"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=petctl.directory,
        env=petctl.environment,
    )
    assert process.stderr is not None
    try:
        host, local = process.stderr.readline().split()[0].split(":")
        for _ in range(2):
            with socket.create_connection((host, int(local)), timeout=PATIENCE) as connection:
                assert connection.recv(100) == b""
        assert process.stderr.readline().startswith(f"petctl: nothing listens on port {port} of {job}: ")
        petctl("cancel", job)
        assert process.wait(PATIENCE) == 0
        assert process.stderr.read() == f"petctl: job {job} cancelled: forwarding stopped\n"
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


ANSWERS = """
import sys, time
try:
    print("begun", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    time.sleep(1)  # longer than Python waits for a child after Ctrl-C, before it kills it
    print("interrupted")
    sys.exit(9)
"""


def test_control_c_reaches_the_program_that_exec_runs(petctl: Petctl) -> None:
    job = petctl.submit(petctl.script("waits.py", WAITS))
    petctl.follow_until(job, "ready")
    terminal = Terminal(petctl, "exec", job, "--", sys.executable, "-c", ANSWERS)
    try:
        terminal.until(b"begun")
        terminal.press_control_c()
        assert terminal.exit_code() == 9
        assert b"interrupted" in terminal.screen
    finally:
        terminal.close()
    assert petctl.json("status", job)["state"] == "running"


def test_logs_of_a_rank_that_does_not_exist(petctl: Petctl) -> None:
    job = petctl.submit("-n", "2", "--shell", "true")
    petctl("wait", job)
    assert f"{job} has no rank 7; its ranks are 0 to 1" in petctl("logs", "--rank", "7", job, code=2).stderr
    assert f"{job} has no rank 7" in petctl("logs", "-f", "--rank", "7", job, code=2).stderr
    assert f"{job} has no round 3; its last is 1" in petctl("logs", "--round", "3", job, code=2).stderr
    petctl("logs", "--rank", "1", "--round", "1", job)
    waiting = petctl.submit("-n", "1:1:3", petctl.script("waits.py", WAITS))
    petctl.follow_until(waiting, "ready")
    assert "its only rank is 0" in petctl("logs", "--rank", "1", waiting, code=2).stderr
    assert "its ranks are 0 to 2" in petctl("logs", "-f", "--rank", "3", waiting, code=2).stderr


STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITS


def test_a_cancelled_job_ends_when_its_grace_has(petctl: Petctl) -> None:
    job = petctl.submit("--grace", "2", petctl.script("stubborn.py", STUBBORN))
    petctl.follow_until(job, "ready")
    petctl("cancel", job)
    petctl("wait", job, code=130)
    events = [json.loads(line) for line in (petctl.home / "jobs" / job / "events.jsonl").read_text().splitlines()]
    [decided] = [event["time"] for event in events if event["kind"] == "closing"]
    assert petctl.json("status", job)["finished"] >= decided + 2


def test_token_is_private(petctl: Petctl) -> None:
    job = petctl.submit(petctl.script("waits.py", WAITS))
    petctl.follow_until(job, "ready")
    agent = petctl.directory / "petctl-agent.pyz"
    words = ("--file", str(petctl.directory / "join.json"), "--agent", str(agent))
    path = Path(petctl("token", job, *words).stdout.strip())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["job"] == job
    version = subprocess.run(
        [sys.executable, agent, "version"], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert version.stdout.strip()


def test_render_starts_nothing(petctl: Petctl) -> None:
    script = petctl.script("train.py", "")
    assert "train.py --lr 0.1" in petctl("render", "-n", "1:3", script, "--lr", "0.1").stdout
    plan = json.loads(petctl("render", "-o", "json", "-n", "2", script, "--lr", "0.1").stdout)
    assert plan["command"] == "train.py --lr 0.1"
    assert petctl.json("list") == []


def test_a_job_file(petctl: Petctl) -> None:
    petctl.script("job.yaml", "name: filed\nshell: echo ${WHAT}\nenv: {WHAT: '${what}'}\n")
    assert petctl("run", "-q", "--set", "what=ever", "job.yaml").stdout == "ever\n"
    assert petctl("run", "job.yaml", code=2).stderr.count("what") >= 1


@pytest.mark.parametrize(("typed", "offered"), [("sta", "status"), ("status na", None), ("logs --fo", "--follow")])
def test_bash_completes(petctl: Petctl, typed: str, offered: str | None) -> None:
    job = petctl.submit("--name", "named", "true")
    words = ["petctl", *typed.split()]
    line = (
        f"source <(petctl completion bash); COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
        'COMP_LINE="${COMP_WORDS[*]}"; COMP_POINT=${#COMP_LINE}; _petctl_completion petctl; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=PATIENCE, env=petctl.environment
    )
    assert (offered or job) in done.stdout.split(), done.stderr
    petctl("wait", job)


def test_watching_ends_with_the_job(petctl: Petctl) -> None:
    job = petctl.submit("--shell", "echo hello")
    assert "succeeded" in petctl("status", "--watch", job).stdout.splitlines()[-1]
    states = [json.loads(line)["state"] for line in petctl("status", "-w", "-o", "json", job).stdout.splitlines()]
    assert states == ["succeeded"]


def test_rm_force_of_a_job_whose_supervisor_hangs_says_what_to_do(petctl: Petctl) -> None:
    job = petctl.submit(petctl.script("waits.py", WAITS))
    petctl.follow_until(job, "ready")
    supervisor = json.loads((petctl.home / "jobs" / job / "coordinator.json").read_text())["pid"]
    os.kill(supervisor, signal.SIGSTOP)
    try:
        refused = petctl("rm", "--force", job, code=1)
        assert f"{job} was not removed" in refused.stderr and "fault of petctl" not in refused.stderr
        assert f"kill -9 {supervisor}; then run petctl rm --force {job} again" in refused.stderr
    finally:
        os.kill(supervisor, signal.SIGKILL)  # as the message says; its standby, or the next command, ends the job
    petctl("rm", "--force", job)
    assert petctl.json("list") == []
