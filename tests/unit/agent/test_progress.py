"""What workers say of their progress, by message and by file, and what becomes of nonsense."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petctl.agent.health.progress import ProgressBook, parse_end
from petctl.rendezvous.core import messages as m
from petctl.rendezvous.net.frames import FrameReader, encode_frame

DEADLINE = 10.0


class Desk:
    """A book in a running loop, with a clock that can be set, and what it has told."""

    def __init__(self) -> None:
        self.told: list[m.Progress] = []
        self.changed = asyncio.Event()
        self.book = ProgressBook(self._take)

    def _take(self, progress: m.Progress) -> None:
        self.told.append(progress)
        self.changed.set()

    async def next(self) -> m.Progress:
        await asyncio.wait_for(self.changed.wait(), DEADLINE)
        self.changed.clear()
        return self.told[-1]


def in_loop(story: Callable[[Desk], Any]) -> Any:
    async def live() -> Any:
        desk = Desk()
        try:
            return await story(desk)
        finally:
            desk.book.end()

    return asyncio.run(live())


def append(path: Path, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


def test_the_newest_whole_line_of_a_file_counts(tmp_path: Path) -> None:
    paths = [tmp_path / "logs" / f"rank-{k}.progress" for k in range(2)]

    async def story(desk: Desk) -> None:
        desk.book.begin(2, [str(path) for path in paths])
        append(paths[1], "step=1 loss=0.5\nstep=2 loss=0.25 lr=1e-3 phase=warm\nstep=3 lo")
        told = await desk.next()
        assert told.steps == (-1, 2) and told.metrics == {"loss": 0.25, "lr": 0.001}
        append(paths[1], "ss=0.125\n")
        told = await desk.next()
        assert told.steps == (-1, 3) and told.heard == 2 and told.paces[1] > 0
        append(paths[0], "step=9\n")
        told = await desk.next()
        assert told.steps == (9, 3) and told.metrics == {}, "the metrics are the first rank's"

    in_loop(story)


def test_a_flood_of_lines_is_read_a_few_times_only(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.progress"

    async def story(desk: Desk) -> int:
        desk.book.begin(1, [str(path)])
        loop = asyncio.get_running_loop()
        end = loop.time() + 1.0
        step = 0
        while loop.time() < end:
            step += 1
            append(path, f"step={step}\n" * 50)
            await asyncio.sleep(0)
        desk.book.read()
        assert desk.told[-1].steps == (step,)
        return len(desk.told)

    assert in_loop(story) <= 8


def test_the_last_line_is_read_when_the_worker_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.progress"

    async def story(desk: Desk) -> None:
        desk.book.begin(1, [str(path)])
        append(path, "step=7\n")
        desk.book.read()
        assert desk.told[-1].steps == (7,)

    in_loop(story)


def test_a_line_that_takes_the_place_of_one_of_its_length_counts(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.progress"

    async def story(desk: Desk) -> None:
        desk.book.begin(1, [str(path)])
        for step in (1, 2):
            path.write_text(f"step={step}\n")
            os.utime(path, (step, step))  # clocks of file systems are coarse
            desk.book.read()
            assert desk.told[-1].steps == (step,)
        desk.book.read()
        assert len(desk.told) == 2

    in_loop(story)


def test_a_new_round_begins_with_nothing(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.book.begin(1, [])
        desk.book.take(0, {"step": 100, "metrics": {"loss": 1}})
        desk.book.begin(2, [])
        desk.book.take(1, {"step": 3})
        assert desk.told[-1].steps == (-1, 3) and desk.told[-1].heard == 1 and desk.told[-1].metrics == {}

    in_loop(story)


def test_paces_and_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(desk: Desk) -> None:
        now = 0.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
        desk.book.begin(1, [])

        def report(after: float, step: int, **metrics: float) -> m.Progress:
            nonlocal now
            now += after
            desk.book.take(0, {"step": step, "metrics": metrics})
            return desk.told[-1]

        first = report(30.0, 1, samples=0)
        assert first.paces == (0,) and first.gaps == (30,), "before the second, all that is known is the start"
        for step in range(11, 201, 10):
            told = report(2.0, step, samples=64 * step, busy=0.15)
        assert told.paces == (5,) and told.gaps == (2,) and told.busy == (0.15,)
        assert told.metrics["samples_per_second"] == 320
        back = report(2.0, 50)
        assert back.steps == (50,) and back.paces == (0,), "it went back: its pace is not known"
        assert back.metrics["samples"] == 64 * 191, "what is not said again stays"

    in_loop(story)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=70), inner, max_size=40),
    max_leaves=60,
)


@given(
    st.lists(
        JUNK | st.fixed_dictionaries({}, optional={"step": JUNK, "time": JUNK, "metrics": JUNK | st.dictionaries(
            st.sampled_from(["loss", "samples", "busy", "step", *(f"m{k}" for k in range(50))]), JUNK, max_size=50)}),
        max_size=5,
    )
)  # fmt: skip
def test_nothing_that_a_worker_says_breaks_the_report(messages: list[object]) -> None:
    async def story(desk: Desk) -> None:
        desk.book.begin(2, [])
        for number, message in enumerate(messages):
            desk.book.take(number % 3, message)

    desks: list[Desk] = []

    async def noted(desk: Desk) -> None:
        desks.append(desk)
        await story(desk)

    in_loop(noted)
    for progress in desks[0].told:
        report = m.Report("0", "i1", 1, 2, "host", m.Header(), progress=progress)
        [frame] = FrameReader(1 << 20).feed(encode_frame({"report": m.encode(report)}))
        assert m.decode_report(frame["report"]).progress == progress


@given(st.binary(max_size=200))
def test_any_file_can_be_read(data: bytes) -> None:
    assert isinstance(parse_end(data), dict)


def test_lines_of_all_kinds() -> None:
    assert parse_end(b"") == {} and parse_end(b"step=1") == {}
    assert parse_end(b"step=1 loss=nan best=-inf\n") == {"step": 1, "loss": "nan", "best": "-inf"}
    assert parse_end(b"step=4\nno numbers here\n\n") == {"step": 4}
    assert parse_end(b"=1 step=2 a=b c=1=2 \xff=3\n") == {"step": 2}
