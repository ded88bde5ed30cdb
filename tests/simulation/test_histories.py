"""Random histories must keep every rule, and must notice when a rule is dropped from the machines."""

from __future__ import annotations

import os

import pytest

from petctl.rendezvous.core.member import Terminate
from tests.simulation.invariants import Violation
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.schedule import Schedule
from tests.simulation.script import Script
from tests.simulation.world import Inbox, World

HISTORIES = 2400
CHUNK = 50
SEARCH = 100  # histories in which a mutant must be caught


@pytest.mark.parametrize("start", range(0, HISTORIES, CHUNK))
def test_every_history_keeps_the_rules(start: int) -> None:
    for seed in range(start, start + CHUNK):
        try:
            Schedule(seed).run()
        except Violation as violation:
            pytest.fail(f"seed {seed}: {violation}; replay with python -m tests.simulation.schedule {seed}")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_every_mutant_is_caught(mutant: Mutant) -> None:
    machines = mutant.build()
    for seed in range(mutant.start, mutant.start + SEARCH):
        try:
            Schedule(seed, machines).run()
        except Violation:
            return
    pytest.fail(f"{SEARCH} histories did not notice that {mutant.name}")


@pytest.mark.slow
def test_many_histories() -> None:
    """The soak: as many as PETCTL_SCHEDULES says, beyond those that every run of the tests looks at."""
    for seed in range(HISTORIES, HISTORIES + int(os.environ.get("PETCTL_SCHEDULES", "100000"))):
        try:
            Schedule(seed).run()
        except Violation as violation:
            pytest.fail(f"seed {seed}: {violation}; replay with python -m tests.simulation.schedule {seed}")


def test_a_lost_agent_gives_its_failure_back_also_where_the_next_one_leaves_at_once() -> None:
    script = Script()
    for command in ("start 0 1 2", "fail 1", "isolate 1", "crash 1"):
        script.command(command.split())
    fleet = script.fleet
    assert fleet is not None
    fleet.world.isolated.clear()
    fleet.world.loss = 1.0  # of its first report: that it leaves is the first that is heard of it
    fleet.start_node("1")
    fleet.world.run_until(fleet.world.now + 0.001)
    fleet.world.loss = 0.0
    fleet.nodes["1"].step(Terminate("preempted"))
    fleet.world.run_until(fleet.world.now + 1.0)
    assert (fleet.charges, fleet.refunds) == (1, 1)


def test_two_that_crash_at_once_both_say_so() -> None:
    script = Script()
    script.command(["start", "0", "1", "2"])
    fleet = script.fleet
    assert fleet is not None
    fleet.nodes["0"].crash_slowly(0.2)
    fleet.nodes["1"].crash_slowly(0.2)
    fleet.world.run_until(fleet.world.now + 1.0)
    (said,) = (line for line in fleet.lines if "1 of 3 restarts used" in line and "round" not in line)
    assert "rank 0 on node 0 exited with code 1: an error of its own" in said
    assert "rank 4 on node 2 failed before it" in said


def test_what_comes_to_a_process_that_stands_still_longer_and_longer_stays_in_order() -> None:
    world, seen = World(0), list[object]()
    inbox = Inbox(world, seen.append)
    inbox.stand_still(1.0)
    inbox.put("disconnected")
    world.run_until(0.5)
    inbox.stand_still(1.0)
    inbox.put("connected")
    world.run_until(1.4)
    assert seen == []
    world.run_until(1.5)
    inbox.put("received")
    assert seen == ["disconnected", "connected", "received"]


def test_a_seed_is_a_whole_history() -> None:
    first, second = Schedule(7), Schedule(7)
    first.run()
    second.run()
    assert first.fleet.lines == second.fleet.lines
    assert first.fleet.messages == second.fleet.messages
