"""The registry is a cache: whatever happens to its file, nothing but speed is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from petctl.errors import InternalError
from petctl.jobs.registry import Registry
from petctl.jobs.status import SizeStatus, Status, damaged_status


def status(job_id: str, state: str = "succeeded") -> Status:
    size = SizeStatus(min=1, wanted=1, max=1)
    return Status(
        id=job_id, name=job_id, cluster="local", state=state, since=1.0, sentence="", size=size, submitted=1.0
    )


def test_ended_jobs_are_remembered(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    lost = replace(status("d", "lost"), unattended=True)  # its last word is yet to be written
    registry.keep([status("a"), status("b"), status("c", "running"), lost])
    assert registry.ended("local") == {"a": status("a"), "b": status("b")}
    assert registry.ended("other") == {}
    registry.forget("local", ["a"])
    assert set(registry.ended("local")) == {"b"}


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"\xff" * 200])
def test_a_broken_file_is_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "registry.db").write_bytes(content)
    registry = Registry(tmp_path)
    assert registry.ended("local") == {}
    registry.keep([status("a")])
    assert set(registry.ended("local")) == {"a"}


def test_a_place_that_cannot_be_written_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    registry = Registry(tmp_path / "file")
    registry.keep([status("a")])
    assert registry.ended("local") == {}


def test_a_status_survives_its_journey() -> None:
    before = status("a")
    assert Status.from_dict(before.pack()) == before
    assert Status.from_dict({**before.pack(), "of a newer version": 1}) == before
    assert msgspec.json.decode(msgspec.json.encode(before), type=Status) == before


def test_a_damaged_status_says_whose_it_is() -> None:
    with pytest.raises(InternalError, match="status of a is damaged"):
        Status.from_dict({**status("a").pack(), "nodes": None})
    assert damaged_status("a", "local", "torn").final
