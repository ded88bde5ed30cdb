"""The driver on a debug cluster with faults: what is written down before it is done, and what a killed one leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from petctl.cli.sweeps.sweep import command
from petctl.clusters.base import Listed, LogFilter, LogLine
from petctl.clusters.debug.backend import DebugBackend
from petctl.clusters.managed import ManagedCluster
from petctl.clusters.patience import AWAY
from petctl.errors import InternalError, NoRoom, NotFound, PetctlError, UsageError
from petctl.files import take_lock
from petctl.home import petctl_home
from petctl.job.record import JobRecord
from petctl.job.spec import Job
from petctl.job.status import JobStatus, ProgressStatus
from petctl.jobs import JobHandle, submit
from petctl.sweeps import drive, looking
from petctl.sweeps.begin import begin
from petctl.sweeps.drive import Driver
from petctl.sweeps.record import Limits, SweepDirectory, every, find
from tests.integration.waiting import until

DEADLINE = 30.0
RUN = 'until [ -s "$0" ]; do sleep 0.01; done; [ "$(cat "$0")" = succeeded ]'  # $0: the file with the job's fate


class Killed(BaseException):
    """A driver's sudden end."""


class Away(PetctlError):
    """Nobody answers there now."""

    code = AWAY


class Clock:
    """Of those who wait for a cluster that is away."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Cluster(ManagedCluster[DebugBackend]):
    """The debug cluster, with faults: what a cluster does that is away, full, damaged or somebody else's."""

    def __init__(self, home: Path) -> None:
        super().__init__(DebugBackend(home, "debug"))
        self.ran: list[str] = []
        self.faults: dict[str, BaseException] = {}
        self.told: dict[str, dict[str, Any]] = {}  # job -> what its status says beside what is true; empty: damaged
        self.clock = Clock()
        self._fate = home.parent / "fate"
        self.end_as("succeeded")

    def end_as(self, fate: str) -> None:
        """How jobs end from now on; empty: not by themselves."""
        self._fate.write_text(fate)

    def submit(self, record: JobRecord) -> None:
        job_id = record.id
        fault = self.faults.pop(job_id, None)
        if fault is not None and not isinstance(fault, Killed):
            raise fault
        super().submit(record)
        self.ran.append(job_id)
        if fault is not None:
            raise fault

    def status(self, job_id: str) -> JobStatus:
        status, told = super().status(job_id), self.told.get(job_id)
        if told == {}:
            raise InternalError("its files are damaged")
        return replace(status, **(told or {}))

    def statuses(self, wanted: Callable[[str], bool]) -> Iterator[Listed]:
        for job_id in self.ids():
            try:
                yield Listed(job_id, self.status(job_id) if wanted(job_id) else None)
            except InternalError as error:
                yield Listed(job_id, error=error)

    def cancel(self, job_id: str, kill: bool) -> str:
        self.told.pop(job_id, None)
        return super().cancel(job_id, kill)

    def states(self) -> set[str]:
        """Of all its jobs, once they have ended."""
        real = ManagedCluster(DebugBackend(self.home, self.name))
        return {JobHandle(job_id, real).wait(DEADLINE).state for job_id in self.ids()}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    faulty = Cluster(tmp_path / "home")
    monkeypatch.setattr("petctl.clusters.debug.backend.connect", lambda home, settings: faulty)
    monkeypatch.setattr("petctl.clusters.patience.time", faulty.clock)
    monkeypatch.setattr(drive, "QUICK", 0.001)
    monkeypatch.setattr(drive, "SLOWEST", 0.001)
    yield faulty
    for job_id in faulty.ids():
        ManagedCluster.cancel(faulty, job_id, kill=True)
    faulty.states()


def made(points: int = 5, name: str = "tune", **limits: Any) -> SweepDirectory:
    values = [{"n": str(number)} for number in range(1, points + 1)]
    fate = str(petctl_home().parent / "fate")
    jobs = [Job(program=["sh", "-c", RUN, fate, point["n"]], code="none", restarts=0) for point in values]
    return begin(values, jobs, Limits(**limits), name, "debug").folder


def states(driver: Driver) -> list[str]:
    return [driver.history.state(number) for number in driver.history.points]


def test_every_point_runs_and_has_its_values(cluster: Cluster) -> None:
    driver = Driver(made())
    assert driver.run()
    assert states(driver) == ["succeeded"] * 5
    job = cluster.record("tune-003").job
    assert job["program"][-1] == "3"
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
    cluster.end_as("failed")
    driver = Driver(made(2, retries=1))
    assert driver.run()
    assert sorted(cluster.ran) == ["tune-001", "tune-001-2", "tune-002", "tune-002-2"]
    assert states(driver) == ["failed"] * 2
    cluster.end_as("succeeded")
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
    cluster.submit(cluster.build_record(other, "tune-001"))
    driver = Driver(folder)
    assert driver.run()
    assert states(driver) == ["refused", "succeeded"]
    assert driver.own("tune-001") is None
    with pytest.raises(UsageError, match="job new-001 already exists"):
        cluster.submit(cluster.build_record(other, "new-001"))
        made(2, "new")


def test_jobs_that_vanish_or_are_damaged_end(cluster: Cluster) -> None:
    cluster.end_as("")
    folder, leave = made(3, jobs=3), threading.Event()
    driver = Driver(folder)
    assert not driver.run(lambda: leave.set() if len(cluster.ran) == 3 else None, leave)
    JobHandle("tune-001", cluster).remove(force=True)
    cluster.told["tune-002"] = {}
    cluster.end_as("succeeded")
    driver = Driver(find("tune"))
    assert driver.run()
    assert states(driver) == ["removed", "lost", "succeeded"]


def test_a_cancel_that_was_cut_off_is_repeated(cluster: Cluster) -> None:
    cluster.end_as("")
    folder, leave = made(3, jobs=2, stop_when=["loss>1"]), threading.Event()
    Driver(folder).run(lambda: leave.set() if len(cluster.ran) == 2 else None, leave)
    folder.note("stop", id="tune-001", why="loss>1")  # and then its driver was killed
    folder.note("cancel")
    driver = Driver(find("tune"))
    assert driver.run()
    assert states(driver) == ["stopped", "cancelled", "cancelled"]
    assert cluster.ran == ["tune-001", "tune-002"]


def test_a_cancel_that_the_cluster_did_not_hear_is_repeated(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.end_as("")
    folder, leave, heard = made(1), threading.Event(), cluster.cancel
    Driver(folder).run(leave.set, leave)
    folder.note("cancel")
    faults = [Away("nobody answers")]

    def cancel(job_id: str, kill: bool) -> str:
        if faults:
            raise faults.pop()
        return heard(job_id, kill)

    monkeypatch.setattr(cluster, "cancel", cancel)
    driver, looks, enough = Driver(folder), iter(range(10_000)), threading.Event()
    assert driver.run(lambda: None if next(looks, None) is not None else enough.set(), enough)
    assert states(driver) == ["cancelled"]


def test_numbers_of_a_long_run_are_written_down_now_and_then(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.end_as("")
    folder, leave = made(1, metric="loss", take="best"), threading.Event()
    steps, real = iter(range(1, 1000)), cluster.status

    def status(job_id: str) -> JobStatus:
        step = next(steps)
        loss = 0.25 if step == 50 else 1.0 + step
        progress = ProgressStatus(step, metrics={"loss": loss})
        end: dict[str, Any] = {"state": "succeeded", "finished": 2.0} if step == 100 else {"state": "running"}
        return replace(real(job_id), **end, started=1.0, progress=progress)

    monkeypatch.setattr(cluster, "status", status)
    monkeypatch.setattr(looking, "PAUSE", 3600.0)
    assert Driver(folder).run(leave=leave)
    driver = Driver(find("tune"))
    attempt = driver.history.points[1].attempts[0]
    assert len(attempt.readings) < 5
    assert (attempt.metrics["loss"], attempt.low["loss"]) == (101.0, 0.25)


def _then_away(job_id: str, before: Any, real: Any, *words: Any) -> Any:
    """A submission after, or instead of, which the cluster goes away."""
    if words[2] == job_id and before():
        raise Away("nobody answers")
    return real(*words)


def test_a_cluster_that_gives_summaries_is_asked_one_question_and_jobs_only_now_and_then(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.end_as("")
    folder, asked, lists = made(4, metric="loss"), [], []
    whole = cluster.status

    def status(job_id: str) -> JobStatus:
        asked.append(job_id)
        return replace(whole(job_id), started=1.0, progress=ProgressStatus(7, metrics={"loss": 0.5}))

    def statuses(wanted: Callable[[str], bool]) -> Iterator[Listed]:
        lists.append(len(asked))
        if len(lists) == 30:
            cluster.told = {job: {"state": "succeeded", "finished": 2.0, "exit_code": 0} for job in cluster.ids()}
        for job_id in cluster.ids():
            yield Listed(job_id, replace(whole(job_id), summary=True) if wanted(job_id) else None)

    monkeypatch.setattr(cluster, "status", status)
    monkeypatch.setattr(cluster, "statuses", statuses)
    driver = Driver(folder)
    assert driver.run()
    assert states(driver) == ["succeeded"] * 4
    assert [point.attempts[0].metrics for point in driver.history.points.values()] == [{"loss": 0.5, "step": 7.0}] * 4
    assert len(lists) == 30
    # Each job was asked when it was first seen at work, at most once a second since, and when it had ended.
    assert len(asked) < 4 * 10, asked
    assert sorted(asked[-4:]) == sorted(cluster.ids())


def test_jobs_that_no_process_goes_on_with_are_attended_to_by_who_drives(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.end_as("")
    folder, attended = made(2), []

    def attend(job_id: str) -> float:
        attended.append(job_id)
        cluster.told[job_id] = {"state": "lost", "finished": 2.0, "exit_code": 70}
        return 1.0

    monkeypatch.setattr(cluster, "attend", attend)
    driver, leave = Driver(folder), threading.Event()
    driver.run(leave.set, leave)
    cluster.told["tune-001"] = {"state": "lost", "finished": 1.0, "unattended": True}
    cluster.end_as("succeeded")
    Driver(folder).peek()  # whoever only wants to know does nothing
    assert attended == []
    driver = Driver(folder)
    assert driver.run()
    assert (attended, states(driver)) == (["tune-001"], ["lost", "succeeded"])


def test_what_a_cluster_left_half_made_as_it_went_away_is_removed_and_made_anew(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = {"state": "queued", "finished": None, "cut_short": True}

    def leave_half() -> bool:
        ManagedCluster.submit(cluster, cluster.build_record(Job(program=["sleep", "60"], code="none"), "tune-002"))
        cluster.told["tune-002"] = half
        return True

    monkeypatch.setattr(drive, "submit", partial(_then_away, "tune-002", leave_half, submit))
    driver = Driver(made(3))
    assert driver.run()
    assert cluster.ran == ["tune-001", "tune-002-2", "tune-003"]
    assert states(driver) == ["succeeded"] * 3


def test_a_job_that_waits_in_somebodys_queue_was_not_cut_short(cluster: Cluster) -> None:
    """Its submitter was killed before it could write down that the cluster has it."""
    cluster.end_as("")
    folder = made(1)
    cluster.faults["tune-001"] = Killed()
    with pytest.raises(Killed):
        Driver(folder).run()
    cluster.told["tune-001"] = {"state": "queued", "sentence": "queued: its Job is suspended"}
    driver, leave = Driver(folder), threading.Event()
    assert not driver.run(leave.set, leave)
    assert (states(driver), cluster.ran, cluster.ids()) == (["queued"], ["tune-001"], ["tune-001"])
    del cluster.told["tune-001"]
    cluster.end_as("succeeded")
    assert Driver(folder).run()
    assert cluster.ran == ["tune-001"]


def test_a_driver_without_a_terminal_waits_longer_for_its_cluster(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(2)
    away = partial(_then_away, "tune-002", lambda: cluster.clock.now < 600.0, submit)
    monkeypatch.setattr(drive, "submit", away)
    with pytest.raises(PetctlError, match=r"(?s)nobody answers.*petctl sweep resume tune"):
        Driver(folder).run()
    cluster.clock.now = 0.0
    driver = Driver(folder)
    assert driver.run(lock=take_lock(folder.path / "lock"))
    assert states(driver) == ["succeeded"] * 2


def test_a_cancelled_sweep_leaves_no_job_that_was_accepted_as_the_cluster_went_away(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.end_as("")
    folder = made(3)

    def accept() -> bool:
        submit(folder.sweep().job_of(2), "debug", "tune-002")
        folder.note("cancel")
        return True

    monkeypatch.setattr(drive, "submit", partial(_then_away, "tune-002", accept, submit))
    driver = Driver(folder)
    assert driver.run()
    assert cluster.states() == {"cancelled"}
    assert len(cluster.ids()) == 2


def test_a_point_that_was_never_submitted_is_no_ended_one(cluster: Cluster) -> None:
    folder = made(2)
    folder.note("submit", id="tune-001", point=1)  # and then its driver was killed
    folder.note("cancel")
    driver = Driver(folder)
    assert driver.run()
    assert (states(driver), cluster.ran) == (["cancelled"] * 2, [])
    folder.note("resume")
    driver = Driver(folder)
    assert driver.run()
    assert states(driver) == ["succeeded"] * 2


def test_what_was_printed_is_waited_for_while_the_cluster_is_away(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = [Away("nobody answers"), [LogLine(1, 0, "out", b"loss 0.5\n")], NotFound("gone")]

    def logs(job_id: str, wanted: LogFilter, follow: bool) -> Any:
        answer = answers.pop(0) if wanted.tail is None else []  # of a job that still runs only the end is searched
        if isinstance(answer, Exception):
            raise answer
        return iter(answer)

    monkeypatch.setattr(cluster, "logs", logs)
    driver = Driver(made(2, jobs=1, regex=r"loss (\S+)"))
    assert driver.run()
    assert [driver.history.points[number].attempts[0].metrics for number in (1, 2)] == [{"metric": 0.5}, {}]


def test_of_many_points_fewer_numbers_are_kept(cluster: Cluster) -> None:
    few, many = (looking.JobPoller("debug", Limits(), "loss", points) for points in (100, 10_000))
    assert (few._share, few._most_readings) == (looking.SHARE, looking.MOST_READINGS)
    assert many._share == 20 * looking.SHARE and many._most_readings == looking.MOST_READINGS // 20


def test_a_driver_without_a_terminal_imports_nothing_of_the_users(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("petctl.sweeps.drive.subprocess.Popen", lambda words, **more: started.append(words))
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    folder = made(1)
    drive.drive_detached(folder)
    assert started[0][1:4] == ["-P", "-m", "petctl.sweeps"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").rmdir()
    with pytest.raises(UsageError, match="cannot continue from elsewhere"):
        drive.drive_detached(folder)


def told(*words: str) -> Any:
    return command.main(list(words), standalone_mode=False)


def test_a_sweep_whose_directory_is_gone_can_be_cancelled(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.end_as("")
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    folder, leave = made(2, jobs=1), threading.Event()
    Driver(folder).run(leave.set, leave)
    until(lambda: cluster.status("tune-001").state == "running", "the first job at work in that directory")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").rmdir()
    # A process that this one has just started holds a copy of the driver's lock until it runs its own program.
    until(lambda: not folder.driven(), "that no process holds the sweep's lock")
    told("cancel", "tune")
    assert cluster.states() == {"cancelled"}
    assert states(Driver(folder)) == ["cancelled"] * 2


def test_a_damaged_sweep_and_one_whose_cluster_is_gone_can_be_forgotten(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.end_as("")
    folder, leave = made(1), threading.Event()
    Driver(folder).run(leave.set, leave)
    monkeypatch.setattr(cluster, "status", partial(_killed_at, "", None))
    until(lambda: not folder.driven(), "that no process holds the sweep's lock")
    told("rm", "--keep-jobs", "tune")
    (made(1, "other").path / "sweep.json").write_text("{")
    with pytest.raises(InternalError, match="petctl sweep rm --keep-jobs other"):
        told("rm", "other")
    told("rm", "--keep-jobs", "other")
    assert every() == []


def test_a_sweep_that_has_what_it_wanted_is_not_tried_again(cluster: Cluster) -> None:
    cluster.end_as("failed")
    folder = made(1)
    assert Driver(folder).run()
    folder.note("reached", why="point 1 has reached acc>1")
    with pytest.raises(UsageError, match=r"has reached its goal: point 1 .*--until"):
        told("retry", "tune")


def test_a_sweep_that_somebody_drives_does_not_go_on_here(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("run", "-c", "debug", "--name", "two", "-p", "n=1,2", "--no-upload", "true")
    told(*words)
    with find("two").driving(), pytest.raises(PetctlError, match="another petctl"):
        told(*words)
    assert "continuing sweep" not in capsys.readouterr().err
    told(*words)
    assert "continuing sweep" in capsys.readouterr().err
    assert cluster.ran == ["two-001", "two-002"]


def test_a_picture_is_utf_8_wherever_it_is_drawn(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("petctl.sweeps.plot.draw", lambda driver: "\N{HORIZONTAL ELLIPSIS}")
    written: dict[str, Any] = {}
    monkeypatch.setattr(Path, "write_text", lambda path, text, **more: written.update(more))
    made(1)
    told("plot", "tune")
    assert written == {"encoding": "utf-8"}


def test_a_picture_for_a_terminal_goes_into_no_file(cluster: Cluster, tmp_path: Path) -> None:
    made(1)
    for words in (["-f", "tune.svg"], ["-o", "json"]):
        with pytest.raises(UsageError, match="leave -f and -o json out"):
            told("plot", "--text", *words, "tune")
    assert not list(tmp_path.glob("*.svg"))
