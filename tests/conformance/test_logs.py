"""What workers write can be read, whole and in parts, while they run and afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from petctl.jobs import JobHandle, LogLine
from tests.conformance.backend import HELLO, OUTPUTS, TWO_STREAMS, Backend

Start = Callable[..., JobHandle]


def hellos(lines: list[LogLine]) -> list[tuple[int, int, str]]:
    """Round, rank and node of each worker that has said who it is; the line's own words agree."""
    found = []
    for line in lines:
        match = HELLO.fullmatch(line.text)
        if match:
            assert (line.rank, line.round) == (int(match[1]), int(match[3]))
            assert line.node in ("", match[4].decode())
            found.append((line.round, line.rank, match[4].decode()))
    return sorted(found)


EVERYBODY = [(1, 0, "0"), (1, 1, "1"), (2, 0, "0"), (2, 1, "1")]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, EVERYBODY),
        ({"rank": 1}, [(1, 1, "1"), (2, 1, "1")]),
        ({"node": "0"}, [(1, 0, "0"), (2, 0, "0")]),
        ({"round": 2}, [(2, 0, "0"), (2, 1, "1")]),
        ({"rank": 0, "round": 1}, [(1, 0, "0")]),
        ({"blocks": True, "rank": 7}, []),
    ],
    ids=str,
)
def test_lines_are_there_after_the_end_and_can_be_chosen(
    backend: Backend, ended: JobHandle, wanted: dict[str, Any], found: list[tuple[int, int, str]]
) -> None:
    assert hellos(list(ended.logs(**wanted))) == found


def test_only_the_last_lines_of_each_worker(backend: Backend, ended: JobHandle) -> None:
    lines = [line for line in ended.logs(tail=1) if line.stream == "out"]
    assert sorted(line.text for line in lines) == [b"rank 0 has finished\n", b"rank 1 has finished\n"]
    assert {line.round for line in lines} == {2}
    assert list(ended.logs(tail=0)) == []


def test_blocks_hold_the_same_text(backend: Backend, ended: JobHandle) -> None:
    def text(blocks: bool) -> dict[tuple[int, int, str], bytes]:
        found: dict[tuple[int, int, str], bytes] = {}
        for line in ended.logs(blocks=blocks):
            found[line[:3]] = found.get(line[:3], b"") + line.text
        return found

    assert text(True) == text(False)


def test_errors_are_a_stream_of_their_own(backend: Backend, ended: JobHandle) -> None:
    backend.needs(TWO_STREAMS)
    lines = list(ended.logs(round=2))
    assert sorted(line.text for line in lines if line.stream == "err") == [b"aside of rank 0\n", b"aside of rank 1\n"]
    assert not [line for line in lines if line.stream == "out" and b"aside" in line.text]


def test_lines_are_followed_as_they_come_and_to_the_end(backend: Backend, start: Start) -> None:
    handle = start("wait", nodes=2)
    followed = []
    for line in handle.logs(follow=True):
        followed.append(line)
        if len(hellos(followed)) == 2 and HELLO.fullmatch(line.text):
            backend.running(handle, 2)
            backend.tell(handle, "finish")
    assert sorted(line.text for line in followed if b"finished" in line.text) == [
        b"rank 0 has finished\n",
        b"rank 1 has finished\n",
    ]
    assert handle.wait(backend.patience).state == "succeeded"
    order = [
        [line.text for line in lines if line.rank == 0 and line.stream == "out"] for lines in (followed, handle.logs())
    ]
    assert order[0] == order[1]
    assert sorted(handle.logs()) == sorted(followed)


def test_what_a_job_makes_is_where_its_outputs_are(backend: Backend, start: Start) -> None:
    backend.needs(OUTPUTS)
    handle = start("output")
    assert handle.wait(backend.patience).state == "succeeded"
    first = handle.outputs()[0]
    assert first.id == ""
    assert (backend.directory / first.location / "made.txt").read_text() == "made in round 1\n"
