"""A job that waits runs in its submitter's environment, and no secret of that lies on a disk meanwhile."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from petctl.clusters.local.controller.start_environment import MEMORY

from .conftest import Petctl

VALUE = hashlib.sha256(b"a token").hexdigest()[:40]
SHOWS = "import os\nprint(os.environ.get('HF_TOKEN', 'none')[::-1], os.environ['PLAIN'])\n"


@pytest.fixture
def waiting(petctl: Petctl) -> tuple[str, str, Path]:
    """A job that holds the only slot until its file is written to, one that waits without a process, and the file."""
    (petctl.directory / "petctl.yaml").write_text("clusters: {local: {slots: 1}}")
    gate = petctl.directory / "gate"
    os.mkfifo(gate)
    first = petctl.submit("--shell", f"echo ready; read word < {gate}")
    petctl.follow_until(first, "ready")
    petctl.submit("true")  # the head of the line has a process, which holds its environment
    petctl.environment |= {"HF_TOKEN": VALUE, "PLAIN": "from the submitter"}
    submitted = petctl("submit", petctl.script("shows.py", SHOWS))
    for name in ("HF_TOKEN", "PLAIN"):
        del petctl.environment[name]
    note = "petctl: HF_TOKEN looks like a secret: kept in memory until the job starts"
    assert note in submitted.stderr and "--secret HF_TOKEN=hf-token" in submitted.stderr
    assert VALUE not in submitted.stderr
    return first, submitted.stdout.strip(), gate


def in_memory(job: str) -> list[Path]:
    return list((MEMORY / f"petctl-{os.geteuid()}").glob(f"*.{job}"))


def test_a_secret_of_the_environment_reaches_a_waiting_job_and_no_disk(
    petctl: Petctl, waiting: tuple[str, str, Path]
) -> None:
    first, second, gate = waiting
    files = [path for path in petctl.home.rglob("*") if path.is_file()]
    assert not [path for path in files if VALUE.encode() in path.read_bytes()]
    kept = json.loads((petctl.home / "jobs" / second / "start.json").read_text())
    assert kept["withheld"] == ["HF_TOKEN"] and kept["environment"]["PLAIN"] == "from the submitter"
    (place,) = in_memory(second)
    assert (place.stat().st_mode & 0o777, place.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    gate.write_text("go\n")  # another job's supervisor, which never had the value, starts the second
    petctl("wait", first, second)
    assert petctl("logs", second).stdout == f"{VALUE[::-1]} from the submitter\n"
    assert in_memory(second) == []
    assert not (petctl.home / "jobs" / second / "start.json").exists()


def test_a_job_that_lost_a_variable_says_so(petctl: Petctl, waiting: tuple[str, str, Path]) -> None:
    first, second, gate = waiting
    (place,) = in_memory(second)
    place.unlink()  # as a restart of the machine does
    gate.write_text("go\n")
    petctl("wait", first, second)
    assert petctl("logs", second).stdout == "enon from the submitter\n"
    events = [json.loads(line) for line in (petctl.home / "jobs" / second / "events.jsonl").read_text().splitlines()]
    (told,) = (event["sentence"] for event in events if event["kind"] == "environment")
    assert told.startswith("started without HF_TOKEN: ") and "--secret HF_TOKEN=hf-token" in told


def test_a_waiting_job_that_is_cancelled_leaves_nothing_in_memory(
    petctl: Petctl, waiting: tuple[str, str, Path]
) -> None:
    _, second, _ = waiting
    assert in_memory(second)
    petctl("cancel", second)
    assert in_memory(second) == []


def test_a_job_that_starts_at_once_needs_no_memory_of_the_machine(petctl: Petctl) -> None:
    petctl.environment |= {"HF_TOKEN": VALUE, "PLAIN": "here"}
    done = petctl("run", "-q", petctl.script("shows.py", SHOWS))
    assert (done.stdout, done.stderr) == (f"{VALUE[::-1]} here\n", "")
    assert not [path for path in petctl.home.rglob("*") if path.is_file() and VALUE.encode() in path.read_bytes()]
