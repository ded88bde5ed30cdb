"""The rules of the job directory: files are whole, locks die with their holder, an outcome is written once."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from petctl.clusters.local.job_directory import JobDirectory, raise_epoch, write_json, write_once, write_text
from petctl.errors import InternalError, NoRoom
from petctl.files import is_locked, read_json_or_none, take_lock


def test_an_outcome_is_never_changed(tmp_path: Path) -> None:
    path = tmp_path / "outcome.json"
    assert write_once(path, {"state": "succeeded"})
    assert not write_once(path, {"state": "failed"})
    assert read_json_or_none(path) == {"state": "succeeded"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["outcome.json"]


def test_a_file_system_without_links_keeps_the_first_outcome_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*paths: object) -> None:
        raise PermissionError(1, "no hard links here")

    monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "outcome.json"
    assert write_once(path, {"state": "succeeded"})
    assert not write_once(path, {"state": "failed"})
    assert read_json_or_none(path) == {"state": "succeeded"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["outcome.json"]


def test_files_are_replaced_whole_and_private_ones_stay_private(tmp_path: Path) -> None:
    path = tmp_path / "secret.json"
    write_json(path, {"a": 1}, mode=0o600, durable=True)
    write_json(path, {"a": 2}, mode=0o600)
    assert read_json_or_none(path) == {"a": 2}
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [None, b"", b'{"a":', b"[1]", b"\xff\xfe"])
def test_a_torn_file_is_no_file(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "status.json"
    if content is not None:
        path.write_bytes(content)
    assert read_json_or_none(path) is None


def test_epochs_only_grow(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    assert [raise_epoch(directory) for _ in range(3)] == [1, 2, 3]


def test_a_lock_is_seen_from_outside_and_dies_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert is_locked(path)
        assert take_lock(path) is None
        holder.kill()
        holder.wait()
        assert not is_locked(path)
    lock = take_lock(path)
    assert lock is not None
    assert is_locked(path)
    os.close(lock)


def test_a_job_is_alive_while_anybody_holds_a_lock_of_it(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    assert not directory.alive()
    (tmp_path / "nodes" / "0").mkdir(parents=True)
    for path in (directory.supervisor_lock, directory.revive_lock, directory.node("0") / "lock"):
        lock = take_lock(path)
        assert lock is not None
        assert directory.alive()
        os.close(lock)
        assert not directory.alive()


def test_nodes_are_listed_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("10", "9", "0"):
        (tmp_path / "nodes" / name).mkdir(parents=True)
    assert JobDirectory(tmp_path).node_names() == ["0", "9", "10"]


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobDirectory:
    """A job on a disk where no new file can be written any more."""
    directory = JobDirectory(tmp_path)
    directory.reserve()

    def no_room(descriptor: int, *words: Any, **options: Any) -> Any:
        os.write(descriptor, b"to")  # a part of it may get through
        os.close(descriptor)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdopen", no_room)
    return directory


def test_an_outcome_is_written_to_a_full_disk_too(full: JobDirectory) -> None:
    assert write_once(full.outcome, {"state": "failed"})
    assert not write_once(full.outcome, {"state": "succeeded"})
    assert full.outcome.read_text() == '{"state": "failed"}\n'


def test_what_has_a_reserve_is_written_to_a_full_disk_again_and_again(full: JobDirectory) -> None:
    assert [raise_epoch(full) for _ in range(12)] == list(range(1, 13))
    for pid in (70000, 7, 70000):  # a shorter text leaves nothing of the longer one
        write_json(full.coordinator, {"pid": pid}, reserved=True)
        assert read_json_or_none(full.coordinator) == {"pid": pid}


def test_what_has_no_room_is_an_error_and_leaves_no_torn_file(full: JobDirectory) -> None:
    with pytest.raises(NoRoom, match=r"status\.json: no space left"):
        write_json(full.status, {"state": "running"})  # only the last one has a reserve
    with pytest.raises(NoRoom, match="wanted: no space left"):
        write_text(full.wanted, "3\n", reserved=True)
    with pytest.raises(NoRoom):
        write_json(full.status, {"state": "x" * (300 << 10)}, reserved=True)  # more than was set aside
    assert read_json_or_none(full.status) is None
    full.give_back()
    assert list(full.path.iterdir()) == []


def test_drafts_of_killed_writers_go_with_the_reserves(full: JobDirectory) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left, written = full.path / f".status.json.{gone.pid}", full.path / f".cancel.json.{threading.get_native_id()}"
    left.touch()
    written.touch()
    full.give_back()
    assert list(full.path.iterdir()) == [written]


def test_the_last_status_is_written_to_a_full_disk(full: JobDirectory) -> None:
    write_json(full.status, {"state": "failed", "nodes": ["x" * 1000] * 200}, reserved=True)
    assert (read_json_or_none(full.status) or {})["state"] == "failed"


def test_other_trouble_with_the_disk_is_told_as_it_is(tmp_path: Path) -> None:
    JobDirectory(tmp_path).reserve()
    with pytest.raises(FileNotFoundError):
        write_json(tmp_path / "gone" / "epoch", 1, reserved=True)


@pytest.mark.parametrize("content", ["", "x\n", None])
def test_an_epoch_that_cannot_be_read_is_an_error(tmp_path: Path, content: str | None) -> None:
    directory = JobDirectory(tmp_path / "job")
    directory.path.mkdir()
    directory.coordinator.write_text("{}")
    if content is not None:
        directory.epoch.write_text(content)
    with pytest.raises(InternalError, match="which supervisor of job is the newest"):
        raise_epoch(directory)
