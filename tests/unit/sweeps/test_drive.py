"""The driver on a cluster that is played: what is written down before it is done, and what a killed one leaves."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from petctl.clusters.base import AlreadyExists
from petctl.clusters.local.cluster import LocalCluster
from petctl.errors import InternalError, NoRoom, NotFound, PetctlError, UsageError
from petctl.jobs import submit
from petctl.spec import Job, job_to_dict
from petctl.supervision.records import first_status
from petctl.sweeps import drive, looking
from petctl.sweeps.begin import begin
from petctl.sweeps.drive import Driver
from petctl.sweeps.record import Folder, Limits, find

SIZE = {"min": 1, "wanted": 1, "max": 1}


class Killed(BaseException):
    """A driver's sudden end."""


class Cluster(LocalCluster):
    """The local cluster, but for what runs: jobs are rows here, and end when the test says so."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, {"name": "local"})
        self.rows: dict[str, dict[str, Any]] = {}
        self.records: dict[str, Mapping[str, Any]] = {}
        self.ran: list[str] = []
        self.fate = "succeeded"
        self.faults: dict[str, BaseException] = {}

    def ids(self) -> list[str]:
        return list(self.rows)

    def submit(self, plan: Mapping[str, Any]) -> None:
        job_id = plan["id"]
        fault = self.faults.pop(job_id, None)
        if fault is not None and not isinstance(fault, Killed):
            raise fault
        if job_id in self.rows:
            raise AlreadyExists(job_id)
        self.ran.append(job_id)
        self.records[job_id] = plan
        ended = {"state": self.fate, "finished": 2.0, "started": 1.0, "exit_code": int(self.fate != "succeeded")}
        self.rows[job_id] = {**first_status(dict(plan)), **(ended if self.fate else {"state": "running"})}
        if fault is not None:
            raise fault

    def record(self, job_id: str) -> dict[str, Any]:
        if job_id not in self.rows:
            raise NotFound(job_id)
        return dict(self.records[job_id])

    def status(self, job_id: str) -> dict[str, Any]:
        if job_id not in self.rows:
            raise NotFound(job_id)
        if not self.rows[job_id]:
            raise InternalError("its files are damaged")
        return self.rows[job_id]

    def cancel(self, job_id: str, kill: bool) -> str:
        self.rows[job_id] |= {"state": "cancelled", "finished": 3.0}
        return "cancelling"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    played = Cluster(tmp_path / "home")
    for module in ("petctl.sweeps.begin", "petctl.sweeps.looking", "petctl.jobs.api"):
        monkeypatch.setattr(f"{module}.find_cluster", lambda name, home: played)
    monkeypatch.setattr(drive, "QUICK", 0.0)
    monkeypatch.setattr(drive, "SLOWEST", 0.0)
    return played


def made(points: int = 5, name: str = "tune", **limits: Any) -> Folder:
    values = [{"n": str(number)} for number in range(1, points + 1)]
    jobs = [Job(program=["true", point["n"]], code="none") for point in values]
    return begin(values, jobs, Limits(**limits), name).folder


def states(driver: Driver) -> list[str]:
    return [driver.history.state(number) for number in driver.history.points]


def test_every_point_runs_and_has_its_values(cluster: Cluster) -> None:
    driver = Driver(made())
    assert driver.run()
    assert states(driver) == ["succeeded"] * 5
    job = cluster.records["tune-003"]["job"]
    assert job["program"] == ["true", "3"]
    assert job["env"] == {"PARAM_N": "3"}
    assert job["labels"]["sweep"] == "tune"
    assert (job["labels"]["sweep-point"], job["name"]) == ("3", "tune")


@pytest.mark.parametrize("after", [False, True], ids=["before it was accepted", "after"])
def test_a_driver_that_is_killed_while_it_submits(
    cluster: Cluster, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made()
    with monkeypatch.context() as patch, pytest.raises(Killed):
        if after:
            cluster.faults["tune-003"] = Killed()
        else:
            patch.setattr(drive, "submit", partial(_killed_at, "tune-003", submit))
        Driver(folder).run()
    driver = Driver(find("tune"))
    assert driver.run()
    assert cluster.ran == [f"tune-00{number}" for number in range(1, 6)]
    assert states(driver) == ["succeeded"] * 5


def _killed_at(job_id: str, real: Any, *words: Any) -> Any:
    if words[2] == job_id:
        raise Killed
    return real(*words)


def test_failed_points_are_tried_again_under_ids_of_their_own(cluster: Cluster) -> None:
    cluster.fate = "failed"
    driver = Driver(made(2, retries=1))
    assert driver.run()
    assert sorted(cluster.ran) == ["tune-001", "tune-001-2", "tune-002", "tune-002-2"]
    assert states(driver) == ["failed"] * 2
    cluster.fate = "succeeded"
    driver.folder.note("retry", points=[2])
    again = Driver(find("tune"))
    assert again.run()
    assert cluster.ran[-1] == "tune-002-3"
    assert states(again) == ["failed", "succeeded"]


def test_a_refused_point_is_no_reason_to_stop_and_a_full_disk_is(cluster: Cluster) -> None:
    said: list[str] = []
    cluster.faults = {"tune-001": UsageError("too large"), "tune-003": NoRoom("the disk is full")}
    with pytest.raises(PetctlError, match=r"(?s)the disk is full.*petctl sweep resume tune"):
        Driver(made(3), said.append).run()
    assert "tune-001 was refused: too large" in said
    driver = Driver(find("tune"))
    assert driver.run()
    assert states(driver) == ["refused", "succeeded", "succeeded"]


def test_the_job_of_somebody_else_is_left_alone(cluster: Cluster) -> None:
    folder = made(2)
    other = Job(program=["true"], code="none")
    cluster.submit({**cluster.plan(other, "tune-001"), "job": job_to_dict(other)})
    driver = Driver(folder)
    assert driver.run()
    assert states(driver) == ["refused", "succeeded"]
    assert driver.own("tune-001") is None
    with pytest.raises(UsageError, match="there is a job new-001 already"):
        cluster.rows["new-001"] = {}
        made(2, "new")


def test_jobs_that_vanish_or_are_damaged_end(cluster: Cluster) -> None:
    cluster.fate = ""
    folder, leave = made(3, jobs=3), threading.Event()
    driver = Driver(folder)
    assert not driver.run(lambda: leave.set() if len(cluster.ran) == 3 else None, leave)
    del cluster.rows["tune-001"]
    cluster.rows["tune-002"] = {}
    cluster.rows["tune-003"] |= {"state": "succeeded", "finished": 2.0}
    driver = Driver(find("tune"))
    assert driver.run()
    assert states(driver) == ["removed", "lost", "succeeded"]


def test_a_cancel_that_was_cut_off_is_repeated(cluster: Cluster) -> None:
    cluster.fate = ""
    folder, leave = made(3, jobs=2, stop_when=["loss>1"]), threading.Event()
    Driver(folder).run(lambda: leave.set() if len(cluster.ran) == 2 else None, leave)
    folder.note("stop", id="tune-001", why="loss>1")  # and then its driver was killed
    folder.note("cancel")
    driver = Driver(find("tune"))
    assert driver.run()
    assert states(driver) == ["stopped", "cancelled", "cancelled"]
    assert cluster.ran == ["tune-001", "tune-002"]


def test_numbers_of_a_long_run_are_written_down_now_and_then(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.fate = ""
    folder, leave = made(1, metric="loss", take="best"), threading.Event()
    steps = iter(range(1, 1000))

    def status(job_id: str) -> dict[str, Any]:
        step = next(steps)
        loss = 0.25 if step == 50 else 1.0 + step
        progress = {"step": step, "metrics": {"loss": loss}}
        end = {"state": "succeeded", "finished": 2.0} if step == 100 else {"state": "running"}
        return {**cluster.rows[job_id], **end, "started": 1.0, "progress": progress}

    monkeypatch.setattr(cluster, "status", status)
    monkeypatch.setattr(looking, "PAUSE", 3600.0)
    assert Driver(folder).run(leave=leave)
    driver = Driver(find("tune"))
    attempt = driver.history.points[1].attempts[0]
    assert len(attempt.readings) < 5
    assert (attempt.metrics["loss"], attempt.low["loss"]) == (101.0, 0.25)
