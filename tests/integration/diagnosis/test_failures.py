"""Real failures, made on the spot: each is told by its name, in the status, at the end of `run` and by `diagnose`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import petctl
from petctl.jobs import JobHandle, Status, submit
from petctl.jobs.diagnosis import diagnose
from tests.integration.local.conftest import Stage, stage
from tests.integration.waiting import until

__all__ = ["stage"]

pytestmark = pytest.mark.timeout(300)

SCRIPT = Path(__file__).with_name("failing.py")
PATIENCE = 240.0  # seconds for two dozen jobs at once

# how it fails -> the cause that has to be named
FAILURES = {
    "memory": "host-out-of-memory",
    "disk": "no-space",
    "module": "missing-module",
    "file": "missing-file",
    "descriptors": "too-many-files",
    "port": "port-in-use",
    "refused": "network",
    "name": "name-resolution",
    "segfault": "segfault",
    "bus": "shared-memory",
    "aborted": "aborted",
    "killed": "killed",
    "arguments": "arguments",
    "wrapped": "missing-module",
    "to_stdout": "name-resolution",
    "over_it": "",
}
COMMANDS: dict[str, tuple[dict[str, Any], str]] = {
    "program": ({"program": ["no-such-program"]}, "missing-program"),
    "mode": ({"program": ["./failing.py"]}, "permission"),
    "line": ({"shell": "no-such-program --x"}, "missing-program"),
    "interpreter": ({"script": "failing.py", "python": "no-such-python"}, "missing-program"),
    "syntax": ({"script": "wrong.py"}, "syntax"),
    "prepare": ({"script": "failing.py", "prepare": "exit 3"}, "prepare"),
    "prepared": ({"script": "failing.py", "prepare": "cat /no/such/file"}, "missing-file"),
    "mpi": ({"program": ["true"], "launcher": "mpi"}, "mpirun-missing"),
    "hang": ({"script": "failing.py", "args": ["hang"], "stall_after": 0.5}, "hang"),
    "limit": ({"shell": "exec sleep 60", "max_time": 0.5}, "time-limit"),
}
TORCH = {
    "nan": "nan",
    "checkpoint": "checkpoint-damaged",
    "loader": "missing-file",
    "gloo": "network",
}


def start(stage: Stage, **fields: Any) -> JobHandle:
    return submit(petctl.Job(**{"cwd": stage.path, "restarts": 0, "grace": 1, "code": "none", **fields}))


def ended(handle: JobHandle) -> Status:
    status = handle.wait(PATIENCE)
    assert status.state == "failed", status
    return status


def test_real_failures_are_named(stage: Stage) -> None:
    shutil.copy(SCRIPT, stage.path / "failing.py")
    (stage.path / "failing.py").chmod(0o644)
    (stage.path / "wrong.py").write_text("def f(:\n")
    there = {"mpi"} if shutil.which("mpirun") else set()
    jobs = {name: start(stage, script="failing.py", args=[name]) for name in FAILURES}
    jobs |= {name: start(stage, **fields) for name, (fields, _) in COMMANDS.items() if name not in there}
    expected = {**FAILURES, **{name: cause for name, (_, cause) in COMMANDS.items()}}
    told, found = {}, {}
    for name, handle in jobs.items():
        status = ended(handle)
        told[name] = status.error.cause if status.error else "time-limit"
        root = diagnose(handle).root
        found[name] = root.cause if root else ""
    assert told == found == {name: expected[name] for name in jobs}


@pytest.mark.torch
def test_real_failures_of_torch_are_named(stage: Stage, torch_python: str) -> None:
    shutil.copy(SCRIPT, stage.path / "failing.py")
    fields = {"script": "failing.py", "python": torch_python}
    jobs = {name: start(stage, **fields, args=[name], procs=2 if name == "gloo" else 1) for name in TORCH}
    told = {name: ended(handle).error for name, handle in jobs.items()}
    assert {name: error.cause if error else "" for name, error in told.items()} == TORCH


def test_people_read_the_cause_and_retries_follow_it(stage: Stage) -> None:
    shutil.copy(SCRIPT, stage.path / "failing.py")
    words = ["run", "--no-upload", "--retry-on", "network,ecc", "--restarts", "5", "failing.py", "twice"]
    done = command(*words)
    assert done.returncode == 1
    assert "(exit code 1 by missing-module is not in retry_on)" in done.stderr
    assert "\n  cause       missing-module: a Python module is not installed" in done.stderr
    assert "\n  advice      Name it in the requirements" in done.stderr
    (job,) = command("list", "-q").stdout.split()
    status = json.loads(command("status", "-o", "json", job).stdout)
    assert (status["spent"], len(status["rounds"]), status["error"]["cause"]) == (1, 2, "missing-module")
    assert status["last_failure"]["cause"] == "network"
    assert "cause       missing-module: " in command("status", job).stdout
    found = json.loads(command("diagnose", job, "-o", "json").stdout)
    assert [finding["cause"] for finding in found["findings"]] == ["missing-module", "network"]
    root = found["root"]
    assert (root["ranks"], root["where"]) == ([0], "round 2, rank 0, err")
    assert root["excerpt"][-1] == "ModuleNotFoundError: No module named 'no_such_module'"
    page = command("diagnose", job).stdout
    assert "\ncause   missing-module: " in page and "\nseen    network: " in page and "\nadvice  " in page
    log = Path(status["directory"], "logs", "round-0001", "rank-0.err")
    assert command("diagnose", "--log", str(log)).stdout.startswith("cause   network: ")
    refused = command("diagnose")
    assert (refused.returncode, refused.stderr) == (2, "petctl: no job given: name one, or a file with --log\n")
    wrong = command("run", "--retry-on", "netwrok", "failing.py")
    assert wrong.returncode == 2 and "did you mean 'network'?" in wrong.stderr


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "petctl", *words], capture_output=True, text=True, timeout=PATIENCE)


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """A control group whose processes have little memory together."""
    root = Path("/sys/fs/cgroup")
    old = (root / "memory").is_dir()
    group = root / ("memory" if old else "") / f"petctl-test-{os.getpid()}"
    try:
        group.mkdir()
        limit = group / ("memory.limit_in_bytes" if old else "memory.max")
        limit.write_text(str(400 << 20))
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"cannot make a control group with a limit of memory here: {error}")
    yield group
    until(lambda: _removed(group), "the end of all who were in it")


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return False
    return True


@pytest.mark.root
def test_who_is_killed_for_memory_is_told_so(stage: Stage, little_memory: Path) -> None:
    shutil.copy(SCRIPT, stage.path / "failing.py")
    inside = f'echo $$ > {little_memory}/cgroup.procs && exec "$@"'
    words = ["run", "--no-upload", "--restarts", "0", "failing.py", "oom"]
    done = subprocess.run(
        ["sh", "-c", inside, "sh", sys.executable, "-m", "petctl", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 137, done.stderr
    assert "\n  cause       host-out-of-memory: " in done.stderr
