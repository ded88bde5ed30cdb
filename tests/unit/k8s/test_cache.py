"""What is made once is complete or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.k8s.cluster import cache


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETCTL_DEV_CACHE", str(tmp_path))


def test_a_thing_is_made_once() -> None:
    calls = []

    def make(directory: Path) -> None:
        calls.append(directory)
        (directory / "file").write_text("content")

    first = cache.made("thing", "making a thing", make)
    assert cache.made("thing", "making a thing", make) == first
    assert (first / "file").read_text() == "content"
    assert len(calls) == 1


def test_what_fails_half_way_leaves_nothing_that_looks_complete() -> None:
    def fail(directory: Path) -> None:
        (directory / "file").write_text("half")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        cache.made("thing", "making a thing", fail)
    assert [path.name for path in cache.home().iterdir()] == [".thing.lock"]


def test_what_a_killed_run_left_is_removed_by_the_next_one() -> None:
    left = cache.home() / ".thing.half-abc"
    left.mkdir()
    (left / "file").write_text("half")
    made = cache.made("thing", "making a thing", lambda directory: None)
    assert not left.exists()
    assert list(made.iterdir()) == []
