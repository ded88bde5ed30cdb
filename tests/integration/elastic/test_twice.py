"""A script with several calls of elastic.run, one after the other, under losses in and between them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from petctl.elastic.checkpoints import saved
from tests.integration.elastic.harness import Fleet, Nursery, Worker
from tests.integration.waiting import until

pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]
with_and_without_checkpoints = pytest.mark.parametrize("every", ["0", "3"])
one_state_or_two = pytest.mark.parametrize("same", ["", "1"])


@pytest.fixture
def fleet(tmp_path: Path, nursery: Nursery) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, nursery, Path(__file__).with_name("twice.py"))
    fleet.options.update(
        STEP_TIME="0.01",
        GO=str(tmp_path / "go"),
        PETCTL_CHECKPOINT_DIR=str(tmp_path / "checkpoints"),
        PETCTL_JOB_ID="job-1",
    )
    try:
        yield fleet
    finally:
        fleet.close()


def everything(fleet: Fleet) -> list[dict[str, Any]]:
    """What all workers of all rounds have said."""
    logs = sorted(fleet.directory.glob("round-*.out"))
    worker = Worker(fleet.nursery, 0, 0, logs[0], logs[0])
    found = []
    for worker.out in logs:
        found += worker.lines()
    return found


def all_end_well(fleet: Fleet, workers: list[Worker], steps: int = 40, calls: int = 2) -> None:
    """All of these end, and every number that any worker has ever said is exact."""
    for worker in workers:
        assert worker.ended() == 0, worker.err.read_text()
    before = 20.0 * (calls - 1)
    said = everything(fleet)
    assert [line["done"] for line in said if "done" in line] == [before + steps] * len(workers)
    for line in said:
        if "step" in line:
            assert line["weight"] == 20 * (line["call"] - 1) + line["step"], line
        elif "entered" in line:
            assert line["weight"] == 20 * (line["entered"] - 1) + line["at"], line
        elif "ended" in line:
            end = 20.0 * line["ended"] if line["ended"] < calls else before + steps
            assert line["weight"] == line["model"] == end, line
    for number in range(1, calls + 1):  # what a worker draws by chance is the same on all of them
        assert len({line["chance"] for line in said if line.get("entered") == number}) == 1


def lose(fleet: Fleet, lost: list[Worker], survivors: list[Worker]) -> None:
    """Kills some; the others park."""
    for worker in lost:
        worker.signal(signal.SIGKILL)
    for worker in lost:
        worker.ended()
    for worker in survivors:
        skip_to_now(worker)
    fleet.park(survivors)
    fleet.parked(survivors)


def skip_to_now(worker: Worker) -> None:
    """Forgets what it said when it went from call to call."""
    while not worker.said.empty():
        said, _ = worker.said.get()
        assert said in ("plain", "elastic")


def in_call(workers: list[Worker], number: int, step: int = 1) -> None:
    """Waits until all of them have made so many steps of a call."""
    for worker in workers:
        worker.wait_for(lambda line: line.get("call") == number and line["step"] >= step, f"step {step} of {number}")


def calls_trained(worker: Worker) -> set[int]:
    return {line["call"] for line in worker.lines() if "step" in line}


@pytest.mark.parametrize("world", [1, 2, 3])
def test_both_trainings_run_to_their_end(fleet: Fleet, world: int) -> None:
    all_end_well(fleet, fleet.start(world))


@one_state_or_two
@with_and_without_checkpoints
def test_a_loss_in_the_first_call(fleet: Fleet, every: str, same: str) -> None:
    fleet.options.update(EVERY=every, SAME=same)
    survivor, lost = fleet.start(2)
    in_call([survivor, lost], 1, 5)
    lose(fleet, [lost], [survivor])
    all_end_well(fleet, fleet.next([survivor], fresh=1))


@one_state_or_two
@with_and_without_checkpoints
def test_a_loss_in_the_second_call(fleet: Fleet, every: str, same: str) -> None:
    fleet.options.update(EVERY=every, SAME=same, STEPS="100")
    survivor, lost = fleet.start(2)
    in_call([survivor, lost], 2, 5)
    pid = survivor.pid
    lose(fleet, [lost], [survivor])
    survivor, fresh = fleet.next([survivor], fresh=1)
    all_end_well(fleet, [survivor, fresh], steps=100)
    assert calls_trained(fresh) == {2}
    assert survivor.line("done")["pid"] == pid
    assert survivor.line("entered")["at"] == fresh.line("entered")["at"] >= 5


@one_state_or_two
@with_and_without_checkpoints
def test_a_loss_in_the_second_call_before_its_first_commit(fleet: Fleet, every: str, same: str) -> None:
    fleet.options.update(EVERY=every, SAME=same, HOLD="entry:1")
    survivor, lost = fleet.start(2)
    lost.line("held")
    lose(fleet, [lost], [survivor])
    (fleet.directory / "go").touch()
    survivor, fresh = fleet.next([survivor], fresh=1)
    all_end_well(fleet, [survivor, fresh])
    assert calls_trained(survivor) == calls_trained(fresh) == {2}


@one_state_or_two
@with_and_without_checkpoints
def test_a_loss_while_some_are_between_the_calls(fleet: Fleet, every: str, same: str) -> None:
    """Those between the calls cannot be parked, and are started again; the one that is further tells them."""
    fleet.options.update(EVERY=every, SAME=same, HOLD="between:1")
    survivor, between, lost = fleet.start(3)
    between.line("held")
    for worker in (survivor, lost):
        worker.expect("plain")
        worker.expect("elastic")
    lose(fleet, [lost, between], [survivor])
    (fleet.directory / "go").touch()
    survivor, *fresh = fleet.next([survivor], fresh=2)
    all_end_well(fleet, [survivor, *fresh])
    assert [calls_trained(worker) for worker in fresh] == [{2}, {2}]


@one_state_or_two
@with_and_without_checkpoints
def test_a_loss_while_all_are_between_the_calls(fleet: Fleet, every: str, same: str) -> None:
    """Nobody is left who knows how the first call ended: it goes on from its checkpoint, or begins again."""
    fleet.options.update(EVERY=every, SAME=same, HOLD="between")
    workers = fleet.start(2)
    for worker in workers:
        worker.line("held")
    written = Path(fleet.options["PETCTL_CHECKPOINT_DIR"])
    until(lambda: every == "0" or (saved.marks(written)[:1] and saved.marks(written)[0].step == 18), "the checkpoint")
    lose(fleet, workers, [])
    (fleet.directory / "go").touch()
    fresh = fleet.next([], fresh=2)
    all_end_well(fleet, fresh)
    assert [worker.line("entered")["at"] for worker in fresh] == [18 if every != "0" else 0] * 2


@one_state_or_two
def test_one_that_stood_by_in_the_first_call_takes_part_in_the_second(fleet: Fleet, same: str) -> None:
    fleet.options.update(SAME=same, STEPS="100")
    workers = fleet.start(3)
    in_call(workers, 1, 5)
    lose(fleet, [], workers)
    stands_by = workers[2]
    first, second = fleet.next(workers[:2])
    in_call([first, second], 2, 5)
    lose(fleet, [first], [second])
    fleet.next([stands_by, second])
    all_end_well(fleet, [stands_by, second], steps=100)
    assert calls_trained(stands_by) == {2}


@one_state_or_two
def test_a_node_that_joins_in_the_second_call_undoes_nothing(fleet: Fleet, same: str) -> None:
    fleet.options.update(SAME=same, STEPS="100")
    survivors = fleet.start(2)
    in_call(survivors, 2, 5)
    for worker in survivors:
        skip_to_now(worker)
    fleet.park(survivors, planned=True)
    fleet.parked(survivors)
    workers = fleet.next(survivors, fresh=1)
    all_end_well(fleet, workers, steps=100)
    before = [line["step"] for line in everything(fleet) if line.get("call") == 2 and line["world"] == 2]
    committed = max(before) + 1  # the round ended within that commit, before it was said
    assert {worker.line("entered")["at"] for worker in workers} == {committed}
    assert calls_trained(workers[2]) == {2}


def test_a_newcomer_passes_on_what_it_was_told(fleet: Fleet) -> None:
    """Also of more calls than one, and when all who have made them are lost."""
    fleet.options.update(CALLS="3", STEPS="200")
    first, lost = fleet.start(2)
    in_call([first, lost], 3)
    lose(fleet, [lost], [first])
    first, second = fleet.next([first], fresh=1)
    in_call([first, second], 3)
    lose(fleet, [first], [second])
    second, third = fleet.next([second], fresh=1)
    all_end_well(fleet, [second, third], steps=200, calls=3)
    assert calls_trained(third) == {3}


def test_a_newcomer_that_is_lost_on_its_way_holds_nobody_up(fleet: Fleet) -> None:
    fleet.options.update(HOLD="between:1", STEPS="100")
    survivor, lost = fleet.start(2)
    lost.line("held")
    for kind in ("plain", "elastic"):
        survivor.expect(kind)
    lose(fleet, [lost], [survivor])
    for _ in range(2):
        survivor, lost = fleet.next([survivor], fresh=1)
        lost.line("held")
        lose(fleet, [lost], [survivor])
    (fleet.directory / "go").touch()
    all_end_well(fleet, fleet.next([survivor], fresh=1), steps=100)


@one_state_or_two
def test_each_call_goes_on_from_its_own_checkpoint_when_all_are_lost(fleet: Fleet, same: str) -> None:
    fleet.options.update(EVERY="3", SAME=same, STEPS="100")
    workers = fleet.start(2)
    second = Path(fleet.options["PETCTL_CHECKPOINT_DIR"], "run-2")
    step = 26 if same else 6  # the same State goes on counting its commits
    until(lambda: any(mark.step >= step for mark in saved.marks(second)), "checkpoints of the second call")
    lose(fleet, workers, [])
    fresh = fleet.next([], fresh=2)
    all_end_well(fleet, fresh, steps=100)
    for worker in fresh:
        begun = [(line["entered"], line["at"]) for line in worker.lines() if "entered" in line]
        assert begun[0] == (1, 20) and begun[1] >= (2, 6)


def test_one_that_ended_a_call_in_an_older_round_begins_again(fleet: Fleet) -> None:
    fleet.options.update(STEPS="100", STEP_TIME="0.02")
    older, newer = fleet.start(2)
    in_call([older, newer], 1, 3)
    lose(fleet, [], [older, newer])
    fleet.next([older])
    in_call([older], 2)
    lose(fleet, [], [older])
    fleet.next([newer])
    in_call([newer], 1, 5)
    lose(fleet, [], [newer])
    fleet.next([newer, older])
    assert older.ended() == 1
    assert "in a newer round (3): this process restarts" in older.err.read_text()
    lose(fleet, [], [newer])
    workers = fleet.next([newer], fresh=1)
    all_end_well(fleet, workers, steps=100)
    assert calls_trained(workers[1]) >= {2}
