"""Events on a slow stdout, and a status that can be watched."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from petctl.controller.journals.container import ContainerJournal
from petctl.controller.journals.event_printer import Printer
from petctl.controller.journals.records import first_status
from petctl.controller.termination_message import read_message
from petctl.job.events import read_events
from petctl.job.status import JobStatus
from petctl.rendezvous.core.messages import Outcome
from tests.unit.records import job_record


@pytest.fixture
def pipe() -> Any:
    read, write = os.pipe()
    yield read, write
    os.close(read)
    os.close(write)


def status() -> JobStatus:
    return replace(first_status(job_record()), state="starting")


def everything(read: int, until: bytes) -> list[dict[str, Any]]:
    data = b""
    while until not in data or not data.endswith(b"\n"):
        data += os.read(read, 1 << 16)
    return [json.loads(line) for line in data.splitlines() if line]


def test_a_slow_reader_delays_nobody_and_learns_what_it_missed(pipe: tuple[int, int]) -> None:
    printer = Printer(pipe[1], limit=1 << 20, torn=True)
    for number in range(5000):
        printer.print({"kind": "some", "number": number, "filler": "x" * 1000})
    printer.print({"kind": "final"}, always=True)
    ender = threading.Thread(target=printer.finish, args=(30.0,))
    ender.start()
    events = everything(pipe[0], b'"final"')
    ender.join(30)
    assert not ender.is_alive()
    next_number = 0
    for event in events[:-1]:  # every gap is said where it is, wherever the thread was when room became free
        if event["kind"] == "dropped":
            next_number += event["count"]
        else:
            assert event["number"] == next_number
            next_number += 1
    assert next_number == 5000 and events[-1]["kind"] == "final"
    assert 1000 < sum(event["kind"] == "some" for event in events) < 2000


def test_a_reader_that_never_reads_does_not_hold_up_the_end(pipe: tuple[int, int]) -> None:
    printer = Printer(pipe[1])
    printer.print({"kind": "some", "filler": "x" * (1 << 20)})
    printer.finish(0.1)


def test_a_watcher_is_answered_when_something_changes_and_not_before(tmp_path: Path, pipe: tuple[int, int]) -> None:
    async def play() -> None:
        board = ContainerJournal(status(), 7, tmp_path / "events.jsonl", tmp_path / "message", Printer(pipe[1]))
        state = {"state": "starting"}
        board.picture = lambda before: replace(before, state=state["state"])
        board.write()
        first = await board.watch(0, 30.0)  # an older coordinator's version, or none
        assert first["version"] == board.version and first["status"]["state"] == "starting"
        same = await board.watch(board.version, 0.05)
        assert same == first
        waiting = asyncio.ensure_future(board.watch(board.version, 30.0))
        await asyncio.sleep(0)
        board.touch()
        board.write()
        assert not waiting.done()  # nothing has changed
        state["state"] = "running"
        board.event("running", "it runs", round=1, nodes=["0"], world_size=1)
        found = await asyncio.wait_for(waiting, 30.0)
        assert found["version"] > first["version"] and found["status"]["state"] == "running"
        assert [past["number"] for past in found["status"]["rounds"]] == [1]
        waiting = asyncio.ensure_future(board.watch(board.version, 30.0))
        await asyncio.sleep(0)
        board.freeze()
        await board.close(board.put_outcome(Outcome("succeeded", 0, "well"), {}))
        assert waiting.done() and waiting.result()["status"]["state"] == "succeeded"
        last = await board.watch(board.version, 30.0)  # at once: nothing will ever change again
        message = read_message(tmp_path / "message")
        assert message is not None and last["status"]["finished"] == message["finished"] > 0
        assert board.now()["state"] == "succeeded"

    asyncio.run(play())
    assert [event["kind"] for event in read_events(tmp_path / "events.jsonl")] == ["running"]
    kinds = [event["kind"] for event in everything(pipe[0], b'"final"')]
    assert kinds == ["running", "final"]


def test_versions_of_two_coordinators_never_meet(tmp_path: Path, pipe: tuple[int, int]) -> None:
    paths = tmp_path / "e", tmp_path / "m"
    boards = [ContainerJournal(status(), epoch, *paths, Printer(pipe[1])) for epoch in (1_000_000, 1_000_001)]
    for board in boards:
        for number in range(100):
            board.picture = lambda before, number=number: replace(before, sentence=str(number))  # type: ignore[misc]
            board.write()
    assert boards[0].version < boards[1].version - 100
    assert boards[1].version < 2**53  # what JSON's readers agree on
