"""--memory and --cpu of nodes that are no containers: control groups, for as long as the node lives."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import petctl
from petctl.agent.workers.processes import signal_each
from petctl.clusters.local.controller.cgroups import parents
from petctl.clusters.local.processes import node_processes
from petctl.jobs import JobHandle, list_jobs, submit
from tests.integration.local.conftest import (
    Stage,
    children,
    end_all,
    guardian,
    job_path,
    processes_of,
    supervisor_pid,
)
from tests.integration.waiting import DEADLINE, until

LITTLE = {"memory": "200MiB", "cpu": "1500m"}
GREEDY = "kept = [b'x' * (1 << 24) for _ in range(40)]"  # 640 MiB, should nothing stop it

pytestmark = pytest.mark.root


@pytest.fixture(autouse=True)
def nothing_left(stage: Stage) -> Iterator[None]:
    """Skips where there can be no such groups; afterwards none is left."""
    _, refused = parents({"memory": 1, "cpu": 1})
    if refused:
        pytest.skip(f"no control group with limits can be made here: {refused}")
    yield
    end_all(list_jobs())
    left = [group for path in (stage.path / "home" / "jobs").iterdir() for group in groups_of(path.name)]
    assert not left


def groups_of(job: str) -> list[Path]:
    return [Path(top) for top, _, _ in os.walk("/sys/fs/cgroup") if Path(top).name.startswith(f"petctl-{job}-")]


def entered(pid: int, job: str) -> bool:
    return f"/petctl-{job}-" in Path(f"/proc/{pid}/cgroup").read_text()


def started(stage: Stage) -> tuple[JobHandle, str]:
    handle = stage.start(nodes=2, resources=LITTLE)
    stage.running(2)
    return handle, job_path(handle).name


def test_a_node_that_wants_too_much_memory_is_the_root_cause(stage: Stage) -> None:
    (stage.path / "greedy.py").write_text(GREEDY)
    handle = submit(petctl.Job(script="greedy.py", cwd=stage.path, restarts=0, resources=LITTLE))
    status = handle.wait(DEADLINE)
    assert status.state == "failed"
    assert not any("not enforced" in note for note in handle.notes())
    assert status.error is not None
    assert status.error.message == "killed: node 0 used more than its 200 MiB of memory"
    assert status.error.cause == "host-out-of-memory"


def test_workers_are_limited_and_what_looks_after_them_is_not(stage: Stage) -> None:
    handle, job = started(stage)
    assert all(entered(mark.pid, job) for mark in stage.marks())
    assert not any(entered(guardian(handle, node), job) for node in ("0", "1"))
    supervisor = supervisor_pid(handle)
    for pid in supervisors(job_path(handle)):
        os.kill(pid, signal.SIGKILL)  # with its standby: so a node has to start the next one
    until(lambda: supervisor_pid(handle) != supervisor, "another supervisor")
    assert not entered(supervisor_pid(handle), job)
    before = stage.marks()[-1].round
    os.kill(children(guardian(handle, "0"))[0], signal.SIGKILL)
    again = stage.running(2, after=before)
    assert all(entered(mark.pid, job) for mark in stage.marks(again))
    stage.finish()
    assert handle.wait(DEADLINE).state == "succeeded"


def test_groups_go_also_when_everything_is_killed_at_once(stage: Stage) -> None:
    handle, job = started(stage)
    assert groups_of(job)
    found: set[int] = set()
    while new := set(processes_of(job_path(handle))) - found:  # who is stopped starts no other, such as the standby
        found |= new
        signal_each(new, signal.SIGSTOP)
    signal_each(found, signal.SIGKILL)
    assert handle.wait(DEADLINE).state == "lost"


def supervisors(path: Path) -> list[int]:
    """With the standby."""
    return sorted(set(processes_of(path)) - set(node_processes(path.name, path / "nodes")))
