"""Where the environment of a job's supervisor is kept: in its directory, and what looks like a secret in memory."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from petctl.clusters.local.controller import start_environment
from petctl.clusters.local.controller.start_environment import (
    forget_environment,
    keep_environment,
    start_words,
    waiting_note,
)
from petctl.clusters.local.job_directory import JobDirectory
from tests.unit.records import job_record

VALUE = hashlib.sha256(b"another token").hexdigest()[:40]
RECORD = job_record()


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobDirectory:
    found = JobDirectory(tmp_path / "jobs" / "a-1234")
    found.path.mkdir(parents=True)
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setattr(start_environment, "MEMORY", memory)
    monkeypatch.setattr(start_environment, "_is_in_memory", Path.is_dir)
    monkeypatch.setattr(start_environment, "_held", {})
    monkeypatch.setenv("HF_TOKEN", VALUE)
    monkeypatch.setenv("PLAIN", "1")
    return found


def as_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_environment, "_held", {})
    monkeypatch.delenv("HF_TOKEN")


def place() -> Path:
    return start_environment.MEMORY / f"petctl-{os.geteuid()}"


def test_another_process_finds_all_of_it(directory: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_environment(directory)
    as_another_process(monkeypatch)
    assert VALUE not in directory.start.read_text()
    found = start_words(directory)["environment"]
    assert (found["HF_TOKEN"], found["PLAIN"]) == (VALUE, "1")
    forget_environment(directory)
    assert not directory.start.exists() and list(place().iterdir()) == []


def test_without_memory_the_submitting_process_still_has_it(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_environment, "MEMORY", directory.path / "none")
    keep_environment(directory)
    assert start_words(directory)["environment"]["HF_TOKEN"] == VALUE
    assert "cannot be kept in memory" in waiting_note(directory, RECORD)
    as_another_process(monkeypatch)
    found = start_words(directory)["environment"]
    assert "HF_TOKEN" not in found and found["PLAIN"] == "1"


def test_what_the_job_itself_brings_is_not_told(directory: JobDirectory) -> None:
    keep_environment(directory)
    assert "HF_TOKEN" in waiting_note(directory, RECORD)
    for own in (job_record(task={"env": {"HF_TOKEN": "x"}}), job_record(secrets={"HF_TOKEN": "hf"})):
        assert waiting_note(directory, own) == ""


def test_a_place_that_others_may_enter_or_that_is_a_link_is_not_used(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    place().mkdir()
    place().chmod(0o755)
    keep_environment(directory)
    assert list(place().iterdir()) == []
    place().rmdir()
    elsewhere = directory.path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    place().symlink_to(elsewhere)
    keep_environment(directory)
    assert list(elsewhere.iterdir()) == []


def test_what_killed_submitters_left_is_removed(directory: JobDirectory) -> None:
    keep_environment(directory)
    (mine,) = place().iterdir()
    old = mine.with_name(mine.name.replace("a-1234", "gone-1234"))
    new = mine.with_name(mine.name.replace("a-1234", "coming-1234"))
    for path in (old, new):
        path.write_text("{}")
    os.utime(old, (0, 0))
    os.utime(mine, (0, 0))
    keep_environment(directory)
    assert sorted(path.name for path in place().iterdir()) == sorted([mine.name, new.name])
