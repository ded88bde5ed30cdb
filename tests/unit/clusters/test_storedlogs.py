"""Logs from a store: whole lines over the borders of segments, holes are said, tails are short."""

from __future__ import annotations

from pathlib import Path

import pytest

from petctl.agent.logs.log_files import SEGMENT, LogName
from petctl.clusters.archived_logs import StoredLogs
from tests.unit.records import job_record

NAME = LogName(1, 0, "out")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "store/j/logs/round-0001"
    folder.mkdir(parents=True)
    return folder


def stored(logs: Path) -> StoredLogs:
    store = {"location": str(logs.parents[2]), "below": "j"}
    return StoredLogs(job_record(grants={"store": store}), logs.parents[3])


def put(logs: Path, number: int, data: bytes, rank: int = 0) -> None:
    (logs / f"rank-{rank}.out.{number:06d}").write_bytes(data)


def text(logs: Path, tail: int | None = None) -> bytes:
    found = stored(logs)
    return b"".join(found.read(found.list(lambda name: name == NAME)[NAME], tail))


def test_lines_go_over_the_borders(logs: Path) -> None:
    line = b"x" * 999 + b"\n"
    data = line * 2500 + b"unfinished"
    for number in range(3):
        put(logs, number, data[number * SEGMENT : (number + 1) * SEGMENT])
    assert text(logs) == data
    found = stored(logs)
    blocks = list(found.read(found.list(lambda name: True)[NAME]))
    assert all(block.endswith(b"\n") for block in blocks[:-1])
    assert text(logs, 2) == line + b"unfinished"
    assert text(logs, 1600).count(b"\n") == 1599
    assert text(logs, 0) == b""
    assert text(logs, 10**6) == data


def test_what_was_dropped_is_said(logs: Path) -> None:
    put(logs, 0, b"first\n")
    put(logs, 5, b"last\n")
    assert text(logs) == b"first\n\n[petctl: %d bytes were dropped here to stay within log_cap]\nlast\n" % (4 * SEGMENT)


def test_only_logs_are_listed_in_their_order(logs: Path) -> None:
    put(logs, 0, b"1\n", rank=10)
    put(logs, 0, b"1\n", rank=9)
    (logs / "rank-0.error.json.000000").write_bytes(b"{}")
    (logs.parent / "prepare-0.out.000000").write_bytes(b"x")
    assert [name.rank for name in stored(logs).list(lambda name: True)] == [9, 10]
