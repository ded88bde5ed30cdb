"""The rules of the job directory: files are whole, locks die with their holder, an outcome is written once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from petctl.clusters.local.jobdir import (
    JobDirectory,
    is_locked,
    raise_epoch,
    read_json,
    take_lock,
    write_json,
    write_once,
)


def test_an_outcome_is_never_changed(tmp_path: Path) -> None:
    path = tmp_path / "outcome.json"
    assert write_once(path, {"state": "succeeded"})
    assert not write_once(path, {"state": "failed"})
    assert read_json(path) == {"state": "succeeded"}
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
    assert read_json(path) == {"state": "succeeded"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["outcome.json"]


def test_files_are_replaced_whole_and_private_ones_stay_private(tmp_path: Path) -> None:
    path = tmp_path / "secret.json"
    write_json(path, {"a": 1}, mode=0o600, durable=True)
    write_json(path, {"a": 2}, mode=0o600)
    assert read_json(path) == {"a": 2}
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [None, b"", b'{"a":', b"[1]", b"\xff\xfe"])
def test_a_torn_file_is_no_file(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "status.json"
    if content is not None:
        path.write_bytes(content)
    assert read_json(path) is None


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
