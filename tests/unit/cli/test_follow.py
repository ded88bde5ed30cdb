"""Following a job: everything is written before the end is told, and Ctrl-C means cancel, then kill, then leave."""

from __future__ import annotations

import math
import os
import signal
import threading
from types import SimpleNamespace
from typing import Any, Iterator, NamedTuple

import pytest

from petctl.cli.terminal.follow import Follower, held_interrupts


class Line(NamedTuple):
    round: int
    rank: int
    stream: str
    text: bytes


class FakeScreen:
    """Keeps the order of what is written."""

    live = False

    def __init__(self) -> None:
        self.written: list[object] = []
        self.told = threading.Condition()

    def lines(self, lines: Any) -> None:
        self.written += [line.text for line in lines]

    def say(self, sentence: str) -> None:
        self.written.append(sentence)

    def close(self) -> None:
        pass


class FakeHandle:
    """A job that ends when it is told to."""

    id = "mnist-3f9k"

    def __init__(self, presses: int = 0, ends_on: int = 0) -> None:
        self.presses, self.ends_on = presses, ends_on
        self.cancels: list[bool] = []
        self.over = threading.Event()
        self.cancelled = threading.Condition()
        if not presses:
            self.over.set()

    def logs(self, **options: Any) -> Iterator[Line]:
        yield Line(1, 0, "out", b"first\n")
        for number in range(1, self.presses + 1):
            os.kill(os.getpid(), signal.SIGINT)
            with self.cancelled:
                assert self.cancelled.wait_for(lambda n=number: len(self.cancels) >= min(n, 2), 10)  # type: ignore[misc]
        assert self.over.wait(10)
        yield Line(1, 0, "out", b"last\n")

    def events(self, **options: Any) -> Iterator[dict[str, Any]]:
        yield {"kind": "joined", "sentence": "node 0 joined"}
        assert self.over.wait(10)

    def attend(self) -> float:
        return math.inf

    def cancel(self, kill: bool) -> str:
        with self.cancelled:
            self.cancels.append(kill)
            if len(self.cancels) == self.ends_on:
                self.over.set()
            self.cancelled.notify_all()
        return "cancelling"

    def wait(self) -> str:
        return "final"


def follow(handle: FakeHandle) -> list[object]:
    screen = FakeScreen()
    before = signal.getsignal(signal.SIGINT)
    try:
        assert Follower(handle, screen).follow() == "final"  # type: ignore[arg-type, comparison-overlap]
    finally:
        assert signal.getsignal(signal.SIGINT) is before
        handle.over.set()
    return screen.written


def test_all_lines_and_sentences_are_written_before_the_end() -> None:
    written = follow(FakeHandle())
    assert written.index(b"first\n") < written.index(b"last\n")
    assert "node 0 joined" in written


def test_the_first_control_c_cancels_and_following_goes_on() -> None:
    handle = FakeHandle(presses=1, ends_on=1)
    written = follow(handle)
    assert handle.cancels == [False]
    assert "cancelling; press Ctrl-C again to kill" in written
    assert b"last\n" in written


def test_the_second_control_c_kills() -> None:
    handle = FakeHandle(presses=2, ends_on=2)
    assert "killing" in follow(handle)
    assert handle.cancels == [False, True]


def test_the_third_control_c_leaves() -> None:
    handle = FakeHandle(presses=3)
    with pytest.raises(KeyboardInterrupt):
        follow(handle)
    assert handle.cancels == [False, True]


def test_control_c_during_the_submission_cancels_what_was_submitted() -> None:
    with held_interrupts() as pressed:
        os.kill(os.getpid(), signal.SIGINT)
    handle = FakeHandle(ends_on=1)
    handle.over.clear()
    follower = Follower(handle, FakeScreen())  # type: ignore[arg-type]
    assert follower.follow(pressed) == "final"  # type: ignore[comparison-overlap]
    assert handle.cancels == [False]


class WaitingHandle(FakeHandle):
    """A job in line, until somebody has looked at it often enough."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__()
        self.over.clear()
        self.sentences = sentences

    def logs(self, **options: Any) -> Iterator[Line]:
        assert self.over.wait(10)
        yield Line(1, 0, "out", b"last\n")

    def events(self, **options: Any) -> Iterator[dict[str, Any]]:
        assert self.over.wait(10)
        yield from ()

    def status(self) -> SimpleNamespace:
        if len(self.sentences) > 1:
            return SimpleNamespace(state="queued", sentence=self.sentences.pop(0))
        self.over.set()
        return SimpleNamespace(state="queued", sentence=self.sentences[0])


def test_a_job_in_line_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("petctl.cli.terminal.follow.ORDINARY_START", 0)
    monkeypatch.setattr("petctl.cli.terminal.follow.PATIENCE", 0.01)
    assert follow(WaitingHandle(["2 ahead", "2 ahead", "1 ahead"])) == ["2 ahead", "1 ahead", b"last\n"]


def test_an_ordinary_start_is_not_worth_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("petctl.cli.terminal.follow.PATIENCE", 0.01)
    assert follow(WaitingHandle(["0 ahead"])) == [b"last\n"]
