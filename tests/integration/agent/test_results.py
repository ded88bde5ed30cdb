"""Who sends where several nodes share a directory, and what a node says while it sends before it goes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from petctl.agent.data import results
from petctl.agent.data.results import Results, interval
from petctl.agent.node.draining import NOTE, Drain
from petctl.job.task import Task
from petctl.rendezvous.core.messages import FAILED, IDLE, Header, Report, decode_report
from petctl.rendezvous.net.join_file import JoinFile
from petctl.storage.core.files import direct
from petctl.storage.core.grants import Grant, Grants

JOIN = JoinFile("job", "00", "", {"address": "127.0.0.1:1"})
WITHIN = 60.0


class Scene:
    """A machine with a directory that several nodes share, and a store that is another directory."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.job, self.store = folder / "job", folder / "store"
        self.outputs, self.logs = self.job / "outputs", self.job / "logs"
        for place in (self.outputs, self.logs, self.store):
            place.mkdir(parents=True)
        self.told: list[dict[str, Any]] = []
        answer = direct(Grants({"store": Grant("file", str(self.store), "", True)}))

        class Line:
            def __init__(_, join: JoinFile, given_up: threading.Event) -> None:
                pass

            def ask(_, call: str, arguments: dict[str, Any]) -> Any:
                return self.told.append(arguments) if call == results.CALL else answer(call, arguments)

            def close(_) -> None:
                pass

        monkeypatch.setattr(results, "CoordinatorLine", Line)

    def node(self, name: str) -> Results:
        task = Task("job", "shell", ["x"], output_dir=str(self.outputs), results={"": "store"})
        return Results(task, JOIN, name, str(self.logs))

    def sent(self, name: str) -> bool:
        return (self.store / "outputs" / name).exists()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv(results.VARIABLE, "0.1")
    return Scene(tmp_path, monkeypatch)


async def until(condition: Callable[[], bool], what: str) -> None:
    end = asyncio.get_running_loop().time() + WITHIN
    while not condition():
        assert asyncio.get_running_loop().time() < end, f"not within {WITHIN} s: {what}"
        await asyncio.sleep(0.01)


async def finished(node: Results) -> None:
    over = asyncio.get_running_loop().create_future()
    node.finish(lambda: over.set_result(None))
    await asyncio.wait_for(over, WITHIN)


@asynccontextmanager
async def nodes(scene: Scene) -> AsyncIterator[tuple[Results, Results]]:
    """Two nodes, the first of which sends."""
    (scene.outputs / "early").write_text("1")
    first = scene.node("0")
    await until(lambda: scene.sent("early"), "the first node sends")
    second = scene.node("1")
    try:
        await until(lambda: second._waiting, "the second one waits")
        yield first, second
    finally:
        first.give_up()
        second.give_up()


def test_who_waits_for_the_lock_may_go_and_the_holder_sends_the_rest(scene: Scene) -> None:
    async def live() -> None:
        async with nodes(scene) as (first, second):
            (scene.outputs / "late").write_text("2")
            await finished(second)
            (scene.outputs / "last").write_text("3")
            await finished(first)
            assert scene.sent("late") and scene.sent("last")

    asyncio.run(live())


def test_the_next_one_takes_over(scene: Scene) -> None:
    async def live() -> None:
        async with nodes(scene) as (first, second):
            await finished(first)
            (scene.outputs / "late").write_text("2")
            await until(lambda: scene.sent("late"), "the second node sends")
            await finished(second)
            await finished(second)  # it has ended: nothing to wait for

    asyncio.run(live())


def test_trouble_is_told_once_and_its_end_too(scene: Scene) -> None:
    async def live() -> None:
        async with nodes(scene) as (first, _):
            hidden = scene.store.rename(scene.store.with_name("hidden"))
            (scene.outputs / "late").write_text("2")
            await until(lambda: bool(scene.told), "the trouble is told")
            looks = first._outbox
            seen = looks.problems
            await until(lambda: looks.problems is not seen and bool(looks.problems), "another look")
            hidden.rename(scene.store)
            await until(lambda: len(scene.told) == 2, "its end is told")
            await finished(first)

    asyncio.run(live())
    assert "does not exist" in scene.told[0]["problem"] and scene.told[1] == {"node": "0", "problem": ""}
    assert scene.sent("late")


def test_a_node_that_sends_is_not_silent() -> None:
    said: list[Report] = []

    async def live() -> None:
        report = Report("0", "1", number=7, procs=1, address="", header=Header(), state=FAILED)
        lingering = Drain(report, 0.01, lambda message: said.append(decode_report(message["report"])))
        await until(lambda: len(said) >= 3, "three beats")
        lingering.stop()
        assert lingering._timer is not None and lingering._timer.cancelled()

    asyncio.run(live())
    assert [report.number for report in said[:3]] == [8, 9, 10]
    assert {(report.state, report.note, report.beat, report.sending) for report in said} == {(IDLE, NOTE, True, True)}


def test_how_often() -> None:
    assert interval({}) == results.EVERY
    assert interval({results.VARIABLE: "2"}) == 2.0
    assert interval({results.VARIABLE: "often"}) == results.EVERY
