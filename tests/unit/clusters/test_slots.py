"""The slots' file: each step happens as a whole, a file that is missing is made anew, and a damaged one is named."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from petctl.clusters.local.queue import slots as slots_module
from petctl.clusters.local.queue.scheduler import ALIVE, ENDED, READY, Claim
from petctl.clusters.local.queue.slots import Slots
from petctl.errors import InternalError


def claim(job: str, minimum: int = 1, wanted: int = 0, priority: int = 0, granted: int = 0) -> Claim:
    return Claim(job, priority, minimum, wanted or minimum, 4, granted)


def waiting(one: Claim) -> str:
    return ALIVE if one.granted else READY


@pytest.fixture
def slots(tmp_path: Path) -> Slots:
    return Slots(tmp_path)


def granted(slots: Slots) -> dict[str, int]:
    return {one.job: one.granted for one in slots.claims()}


def test_a_higher_priority_goes_first_and_equal_ones_as_they_came(slots: Slots) -> None:
    for one in (claim("a"), claim("b"), claim("c", priority=5), claim("b")):
        slots.enter(one)
    assert [one.job for one in slots.claims()] == ["c", "a", "b"]


def test_leaving_and_what_follows_from_it_are_one_step(slots: Slots) -> None:
    slots.enter(claim("a", 4))
    assert slots.settle(waiting).decision.call == ["a"]
    slots.enter(claim("b", 3))
    assert slots.settle(waiting).decision.call == ["b"]  # the head
    settled = slots.settle(waiting, leaver="a")
    assert settled.decision.grant == {"b": 3}
    assert [(one.job, one.granted) for one in settled.claims] == [("b", 3)]


def test_what_is_called_is_on_record_before_anybody_is_started(slots: Slots) -> None:
    slots.enter(claim("a"))
    slots.settle(waiting)
    (one,) = slots.claims()
    assert one.granted == 1
    assert one.called > 0


def test_a_sign_of_life_ends_the_count_only_of_one_who_waits(slots: Slots) -> None:
    slots.enter(claim("a", 4))
    slots.enter(claim("b", 4))
    slots.settle(waiting)
    for job in "ab":
        slots.started(job)
        slots.arrived(job)
    assert {one.job: one.lives for one in slots.claims()} == {"a": 1, "b": 0}


def test_a_job_grows_and_gives_back(slots: Slots) -> None:
    slots.enter(claim("a", 1, wanted=2))
    slots.settle(waiting)
    assert slots.grow("a", 3) == 3
    slots.enter(claim("b"))
    assert slots.grow("a", 4) == 3  # b waits
    slots.keep("a", 1, 1)
    assert slots.settle(waiting).decision.grant == {"b": 1}
    assert granted(slots) == {"a": 1, "b": 1}
    assert slots.grow("nobody", 4) == 0


def test_a_wish_of_one_who_waits_is_what_it_starts_with(slots: Slots) -> None:
    slots.enter(claim("a", 1))
    slots.want("a", 3)
    assert slots.settle(waiting).decision.grant == {"a": 3}


def test_back_in_line_at_the_old_place(slots: Slots) -> None:
    for job in "ab":
        slots.enter(claim(job, 4))
    slots.settle(waiting)
    slots.requeue("a")
    assert slots.settle(waiting).decision.grant == {"a": 4}


def test_running_nodes_keep_their_slots_also_when_the_file_is_gone(slots: Slots) -> None:
    assert slots.hold(claim("a", granted=2)) == 2
    assert slots.hold(claim("a", granted=1)) == 2
    slots.path.unlink()
    assert slots.hold(claim("a", granted=3)) == 3
    slots.enter(claim("b", 2))
    assert slots.settle(waiting).decision.grant == {}


def test_a_file_that_is_gone_is_made_anew_by_whoever_looks(tmp_path: Path) -> None:
    slots = Slots(tmp_path, found=lambda: [claim("a", granted=2), claim("b")])
    assert granted(slots) == {"a": 2, "b": 0}
    slots.release("a")
    slots.release("b")
    assert granted(slots) == {}
    for path in slots.path.parent.iterdir():
        path.unlink()
    slots.enter(claim("c"))
    assert granted(slots) == {"a": 2, "b": 0, "c": 0}


def test_a_file_of_an_older_petctl_is_made_anew(tmp_path: Path) -> None:
    slots = Slots(tmp_path, found=lambda: [claim("a")])
    slots.path.parent.mkdir(parents=True)
    with sqlite3.connect(slots.path) as database:
        database.execute("CREATE TABLE claims (place INTEGER PRIMARY KEY, job TEXT)")
    database.close()
    assert granted(slots) == {"a": 0}


def test_a_file_from_before_a_restart_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = Slots(tmp_path, found=lambda: [claim("a")])
    slots.enter(claim("b", granted=2))
    monkeypatch.setattr(slots_module, "_this_boot", lambda: 7)
    assert granted(slots) == {"a": 0}
    slots.enter(claim("c"))
    assert granted(slots) == {"a": 0, "c": 0}


def test_a_damaged_file_is_named(slots: Slots) -> None:
    slots.path.parent.mkdir(parents=True)
    slots.path.write_text("nothing that sqlite knows, and quite a bit of it")
    with pytest.raises(InternalError, match=r"slots\.db"):
        slots.enter(claim("a"))
    with pytest.raises(InternalError, match=r"slots\.db"):
        slots.claims()


def test_a_failed_step_changes_nothing(slots: Slots) -> None:
    slots.enter(claim("a", 4))
    slots.settle(waiting)
    slots.enter(claim("b"))

    def broken(one: Claim) -> str:
        raise RuntimeError("cannot tell")

    with pytest.raises(RuntimeError):
        slots.settle(broken, leaver="a")
    assert granted(slots) == {"a": 4, "b": 0}


def test_each_cluster_has_a_line_of_its_own(tmp_path: Path) -> None:
    Slots(tmp_path, "one").enter(claim("a"))
    assert granted(Slots(tmp_path, "two")) == {}
    assert (tmp_path / "clusters" / "one" / "slots.db").exists()


class Nodes:
    """A cluster with so many nodes; remembers when it was asked."""

    def __init__(self, count: int) -> None:
        self.count, self.held = count, 0
        self.asked: list[int] = []

    def total(self, database: sqlite3.Connection) -> int:
        self.asked.append(database.execute("SELECT count(*) FROM claims").fetchone()[0])
        return self.count

    def expected(self) -> int:
        return 0

    def committed(self) -> None:
        self.held += 1

    def closed(self) -> bool:
        return False


def test_a_cluster_s_own_nodes_are_counted_inside_each_step(tmp_path: Path) -> None:
    nodes = Nodes(0)
    (tmp_path / "clusters" / "fleet").mkdir(parents=True)  # as whoever made the cluster did
    slots = Slots(tmp_path, "fleet", nodes)
    slots.enter(claim("a", 2))
    assert (slots.settle(waiting).decision.grant, nodes.held) == ({}, 2)
    nodes.count = 2
    assert slots.settle(waiting).decision.grant == {"a": 2}
    nodes.asked.clear()
    slots.release("a")
    assert nodes.asked == [0]  # after the change, so that nodes that are to leave leave in the same step


def test_many_at_once_take_no_slot_twice(tmp_path: Path) -> None:
    names = [f"j{number}" for number in range(24)]
    grants: list[str] = []

    def work(job: str) -> None:
        slots = Slots(tmp_path)
        slots.enter(claim(job))
        for _ in range(3):
            grants.extend(slots.settle(lambda one: ALIVE).decision.grant)
            assert sum(one.granted for one in slots.claims()) <= 4

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(grants) == len(set(grants)) == 4
    assert len(Slots(tmp_path).claims()) == len(names)


def test_ended_jobs_are_let_go(slots: Slots) -> None:
    slots.enter(claim("a"))
    slots.settle(lambda one: ENDED)
    assert slots.claims() == []
