"""A script with two calls of elastic.run, one after the other."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.elastic.harness import Fleet, Nursery

pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]


@pytest.fixture
def fleet(tmp_path: Path, nursery: Nursery) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, nursery, Path(__file__).with_name("twice.py"))
    try:
        yield fleet
    finally:
        fleet.close()


@pytest.mark.parametrize("world", [1, 2, 3])
def test_both_trainings_run_to_their_end(fleet: Fleet, world: int) -> None:
    workers = fleet.start(world)
    for worker in workers:
        assert worker.line("done")["done"] == pytest.approx(60.0)
        assert worker.ended() == 0, worker.err.read_text()


def test_a_loss_in_the_second_makes_all_begin_again(fleet: Fleet) -> None:
    """A newcomer cannot take part in what the others have ended: they say so at once instead of waiting for ever."""
    fleet.options.update(STEPS="1000000", STEP_TIME="0.01")
    survivor, lost = fleet.start(2)
    for worker in (survivor, lost):
        worker.line("first")
    survivor.expect("plain")
    survivor.expect("elastic")
    lost.signal(signal.SIGKILL)
    fleet.park([survivor])
    fleet.parked([survivor])
    fleet.next([survivor], fresh=1)
    for worker in fleet.everybody:
        if worker is not lost:
            assert worker.ended() == 1
            assert "others are in another one" in worker.err.read_text()
