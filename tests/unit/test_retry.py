"""Pauses grow to the longest, begin again after progress, and end in time."""

from __future__ import annotations

import threading
import time

import pytest

from petctl.errors import GivenUp
from petctl.retry import Backoff


class Clock:
    """Time passes in sleep only."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_each_pause_is_twice_the_one_before_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 5.0)
    assert [backoff.pause() for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    backoff.restart()
    assert backoff.pause() == 0.5


def test_chance_shortens_pauses_and_never_below_the_least() -> None:
    pauses = [Backoff(1.0, 1.0, least=0.5).pause() for _ in range(200)]
    assert 0.5 <= min(pauses) < 0.6 and 0.9 < max(pauses) <= 1.0


def test_attempts_end_with_the_problem_when_the_time_is_up(clock: Clock) -> None:
    backoff = Backoff(1.0, 4.0, within=10.0)
    problem = OSError("the store does not answer")
    with pytest.raises(OSError) as caught:
        while True:
            backoff.wait(problem)
    assert caught.value is problem and clock.slept == [1.0, 2.0, 4.0]  # another 4 would end after 11 seconds


def test_progress_gives_all_the_time_again(clock: Clock) -> None:
    backoff = Backoff(1.0, 1.0, within=1.5)
    for _ in range(5):
        backoff.wait(OSError())
        backoff.restart()
    assert len(clock.slept) == 5
    with pytest.raises(OSError):
        clock.now += 1.0
        backoff.wait(OSError())


def test_without_a_limit_it_goes_on(clock: Clock) -> None:
    backoff = Backoff(1.0, 60.0)
    for _ in range(1000):
        backoff.wait(OSError())
    assert clock.slept[-1] == 60.0


def test_who_gives_up_waits_no_longer() -> None:
    given_up = threading.Event()
    given_up.set()
    with pytest.raises(GivenUp):
        Backoff(60.0, 60.0).wait(OSError("away"), given_up)
