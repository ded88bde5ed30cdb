"""Slots are claimed in order: by priority, then first come, first served; nobody overtakes and nothing is lost."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from petctl.clusters.local.jobdir import JobDirectory, in_use, raise_epoch
from petctl.clusters.local.slots import Slots
from petctl.errors import InternalError


@pytest.fixture
def alive() -> set[str]:
    return {"a", "b", "c", "d"}


@pytest.fixture
def slots(tmp_path: Path, alive: set[str]) -> Slots:
    return Slots(tmp_path, 4, lambda job, age: job in alive)


def test_jobs_start_in_the_order_in_which_they_came(slots: Slots) -> None:
    for job in "abc":
        slots.enter(job, 0, 3)
    assert slots.claim("a", 3).granted == 3
    assert slots.claim("c", 3).sentence() == "queued: 1 job ahead, needs 3 of 4 node slots, 1 free"
    assert slots.claim("b", 3).granted == 0
    slots.release("a")
    assert slots.claim("c", 3).granted == 0
    assert slots.claim("b", 3).granted == 3


def test_a_small_job_does_not_overtake_a_big_one(slots: Slots) -> None:
    slots.enter("a", 0, 2)
    slots.claim("a", 2)
    slots.enter("b", 0, 3)
    slots.enter("c", 0, 1)
    assert slots.claim("c", 1).granted == 0
    assert slots.claim("b", 3).granted == 0


def test_a_higher_priority_goes_first(slots: Slots) -> None:
    slots.enter("a", 0, 4)
    slots.enter("b", 5, 4)
    assert slots.claim("a", 4).ahead == 1
    assert slots.claim("b", 4).granted == 4


def test_an_elastic_job_takes_what_there_is_and_grows_when_nobody_waits(slots: Slots) -> None:
    slots.enter("a", 0, 2)
    slots.claim("a", 2)
    slots.enter("b", 0, 1)
    assert slots.claim("b", 4).granted == 2
    slots.enter("c", 0, 4)
    slots.release("a")
    assert slots.claim("b", 4).granted == 2  # c waits
    slots.release("c")
    assert slots.claim("b", 4).granted == 4


def test_slots_are_given_back_in_part(slots: Slots) -> None:
    slots.enter("a", 0, 1)
    slots.claim("a", 4)
    slots.keep("a", 1)
    slots.enter("b", 0, 3)
    assert slots.claim("b", 3).granted == 3


def test_a_dead_job_in_the_way_is_dropped(slots: Slots, alive: set[str]) -> None:
    slots.enter("a", 0, 4)
    slots.claim("a", 4)
    slots.enter("b", 0, 4)
    slots.enter("c", 0, 1)
    assert slots.claim("c", 1).granted == 0
    alive.discard("a")
    alive.discard("b")
    assert slots.claim("c", 1).granted == 1


def test_a_job_that_was_just_submitted_is_not_taken_for_dead(tmp_path: Path) -> None:
    assert in_use(tmp_path, "a", 1.0)
    assert not in_use(tmp_path, "a", 60.0)
    (tmp_path / "a").mkdir()
    raise_epoch(JobDirectory(tmp_path / "a"))
    assert not in_use(tmp_path, "a", 1.0)  # it had a supervisor, and has none


def test_running_nodes_keep_their_slots_also_when_the_file_is_gone(slots: Slots) -> None:
    slots.enter("a", 0, 2)
    slots.claim("a", 3)
    assert slots.hold("a", 0, 2) == 3
    slots.path.unlink()
    assert slots.hold("a", 0, 3) == 3
    slots.enter("b", 0, 2)
    assert slots.claim("b", 2).free == 1


def test_a_job_without_a_row_gets_nothing(slots: Slots) -> None:
    assert slots.claim("a", 1).granted == 0


def test_entering_again_keeps_the_place(slots: Slots) -> None:
    for job in "aba":
        slots.enter(job, 0, 4)
    assert slots.claim("b", 4).ahead == 1
    assert slots.claim("a", 4).granted == 4


def test_a_damaged_file_is_named(slots: Slots) -> None:
    slots.path.parent.mkdir(parents=True)
    slots.path.write_text("nothing that sqlite knows, and quite a bit of it")
    with pytest.raises(InternalError, match=r"slots\.db"):
        slots.enter("a", 0, 1)


def test_a_failed_step_takes_nothing(slots: Slots) -> None:
    slots.enter("a", 0, 4)
    slots.claim("a", 4)
    slots.enter("b", 0, 1)

    def broken(job: str, age: float) -> bool:
        raise RuntimeError("cannot tell")

    slots.alive = broken
    with pytest.raises(RuntimeError):
        slots.claim("b", 1)
    rows = sqlite3.connect(slots.path).execute("SELECT job, granted FROM claims ORDER BY place").fetchall()
    assert rows == [("a", 4), ("b", 0)]
