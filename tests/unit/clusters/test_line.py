"""The line over job directories: who is started by whom, what a status says of a job that waits, and that no kill
between two steps loses a job or starts it twice."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from petctl.clusters.base import AlreadyExists
from petctl.clusters.local.backend import connect
from petctl.clusters.local.controller.spawn import LOCK_OPTION, start_supervisor, take_over
from petctl.clusters.local.controller.start_environment import keep_environment
from petctl.clusters.local.finalize import finalize
from petctl.clusters.local.job_directory import JobDirectory, write_json
from petctl.clusters.local.job_status import newest_status
from petctl.clusters.local.queue import queue as line_module
from petctl.clusters.local.queue.queue import Queue, View, queue_of
from petctl.clusters.local.queue.queue_claims import claim_of, slots_of
from petctl.clusters.local.queue.scheduler import MOST_LIVES, UNBORN_WITHIN, Claim
from petctl.clusters.local.queue.slots import Slots
from petctl.clusters.local.record import LocalRequest, read_record, write_record
from petctl.errors import NotFound, PetctlError, UsageError
from petctl.files import take_lock
from petctl.job.fields import encode
from petctl.job.record import JobRecord
from petctl.job.spec import Job
from petctl.job.status import JobStatus
from tests.unit.records import job_record


class Scene:
    """A home whose supervisors are only noted down; `hold` makes one that lives."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.jobs = home, home / "jobs"
        self.started: list[str] = []
        self.locks: dict[str, int] = {}
        self.cluster = connect(home, {"slots": 2})
        monkeypatch.setattr(line_module, "start_supervisor", self._start)

    def _start(self, directory: JobDirectory) -> bool:
        self.started.append(directory.id)
        return True

    def submit(self, job_id: str, **fields: Any) -> JobDirectory:
        self.cluster.submit(self.cluster.build_record(Job(shell="true", code="none", **fields), job_id))
        return JobDirectory(self.jobs / job_id)

    def hold(self, job_id: str, begun: bool = True, node: bool = True) -> None:
        """The job's supervisor lives, and has begun: its coordinator listens, its first node was started."""
        directory = JobDirectory(self.jobs / job_id)
        lock = take_lock(directory.supervisor_lock)
        assert lock is not None
        self.locks[job_id] = lock
        if begun:
            write_json(directory.coordinator, {"address": "127.0.0.1:1", "boot": ""})
        if begun and node:
            directory.nodes.mkdir(exist_ok=True)

    def kill(self, job_id: str) -> None:
        os.close(self.locks.pop(job_id))

    def end(self, job_id: str) -> None:
        """The job's supervisor ends as it should."""
        write_json(JobDirectory(self.jobs / job_id).outcome, {"state": "succeeded", "code": 0, "sentence": "done"})
        line = Queue(self.home, "local")
        line.start(line.leave(job_id))
        self.kill(job_id)

    def granted(self) -> dict[str, int]:
        return {claim.job: claim.granted for claim in slots_of(self.home, "local").claims()}

    def status(self, job_id: str) -> JobStatus:
        """What another process sees that asks now."""
        queue_of.cache_clear()
        return newest_status(JobDirectory(self.jobs / job_id))

    def attend(self, job_id: str) -> list[str]:
        """Whom another process starts that waits for a job."""
        queue_of.cache_clear()
        self.started.clear()
        self.cluster.attend(job_id)
        return list(self.started)

    def later(self) -> None:
        """Whoever was called was called long ago."""
        with slots_of(self.home, "local").transaction() as database:
            database.execute("UPDATE claims SET called = called - 100")

    def look(self) -> list[str]:
        """Whom another process starts that looks now."""
        self.started.clear()
        Queue(self.home, "local").look()
        return list(self.started)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PETCTL_NODE_KEY", raising=False)
    queue_of.cache_clear()
    scene = Scene(tmp_path / "home", monkeypatch)
    yield scene
    for lock in scene.locks.values():
        os.close(lock)


def test_those_that_fit_and_the_head_are_started_and_nobody_else(scene: Scene) -> None:
    for number in range(6):
        scene.submit(f"j{number}")
        if scene.started[-1:] == [f"j{number}"]:
            scene.hold(f"j{number}", begun=number < 2)
    assert scene.started == ["j0", "j1", "j2"]
    assert scene.granted() == {"j0": 1, "j1": 1, "j2": 0, "j3": 0, "j4": 0, "j5": 0}
    assert scene.look() == []


def test_an_end_starts_the_next_head_and_grants_the_old_one(scene: Scene) -> None:
    for number in range(4):
        scene.submit(f"j{number}")
        if number < 3:
            scene.hold(f"j{number}", begun=number < 2)
    scene.started.clear()
    scene.end("j0")
    assert scene.started == ["j3"]
    assert scene.granted() == {"j1": 1, "j2": 1, "j3": 0}


def test_a_status_says_where_a_job_stands(scene: Scene) -> None:
    for number in range(5):
        directory = scene.submit(f"j{number}")
        if number < 3:
            scene.hold(f"j{number}", begun=number < 2)
    status = newest_status(directory)
    assert (status.state, status.sentence) == ("queued", "queued: 2 jobs ahead, needs 1 of 2 node slots, 0 free")
    assert newest_status(JobDirectory(scene.jobs / "j2")).sentence.startswith("queued: 0 jobs ahead")
    assert status.finished is None


def test_a_job_with_slots_whose_supervisor_comes_up_is_pending(scene: Scene) -> None:
    assert newest_status(scene.submit("a")).state == "pending"


def test_a_queued_job_is_never_lost_however_old(scene: Scene) -> None:
    directory = scene.submit("a", nodes=2)
    scene.hold("a")
    old = scene.submit("b", nodes=2)
    record = json.loads(old.job.read_text())
    write_json(old.job, {**record, "submitted": time.time() - 1e6})
    assert scene.status("b").state == "queued"
    scene.end("a")
    scene.later()
    scene.started.clear()
    status = scene.status("b")
    assert (status.state, status.unattended) == ("pending", True)
    assert status.sentence.endswith("; the queue has stopped, petctl wait b starts it again")
    assert scene.started == []
    assert scene.attend("b") == ["b"]
    assert not scene.status("b").unattended
    assert directory.outcome.exists()


def test_a_submitter_killed_before_it_could_start_anybody(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(line: Queue, slots: Slots) -> View:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Queue, "look", killed)
        with pytest.raises(KeyboardInterrupt):
            scene.submit("a")
    assert scene.started == []
    assert scene.look() == ["a"]


def test_submitting_again_what_was_accepted_starts_it_too(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Queue, "look", lambda line, slots: None)
        scene.submit("a")
    with pytest.raises(AlreadyExists):
        scene.submit("a")
    assert scene.started == ["a"]


def _cannot(path: Path, target: Path) -> None:
    raise OSError("cannot")


def test_a_submitter_killed_before_the_job_was_there(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", _cannot)
        with pytest.raises(OSError, match="cannot"):
            scene.submit("a", nodes=2)
    assert scene.granted() == {"a": 0}
    directory = scene.submit("b", nodes=2)  # is not held up by it, and does not count it
    assert scene.started == ["b"]
    scene.hold("b")
    assert newest_status(scene.submit("c")).sentence.startswith("queued: 0 jobs ahead")
    with slots_of(scene.home, "local").transaction() as database:
        database.execute("UPDATE claims SET entered = entered - ?", (UNBORN_WITHIN,))
    scene.look()
    assert scene.granted() == {"b": 2, "c": 0}
    assert directory.job.exists()


def test_a_supervisor_killed_between_giving_back_and_starting_the_next(scene: Scene) -> None:
    scene.submit("a", nodes=2)
    scene.hold("a")
    scene.submit("b", nodes=2)
    write_json(JobDirectory(scene.jobs / "a").outcome, {"state": "succeeded", "code": 0, "sentence": "done"})
    scene.later()
    assert Queue(scene.home, "local").leave("a") == ["b"]  # and nobody starts it
    scene.kill("a")
    scene.later()
    assert scene.look() == ["b"]


def test_a_supervisor_killed_before_it_gave_back(scene: Scene) -> None:
    scene.submit("a", nodes=2)
    scene.hold("a")
    scene.submit("b", nodes=2)
    write_json(JobDirectory(scene.jobs / "a").outcome, {"state": "succeeded", "code": 0, "sentence": "done"})
    scene.kill("a")
    scene.later()
    assert scene.look() == ["b"]
    assert scene.granted() == {"b": 2}


def test_a_head_whose_supervisor_was_killed_gets_another(scene: Scene) -> None:
    scene.submit("a", nodes=2)
    scene.hold("a")
    scene.submit("b")
    scene.hold("b", begun=False)
    scene.submit("c")
    assert scene.look() == []
    scene.kill("b")
    scene.later()
    assert scene.look() == ["b"]


def test_a_supervisor_that_ends_at_once_each_time_is_given_up(scene: Scene) -> None:
    directory = scene.submit("a")
    assert scene.started == ["a"]
    for _ in range(MOST_LIVES - 1):
        scene.later()
        assert scene.look() == ["a"]  # and ends, without ever having held the lock
    scene.later()
    scene.status("a")
    assert scene.granted() == {"a": 1}
    assert scene.look() == []
    status = newest_status(directory)
    assert status.state == "lost"
    assert "supervisor.log" in status.sentence
    assert scene.granted() == {}


def test_a_supervisor_killed_before_its_first_node_loses_nothing(scene: Scene) -> None:
    directory = scene.submit("a", nodes=2)
    scene.hold("a", node=False)
    scene.submit("b")
    scene.hold("b", begun=False)
    assert scene.look() == []
    scene.kill("a")
    scene.later()
    assert scene.look() == ["a"]
    assert scene.granted() == {"a": 2, "b": 0}
    assert scene.status("a").state == "pending"
    for path in (scene.home / "clusters" / "local").iterdir():
        path.unlink()
    assert scene.look() == ["a"]  # also with a slots' file that knows nothing
    assert scene.granted() == {"a": 2, "b": 0}
    assert scene.cluster.scale("a", 2) == "will start with 2 nodes"
    assert scene.cluster.cancel("a", kill=False) == "cancelled"
    assert newest_status(directory).state == "cancelled"


def test_one_killed_after_that_has_lost_its_job(scene: Scene) -> None:
    directory = scene.submit("a")
    scene.hold("a")
    scene.kill("a")
    scene.later()
    assert scene.look() == []
    status = newest_status(directory)
    assert (status.state, status.unattended) == ("lost", True)
    assert status.sentence.endswith("; petctl cancel a ends what is left of it")
    assert not directory.outcome.exists() and not directory.status.exists()
    scene.attend("a")
    status = newest_status(directory)
    assert (status.state, status.unattended) == ("lost", False)
    assert json.loads(directory.outcome.read_text())["state"] == "lost"


def test_a_look_finishes_a_lost_job_whose_slots_it_takes(scene: Scene) -> None:
    directory = scene.submit("a", nodes=2)
    scene.hold("a")
    scene.submit("b", nodes=2)
    scene.kill("a")
    scene.later()
    scene.look()
    assert not directory.outcome.exists()  # it may be about to be revived
    with slots_of(scene.home, "local").transaction() as database:
        database.execute("UPDATE claims SET doubted = doubted - 100 WHERE doubted > 0")
    scene.later()
    assert scene.look() == ["b"]
    assert json.loads(directory.outcome.read_text())["state"] == "lost"
    assert json.loads(directory.status.read_text())["state"] == "lost"
    assert scene.granted() == {"b": 2}


def test_files_that_cannot_be_removed_are_named(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.submit("a")
    scene.cluster.cancel("a", kill=False)

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path / "outputs" / "of-root"))

    monkeypatch.setattr("shutil.rmtree", refuse)
    with pytest.raises(PetctlError, match=r"not all of its files: .*outputs/of-root: Permission denied"):
        scene.cluster.remove("a")
    assert scene.cluster.ids() == []


def test_of_two_who_remove_a_job_one_is_told(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = scene.submit("a")
    scene.cluster.cancel("a", kill=False)
    status = newest_status(directory)

    def removed_meanwhile(directory: JobDirectory) -> JobStatus:
        directory.path.rename(scene.jobs / ".new-of-another")
        return status

    monkeypatch.setattr("petctl.clusters.local.backend.newest_status", removed_meanwhile)
    with pytest.raises(NotFound, match="just removed by another process"):
        scene.cluster.remove("a")
    with pytest.raises(NotFound, match="another process removed it"):
        newest_status(directory)


@pytest.mark.parametrize("text", ["[]", "{", '"x"'])
def test_damaged_secrets_are_named(scene: Scene, text: str) -> None:
    scene.home.mkdir()
    (scene.home / "secrets.json").write_text(text)
    with pytest.raises(UsageError, match=r"secrets\.json is damaged"):
        scene.cluster.list_secrets()


def test_the_file_removed_by_hand_is_made_anew_from_the_directories(scene: Scene) -> None:
    scene.submit("ended")
    scene.hold("ended")
    scene.end("ended")
    for name in ("a", "b", "c"):
        scene.submit(name)
        time.sleep(0.002)  # so that they differ in when they were submitted
        if name != "c":
            scene.hold(name)
    for path in (scene.home / "clusters" / "local").iterdir():
        path.unlink()
    assert scene.look() == ["c"]
    assert scene.granted() == {"a": 1, "b": 1, "c": 0}


def test_a_claim_that_is_gone_is_entered_by_whoever_waits_for_the_job(scene: Scene) -> None:
    scene.submit("a", nodes=2)
    scene.hold("a")
    scene.submit("b", nodes=2)
    slots_of(scene.home, "local").release("b")
    assert scene.status("b").sentence == "queued: 0 jobs ahead, needs 2 of 2 node slots, 0 free"
    assert scene.granted() == {"a": 2}
    scene.attend("b")
    assert scene.granted() == {"a": 2, "b": 0}


def test_a_queued_job_is_cancelled_at_once(scene: Scene) -> None:
    scene.submit("a", nodes=2)
    scene.hold("a")
    directory = scene.submit("b")
    assert scene.cluster.cancel("b", kill=False) == "cancelled"
    status = newest_status(directory)
    assert (status.state, status.exit_code) == ("cancelled", 130)
    assert status.sentence == "cancelled while it was queued"
    assert scene.granted() == {"a": 2}
    assert not directory.start.exists()
    assert scene.cluster.cancel("b", kill=False) == "has ended already"


def test_the_supervisor_of_a_cancelled_head_is_left_to_see_to_it(scene: Scene) -> None:
    scene.submit("a", nodes=2)
    scene.hold("a")
    directory = scene.submit("b")
    scene.hold("b", begun=False)
    assert scene.cluster.cancel("b", kill=False) == "cancelling"
    assert directory.cancel.exists()
    assert not directory.outcome.exists()


def test_cancelling_the_head_starts_the_next(scene: Scene) -> None:
    scene.submit("a")
    scene.hold("a")
    scene.submit("b", nodes=2)
    scene.submit("c")
    scene.started.clear()
    scene.cluster.cancel("b", kill=False)
    assert scene.started == ["c"]


def test_a_queued_job_is_scaled(scene: Scene) -> None:
    scene.submit("a", nodes=2)
    scene.hold("a")
    directory = scene.submit("b", nodes="1:1:2")
    assert scene.cluster.scale("b", 2) == "will start with 2 nodes"
    assert newest_status(directory).size.wanted == 2
    scene.end("a")
    assert scene.granted() == {"b": 2}


def test_inside_a_worker_nobody_is_started(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is started there ends with the worker's node; the supervisor of its job looks a moment later."""
    scene.submit("a")
    scene.hold("a")
    scene.started.clear()
    monkeypatch.setenv("PETCTL_NODE_KEY", "a/0/x")
    directory = scene.submit("b")
    assert newest_status(directory).state == "queued"
    assert scene.started == []
    monkeypatch.setenv("PETCTL_NODE_KEY", "elsewhere/0/x")
    assert scene.look() == ["b"]


def test_a_list_of_many_looks_at_the_line_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        scene.submit(f"j{number}")
    line = queue_of(scene.home, "local")
    looks = []
    real = Slots.peek

    def counted(slots: Slots) -> list[Claim]:
        looks.append(1)
        return real(slots)

    monkeypatch.setattr(Slots, "peek", counted)
    monkeypatch.setattr(line_module, "RECENT", 60.0)
    assert [listed.status.state for listed in scene.cluster.statuses(lambda job: True) if listed.status] == [
        "pending" if line.peek(listed.id).turn(listed.id) == (1, True) else "queued"
        for listed in scene.cluster.statuses(lambda job: False)
    ]
    assert len(looks) == 1


def test_who_is_first_is_told_without_the_claims_of_killed_submitters(scene: Scene) -> None:
    scene.submit("a", nodes=2)
    for name in ("b", "c"):
        scene.submit(name)
    unborn = claim_of(JobDirectory(scene.jobs / "x"), _record(scene, "b"))
    slots_of(scene.home, "local").enter(unborn._replace(priority=9))
    view = Queue(scene.home, "local").look()
    assert view.turn("a") == (2, True)
    assert view.turn("b") == (0, True)
    assert view.turn("c") == (0, False)
    assert view.turn("nobody") is None


def _record(scene: Scene, job_id: str) -> JobRecord:
    return read_record(JobDirectory(scene.jobs / job_id))


def test_a_buried_job_leaves_the_line(scene: Scene) -> None:
    directory = scene.submit("a")
    assert finalize(directory, "gone") is not None
    assert scene.granted() == {}


# -- starting ----------------------------------------------------------------------------------------------------------


def test_a_supervisor_is_started_in_its_submitter_s_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = JobDirectory(tmp_path / "home" / "jobs" / "a")
    directory.path.mkdir(parents=True)
    monkeypatch.setenv("FROM_THE_SUBMITTER", "yes")
    keep_environment(directory)
    assert directory.start.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("FROM_THE_SUBMITTER", "no")
    monkeypatch.setenv("OF_ANOTHER", "1")
    out = tmp_path / "out"
    script = 'echo "$FROM_THE_SUBMITTER${OF_ANOTHER-}" > "$1.new"; mv "$1.new" "$1"; exec sleep 60'
    request = encode(LocalRequest(["/bin/sh", "-c", script, "sh", str(out)], slots=1))
    write_record(directory, job_record("a", request=request))
    write_json(directory.coordinator, {"address": "127.0.0.1:1"})  # of one that was killed before its first node
    assert start_supervisor(directory)
    assert not directory.coordinator.exists()
    try:
        deadline = time.monotonic() + 30
        while not out.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert out.read_text() == "yes\n"
        assert directory.supervised()  # from its birth on
        assert not start_supervisor(directory)
    finally:
        for pid in _holders(directory.supervisor_lock):
            os.kill(pid, 9)


def _holders(lock: Path) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if path.resolve() == lock.resolve() and int(path.parts[2]) != os.getpid():
                found.append(int(path.parts[2]))
        except OSError:
            continue
    return found


def test_a_handed_lock_becomes_the_supervisor_s_own(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    handed = take_lock(path)
    assert handed is not None
    shared = os.dup(handed)  # as a process has it that was forked in that moment
    own = take_over(handed, path)
    assert own is not None
    os.close(own)
    again = take_lock(path)
    assert again is not None
    os.close(again)
    os.close(shared)


def test_a_second_supervisor_gets_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = take_over(None, path)
    assert first is not None
    assert take_over(None, path) is None
    fcntl.flock(first, fcntl.LOCK_UN)
    os.close(first)
    assert LOCK_OPTION.startswith("--")
