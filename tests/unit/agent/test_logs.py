"""Following, cutting and prefixing of log files."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petctl.agent.logs import inotify, log_cap, log_follow
from petctl.agent.logs.log_files import LogName, list_logs, log_file, parse_file, parse_round, read_end
from petctl.agent.logs.log_follow import Chunk, LogFollower, tail_offset
from petctl.agent.logs.stream import LinePrefixer
from petctl.agent.node import native


def write(directory: Path, round_number: int, rank: int, data: bytes, stream: str = "out") -> Path:
    path = Path(log_file(str(directory), round_number, rank, stream))
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file:
        file.write(data)
    return path


def everything(directory: Path) -> dict[LogName, bytes]:
    found: dict[LogName, bytes] = {}
    with LogFollower(str(directory)) as follower:
        for chunk in follower.follow(lambda: True):
            found[chunk.name] = found.get(chunk.name, b"") + chunk.data
    return found


@pytest.fixture(params=["inotify", "polling"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "polling":
        monkeypatch.setattr(native, "inotify_open", lambda: -1)
    yield request.param


def test_names() -> None:
    assert parse_round("round-0012") == 12 and parse_round("round-12345") == 12345 and parse_round("round-1") is None
    assert parse_file("rank-3.err") == (3, "err") and parse_file("rank-3.error.json") is None


def test_what_is_there_is_delivered_in_the_order_of_rounds_and_ranks(tmp_path: Path) -> None:
    for number, rank in ((2, 0), (1, 10), (1, 9)):
        write(tmp_path, number, rank, b"%d\n" % rank)
    (tmp_path / "prepare-n0.out").write_bytes(b"other")
    with LogFollower(str(tmp_path)) as follower:
        assert [(c.name.round, c.name.rank) for c in follower.follow(lambda: True)] == [(1, 9), (1, 10), (2, 0)]
    assert [name.rank for name, _ in list_logs(str(tmp_path))] == [9, 10, 0]


def test_a_directory_a_round_and_lines_that_appear_later_are_seen(tmp_path: Path, way: str) -> None:
    directory = tmp_path / "logs"
    over = threading.Event()
    seen: list[Chunk] = []
    first, second = threading.Event(), threading.Event()

    def follow() -> None:
        with LogFollower(str(directory)) as follower:
            for chunk in follower.follow(over.is_set):
                seen.append(chunk)
                (first if len(seen) == 1 else second).set()

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        write(directory, 1, 0, b"hello\nbeginning of ")
        assert first.wait(5)
        write(directory, 1, 0, b"a line\n")
        write(directory, 2, 1, b"world\n")
        assert second.wait(5)
    finally:
        over.set()
        thread.join(5)
    text: dict[LogName, bytes] = {}
    for chunk in seen:
        text[chunk.name] = text.get(chunk.name, b"") + chunk.data
    assert text == {LogName(1, 0, "out"): b"hello\nbeginning of a line\n", LogName(2, 1, "out"): b"world\n"}


def test_a_line_is_not_torn_before_its_newline_or_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("petctl.agent.logs.log_follow.time.monotonic", lambda: now)
    write(tmp_path, 1, 0, b"one\ntw")
    with LogFollower(str(tmp_path)) as follower:
        assert [c.data for c in follower.read()] == [b"one\n"]
        now += log_follow.PARTIAL_AFTER / 2
        assert list(follower.read()) == []
        now += log_follow.PARTIAL_AFTER
        assert [c.data for c in follower.read()] == [b"tw"]


def test_wake_ends_a_wait(tmp_path: Path, way: str) -> None:
    with LogFollower(str(tmp_path)) as follower:
        follower.wake()
        follower.wait(None)  # would never end


def test_a_change_in_another_watched_directory_ends_a_wait(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    with LogFollower(str(tmp_path / "logs"), watch=[str(tmp_path)]) as follower:
        (tmp_path / "outcome.json").write_text("{}")
        follower.wait(None)  # would never end


def test_a_burst_of_changes_is_not_lost(tmp_path: Path) -> None:
    path = write(tmp_path, 1, 0, b"")
    other = write(tmp_path, 1, 1, b"")
    with LogFollower(str(tmp_path)) as follower:
        assert list(follower.read()) == []
        with open(path, "ab", buffering=0) as one, open(other, "ab", buffering=0) as two:
            for _ in range(inotify._BURST // 16):
                one.write(b"x\n")
                two.write(b"y\n")
        follower.wait(1.0)
        assert sum(c.data.count(b"\n") for c in follower.read()) == 2 * (inotify._BURST // 16)


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(1, 16))
def test_any_bytes_come_through_whole_and_cut_only_at_newlines(parts: list[bytes], block: int) -> None:
    import tempfile

    before, log_follow.BLOCK = log_follow.BLOCK, block
    try:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            with LogFollower(name) as follower:
                seen: list[bytes] = []
                for part in parts:
                    write(directory, 1, 0, part)
                    follower._discover()
                    follower._dirty.update(follower._sources)
                    new = [c.data for c in follower.read()]
                    assert all(data.endswith(b"\n") for data in new)
                    seen += new
                seen += [c.data for c in follower.read(final=True)]
            assert b"".join(seen) == b"".join(parts)
    finally:
        log_follow.BLOCK = before


def test_more_files_than_may_be_open(tmp_path: Path) -> None:
    for rank in range(300):
        write(tmp_path, 1, rank, b"%d\n" % rank)
    with LogFollower(str(tmp_path)) as follower:
        assert len(list(follower.follow(lambda: True))) == 300
        assert sum(1 for source in follower._sources.values() if source.fd >= 0) <= 128


# -- cutting -----------------------------------------------------------------------------------------------------------


def test_a_cut_file_keeps_its_beginning_and_its_newest_part(tmp_path: Path) -> None:
    lines = b"".join(b"%07d\n" % n for n in range(1 << 20))  # 8 MiB
    path = write(tmp_path, 1, 0, lines)
    dropped = log_cap.punch(str(path), 4 << 20)
    assert dropped == 5 << 20
    assert path.stat().st_size == len(lines) and path.stat().st_blocks * 512 < 4 << 20
    assert log_cap.punch(str(path), 4 << 20) == 0
    (data,) = everything(tmp_path).values()
    marker = b"\n[petctl: %d bytes were dropped here to stay within log_cap]\n" % dropped
    assert data == lines[: 1 << 20] + marker + lines[(1 << 20) + dropped :]


def test_where_no_holes_can_be_made_the_limit_holds_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "punch_hole", lambda *_: False)
    path = write(tmp_path, 1, 0, b"x" * (8 << 20))
    writer = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        assert log_cap.punch(str(path), 4 << 20) == 7 << 20
        os.write(writer, b"goes on\n")
    finally:
        os.close(writer)
    assert path.stat().st_size < 2 << 20
    assert path.read_bytes().endswith(b"stay within log_cap]\ngoes on\n")


def test_a_file_within_its_limit_or_gone_is_left_alone(tmp_path: Path) -> None:
    path = write(tmp_path, 1, 0, b"x" * 1000)
    assert log_cap.punch(str(path), 1 << 20) == 0 and path.read_bytes() == b"x" * 1000
    assert log_cap.punch(str(tmp_path / "nothing"), 1) == 0


# -- ends and prefixes ------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([b"a", b"bb", b""]), max_size=8), st.booleans(), st.integers(0, 9))
def test_the_offset_of_the_last_lines(lines: list[bytes], newline: bool, count: int) -> None:
    import tempfile

    data = b"\n".join(lines) + (b"\n" if newline and lines else b"")
    before, log_follow.BLOCK = log_follow.BLOCK, 3
    try:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            kept = data[tail_offset(file.name, count) :]
    finally:
        log_follow.BLOCK = before
    assert kept == b"".join(data.splitlines(keepends=True)[-count:] if count else [])


def test_the_end_of_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, 1, 0, b"0123456789")
    assert read_end(str(path), 4) == b"6789" and read_end(str(path), 100) == b"0123456789"
    assert read_end(str(tmp_path / "nothing"), 4) == b""


def test_two_ranks_never_share_a_line() -> None:
    prefixer = LinePrefixer()
    zero, one = LogName(1, 0, "out"), LogName(1, 1, "out")
    shown = [
        prefixer.prefix(Chunk(zero, b"a\nb\n")),
        prefixer.prefix(Chunk(zero, b"50%")),
        prefixer.prefix(Chunk(zero, b" 60%")),
        prefixer.prefix(Chunk(one, b"x\n")),
        prefixer.prefix(Chunk(zero, b" 70%\nc\n")),
    ]
    assert b"".join(shown) == b"[0]: a\n[0]: b\n[0]: 50% 60%\n[1]: x\n[0]:  70%\n[0]: c\n"


def test_logs_of_rounds_long_ago_are_removed(tmp_path: Path) -> None:
    for number in (1, 2, 3, 40, 103):
        (tmp_path / f"round-{number:04d}").mkdir()
        (tmp_path / f"round-{number:04d}" / "rank-0.out").write_text("x")
    (tmp_path / "prepare-0.out").write_text("x")
    log_cap.prune(str(tmp_path), 103)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "prepare-0.out",
        "round-0001",
        "round-0040",
        "round-0103",
    ]
    log_cap.prune(str(tmp_path / "missing"), 103)
