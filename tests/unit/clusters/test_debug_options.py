"""A debug cluster obeys its own options, and refuses what it cannot give."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from petctl.clusters.debug.backend import connect
from petctl.errors import UsageError
from petctl.job.spec import Job


def test_a_job_starts_after_its_delay_and_can_be_cancelled_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    cluster = connect(tmp_path / "home", {"name": "debug"})
    for job_id, delay in (("soon-1", 0.2), ("late-1", 600.0)):
        job = Job(program=["true"], code="none", options={"debug": {"start_delay": delay}})
        cluster.submit(cluster.build_record(job, job_id))
    assert cluster.status("late-1").finished is None
    cluster.cancel("late-1", kill=False)
    deadline = time.monotonic() + 30
    while None in (ended := [cluster.status(job_id).finished for job_id in ("soon-1", "late-1")]):
        assert time.monotonic() < deadline, ended
        time.sleep(0.02)
    soon, late = cluster.status("soon-1"), cluster.status("late-1")
    assert (soon.state, late.state) == ("succeeded", "cancelled")
    assert soon.started is not None and soon.started - soon.submitted >= 0.2
    assert late.started is None


def test_what_its_nodes_cannot_have_is_refused_with_all_of_it(tmp_path: Path) -> None:
    cluster = connect(tmp_path / "home", {"name": "lab"})
    asked = {"cpu": 1, "memory": "1GiB", "gpus": 1, "shm": "1GiB"}
    job = Job(program=["true"], code="none", resources=asked, volumes=[{"claim": "data", "path": "/data"}])
    said = "lab cannot give its nodes what the job asks for: cpu, memory, gpus, shm, volumes; leave it out"
    with pytest.raises(UsageError, match=said):
        cluster.build_record(job, "lacking-1")
    cluster.build_record(Job(program=["true"], code="none", resources={"gpus": 0}), "content-1")
