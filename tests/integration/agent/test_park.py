"""Workers that park: they keep their process from round to round, and whatever they do instead harms nobody."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from petctl.rendezvous.core.messages import CANCELLED
from tests.integration.agent.conftest import Bench, alive
from tests.integration.waiting import DEADLINE, until

WORKER = str(Path(__file__).with_name("elastic_worker.py"))


class Fact(NamedTuple):
    """What a worker says of itself at the beginning of a round."""

    round: int
    rank: int
    world: int
    port: int
    pid: int


def fact(bench: Bench, number: int, rank: int = 0) -> Fact:
    path = bench.log(rank, number=number)
    pattern = re.compile(r"^(\d+) (\d+) of (\d+) at (\d+), pid (\d+)$", re.M)
    found = until(lambda: path.exists() and pattern.search(path.read_text()), f"{path} tells of its round")
    until(bench.elastic, "the agents know that their workers can park")  # and have said so
    return Fact(*(int(text) for text in found.groups()))


def child_of(pid: int) -> int:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return int(until(path.read_text, "the child runs").split()[0])


def test_the_survivor_keeps_its_process_and_opens_the_next_store(bench: Bench) -> None:
    bench.open("script", [WORKER], nodes=2, min_nodes=1, procs="2")
    nodes = [bench.agent(node=name) for name in ("n0", "n1")]
    before = [fact(bench, 1, rank) for rank in range(4)]
    os.kill(nodes[0].process.pid, signal.SIGKILL)
    after = [fact(bench, 2, rank) for rank in (0, 1)]
    assert [f.pid for f in after] == [f.pid for f in before[2:]]
    assert {f.world for f in after} == {2} and after[0].port == after[1].port
    listening = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    assert re.search(f":{after[0].port:04X} 0+:0000 0A", listening), "its own store listens there"
    bench.cancel()
    assert bench.ended().state == CANCELLED
    assert nodes[1].wait() == 130
    bench.nothing_left()


def test_a_failed_worker_is_replaced_and_its_neighbour_stays(bench: Bench) -> None:
    bench.open("script", [WORKER, "child"], procs="2", restarts=2)
    bench.agent()
    first, second = fact(bench, 1, 0), fact(bench, 1, 1)
    child = child_of(second.pid)
    orphan = child_of(first.pid)
    os.kill(first.pid, signal.SIGKILL)
    again = [fact(bench, 2, rank) for rank in (0, 1)]
    assert again[0].pid != first.pid and again[1].pid == second.pid
    assert alive(child) and not alive(orphan)
    bench.cancel()
    bench.ended()
    bench.nothing_left()


@pytest.mark.parametrize("habit", ["park=ignore", "park=close", "park=plain", "park=exit"])
def test_who_does_not_park_is_ended_and_started_anew(bench: Bench, habit: str) -> None:
    bench.open("script", [WORKER, habit, "term=ignore"], nodes=2, min_nodes=1, grace=0.5)
    nodes = [bench.agent(node=name) for name in ("n0", "n1")]
    second = fact(bench, 1, 1)
    os.kill(nodes[0].process.pid, signal.SIGKILL)
    again = fact(bench, 2, 0)
    assert again.pid != second.pid and not alive(second.pid)
    bench.cancel()
    bench.ended()
    assert nodes[1].wait() == 130
    bench.nothing_left()


def test_who_takes_long_to_abort_its_collectives_keeps_its_process(bench: Bench) -> None:
    bench.open("script", [WORKER, "park=abort"], nodes=2, min_nodes=1)
    nodes = [bench.agent(node=name) for name in ("n0", "n1")]
    second = fact(bench, 1, 1)
    os.kill(nodes[0].process.pid, signal.SIGKILL)
    assert fact(bench, 2, 0).pid == second.pid
    bench.cancel()
    bench.ended()
    bench.nothing_left()


def test_a_worker_that_opens_no_store_costs_a_second_and_no_more(bench: Bench) -> None:
    bench.open("script", [WORKER, "bind=ignore"], restarts=1, procs="2")
    bench.agent()
    first, second = fact(bench, 1, 0), fact(bench, 1, 1)
    os.kill(second.pid, signal.SIGKILL)
    again = fact(bench, 2, 0)
    assert again.pid == first.pid and again.port != first.port
    bench.cancel()
    bench.ended()


def test_dying_on_the_way_into_a_round_is_a_failure_of_that_round(bench: Bench) -> None:
    bench.open("script", [WORKER, "run=exit"], restarts=1, procs="2")
    bench.agent()
    fact(bench, 1, 0)
    os.kill(fact(bench, 1, 1).pid, signal.SIGKILL)
    outcome = bench.ended()
    assert outcome.failure is not None and (outcome.failure.rank, outcome.code) == (0, 3)
    bench.nothing_left()


def test_a_parked_worker_that_dies_is_started_anew(bench: Bench) -> None:
    bench.open("script", [WORKER], nodes=2)
    nodes = [bench.agent(node=name) for name in ("n0", "n1")]
    second = fact(bench, 1, 1)
    os.kill(nodes[0].process.pid, signal.SIGKILL)
    log = bench.log(1)
    until(lambda: "park " in log.read_text(), "the survivor is parked")
    until(lambda: bench.status()["nodes"][0]["state"] == "prepared", "and its node says so")
    os.kill(second.pid, signal.SIGKILL)
    until(lambda: not alive(second.pid), "it is dead")
    bench.agent(node="n0")
    assert fact(bench, 2, 0).pid != second.pid
    assert fact(bench, 2, 1).round == 2
    assert bench.status()["spent"] == 0
    bench.cancel()
    bench.ended()
    bench.nothing_left()


def test_a_planned_change_leaves_the_moment_to_the_workers(bench: Bench) -> None:
    bench.open("script", [WORKER], nodes=2, min_nodes=1, grace=7.0)
    nodes = [bench.agent(node=name) for name in ("n0", "n1")]
    second = fact(bench, 1, 1)
    fact(bench, 1, 0)
    bench.scale(1, "n0")
    assert fact(bench, 2, 0).pid == second.pid
    assert nodes[0].wait() == 0
    assert '"final": true, "planned": true' in bench.log(0).read_text()
    park = until(lambda: re.search("^park (.*})$", bench.log(1).read_text(), re.M), "asked to park").group(1)
    order = json.loads(park)
    assert (order["final"], order["planned"], order["round"]) == (False, True, 1)
    assert order["within"] == pytest.approx(7.0)  # counted on a clock that has been running for days
    bench.cancel()
    bench.ended()


def test_the_end_of_the_agent_is_the_end_of_parked_workers(bench: Bench) -> None:
    bench.open("script", [WORKER, "term=ignore"], nodes=2, grace=10 * DEADLINE)
    nodes = [bench.agent(node=name) for name in ("n0", "n1")]
    second = fact(bench, 1, 1)
    os.kill(nodes[0].process.pid, signal.SIGKILL)
    until(lambda: bench.status()["nodes"][0]["state"] == "prepared", "the survivor is parked")
    assert alive(second.pid)
    begun = time.monotonic()
    nodes[1].terminate()
    assert nodes[1].wait() == 0
    assert not alive(second.pid) and time.monotonic() - begun < DEADLINE
    bench.nothing_left()


@pytest.mark.parametrize("habit", ["", "early=exit"])
def test_a_newcomer_has_its_workers_ready_before_the_others_stop(bench: Bench, habit: str) -> None:
    bench.open("script", [WORKER, habit], nodes=2, min_nodes=1, eager=True, warm=False)
    nodes = [bench.agent(node=name) for name in ("n0", "n1")]
    survivor = fact(bench, 1, 0)
    fact(bench, 1, 1)
    os.kill(nodes[1].process.pid, signal.SIGKILL)
    assert fact(bench, 2, 0) == survivor._replace(round=2, world=1, port=fact(bench, 2, 0).port)
    nodes[1].wait()
    bench.agent(node="n1")
    newcomer = fact(bench, 3, 1)
    assert fact(bench, 3, 0).pid == survivor.pid
    early = int((bench.logs / "early-n1-0.out").read_text().splitlines()[0].split()[-1])
    assert (newcomer.pid == early) is (habit == "")
    assert bench.status()["spent"] == 0
    bench.cancel()
    bench.ended()
    bench.nothing_left()


@pytest.mark.parametrize("victim", ["agent", "guardian", "both"])
def test_a_killed_node_leaves_no_socket(bench: Bench, victim: str) -> None:
    bench.open("script", [WORKER])
    node = bench.agent()
    pid = fact(bench, 1).pid
    environment = Path(f"/proc/{pid}/environ").read_text()
    (path,) = [Path(v.partition("=")[2]) for v in environment.split("\0") if v.startswith("PETCTL_AGENT_SOCKET=")]
    assert path.is_socket() and path.parent.stat().st_mode & 0o777 == 0o700
    agent = node.agent
    for number in {"agent": [agent], "guardian": [node.process.pid], "both": [node.process.pid, agent]}[victim]:
        os.kill(number, signal.SIGKILL)
    node.wait()
    bench.nothing_left()
    if victim == "both":
        assert bench.agent().state == node.state
        until(lambda: len(bench.left()) >= 3, "the next life runs")
        until(path.is_socket, "in the same directory")
        bench.cancel()
        bench.ended()
        bench.nothing_left()
    until(lambda: not path.parent.exists(), "the private directory is gone")


def test_after_a_second_interrupt_nobody_is_waited_for(bench: Bench) -> None:
    bench.open("script", [WORKER, "park=ignore", "term=ignore"], grace=600.0)
    node = bench.agent()
    pid = fact(bench, 1).pid
    node.process.send_signal(signal.SIGINT)
    until(lambda: "park " in bench.log().read_text(), "the first one is obeyed")
    assert alive(pid)
    node.process.send_signal(signal.SIGINT)
    assert node.wait() == 0
    assert not alive(pid)
