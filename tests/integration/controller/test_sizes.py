"""Jobs whose nodes an operator makes: which of them it is told to give up, and what becomes of them."""

from __future__ import annotations

import os
import signal

import pytest

from petctl.errors import PetctlError
from petctl.job.status import JobStatus
from tests.integration.agent.conftest import Node, alive
from tests.integration.controller.conftest import LEAVE_CODE, PodBench
from tests.integration.waiting import DEADLINE, until


def test_an_operator_is_told_which_node_costs_least(bench: PodBench) -> None:
    bench.steps(nodes=2, least=1, most=4, numbered=False)
    container = bench.coordinate()
    nodes = {index: bench.node(index) for index in (0, 1)}
    for node in nodes.values():
        bench.up(node, 1, 2)
    assert bench.call("resize", wanted=2, nodes=["0", "1"]) == {"sentence": "already at 2 nodes", "release": []}
    with pytest.raises(PetctlError, match="1 to 4 nodes, not 5"):
        bench.call("resize", wanted=5, nodes=["0", "1"])
    # There is no node 2 or 3: the one with number 7 belongs to the job all the same.
    answer = bench.call("resize", wanted=3, nodes=["0", "1", "7"])
    assert answer == {"sentence": "scaling from 2 to 3 nodes", "release": []}
    nodes[7] = bench.node(7)
    for node in nodes.values():
        bench.up(node, 2, 3)
    # Its machine says that it will go: nobody else has to.
    nodes[1].terminate()
    until(lambda: len(bench.call("status")["nodes"]) == 2, "node 1 has left")
    answer = bench.call("resize", wanted=2, nodes=["0", "1", "7"])
    assert answer == {"sentence": "scaling from 3 to 2 nodes; it can release 1", "release": ["1"]}
    bench.up(nodes[0], 3, 2)
    answer = bench.call("resize", wanted=1, nodes=["0", "7"])
    assert answer["release"] == ["7"]  # not rank 0's
    assert bench.call("resize", wanted=1, nodes=["0", "7"])["release"] == ["7"]
    assert [nodes[1].wait(), nodes[7].wait()] == [LEAVE_CODE, LEAVE_CODE]
    bench.up(nodes[0], 4, 1)
    assert bench.call("resize", wanted=1, nodes=["0", "7"])["release"] == ["7"]
    assert bench.call("resize", wanted=1, nodes=["0"])["release"] == []
    status = JobStatus.from_dict(bench.call("status"))
    assert (status.round, status.state, status.spent, status.size.wanted) == (4, "running", 0, 1)
    bench.go.touch()
    assert container.wait() == 0 and nodes[0].wait() == 0
    bench.nothing_left()


def works(bench: PodBench, node: Node, size: int) -> None:
    """Waits until a node's newest workers are of a round of this size, whichever number it has."""
    until(lambda: [line for line in bench.lines(node) if line.startswith("up ")][-1].endswith(f" {size}"), "workers")


def test_a_release_outlives_the_coordinator_that_chose_it(bench: PodBench) -> None:
    bench.steps(nodes=3, least=1, numbered=False)
    container = bench.coordinate()
    nodes = [bench.node(index) for index in (0, 1, 2)]
    for node in nodes:
        bench.up(node, 1, 3)
    first = container.coordinator
    [spared] = bench.call("resize", wanted=2, nodes=["0", "1", "2"])["release"]
    os.kill(first, signal.SIGKILL)
    assert nodes[int(spared)].wait() == LEAVE_CODE
    left = [node for index, node in enumerate(nodes) if index != int(spared)]
    for node in left:
        works(bench, node, 2)
    # One of the others is lost, too; it will come again, so it is not the one to give up.
    other = next(index for index in (2, 1, 0) if index != int(spared))
    nodes[other].terminate()
    assert nodes[other].wait() == LEAVE_CODE
    until(lambda: len(bench.call("status")["nodes"]) == 1, "it has gone")
    assert bench.call("resize", wanted=2, nodes=["0", "1", "2"])["release"] == [spared]
    again = bench.node(other)
    until(lambda: bench.lines(again), "it is back")
    works(bench, again, 2)
    bench.go.touch()
    assert container.wait() == 0


def test_another_container_asks_the_nodes_before_it_gives_one_up(bench: PodBench) -> None:
    """Asked before anybody has reported, it would name nodes that are hard at work."""
    bench.steps(nodes=3, least=1, numbered=False)
    first = bench.coordinate()
    nodes = [bench.node(index) for index in (0, 1, 2)]
    for node in nodes:
        bench.up(node, 1, 3)
    ranks = {node["name"]: node["rank"] for node in bench.call("status")["nodes"]}
    bench.kill(first)
    second = bench.coordinate(replacement=1)
    [spared] = bench.call("resize", wanted=2, nodes=["0", "1", "2"])["release"]
    assert ranks[spared] == 2
    assert nodes[int(spared)].wait() == LEAVE_CODE
    bench.go.touch()
    assert second.wait() == 0


def test_a_resumed_job_does_not_wait_for_nodes_that_are_gone(bench: PodBench) -> None:
    bench.steps(nodes=2, least=1, numbered=False, recover_within=10 * DEADLINE)
    container = bench.coordinate("--nobody", replacement=3)
    until(lambda: container.events("round"), "a round is prepared")
    nodes = [bench.node(0)]
    until(lambda: bench.call("status")["nodes"], "the first node has joined")
    nodes.append(bench.node(1))  # the first has waited for it
    workers = [bench.up(node, 1, 2) for node in nodes]
    status = JobStatus.from_dict(bench.call("status"))
    assert (status.epoch, status.round, status.state) == (4_000_000, 1, "running")
    # Its next process in this container has the same words, and by now somebody runs.
    os.kill(container.coordinator, signal.SIGKILL)
    until(lambda: container.events("continued"), "the round goes on")
    assert all(alive(pid) for pid in workers)
    assert bench.call("status")["epoch"] == 4_000_001
    bench.go.touch()
    assert container.wait() == 0 and [node.wait() for node in nodes] == [0, 0]
    bench.nothing_left()


def test_an_exit_code_that_is_not_retried_ends_the_job(bench: PodBench) -> None:
    """The first failure is by a signal, and is restarted from; the second is by a code that ends it."""
    line = "test $PETCTL_ROUND = 1 || exit 9; kill -KILL $$"
    bench.describe("shell", [line], nodes=1, restarts=5, retry_on=((129, 192),))
    container = bench.coordinate()
    node = bench.node(0)
    assert container.wait() == 0 and node.wait() == 0
    message = container.message()
    assert (message["outcome"]["state"], message["outcome"]["code"], message["spent"]) == ("failed", 9, 1)
    assert message["outcome"]["sentence"] == ("rank 0 on node 0 exited with code 9 (exit code 9 is not in retry_on)")
    assert [event["failure"]["code"] for event in container.events("failure")] == [137]


def test_the_size_that_was_asked_for_last_outlives_all_pods(bench: PodBench) -> None:
    bench.steps(nodes=1, least=1, most=3)
    (bench.material / "wanted").write_text("2")  # as a cluster keeps it after a scale
    container = bench.coordinate(replacement=1)
    nodes = [bench.node(index) for index in (0, 1)]
    for node in nodes:
        bench.up(node, 1, 2)
    assert bench.call("status")["size"] == {"min": 1, "wanted": 2, "max": 3}
    bench.go.touch()
    assert container.wait() == 0
    bench.nothing_left()
