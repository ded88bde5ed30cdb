"""A coordinator that dies, in its container or with it: the same workers go on in the same round."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from petctl.agent.workers import processes
from petctl.job.status import JobStatus
from tests.integration.agent.conftest import alive
from tests.integration.controller.conftest import LEAVE_CODE, PodBench
from tests.integration.waiting import until


def test_a_killed_coordinator_is_back_in_its_container(bench: PodBench) -> None:
    bench.steps()
    container = bench.coordinate()
    nodes = [bench.node(index) for index in (0, 1)]
    workers = [bench.up(node, 1, 2) for node in nodes]
    assert bench.call("status")["epoch"] == 1_000_000
    before = bench.call("watch", seen=0, within=0.0)["version"]
    first = container.coordinator
    os.kill(first, signal.SIGKILL)
    until(lambda: container.events("continued"), "the round goes on")
    status = JobStatus.from_dict(bench.call("status"))
    assert container.coordinator != first
    assert (status.epoch, status.round, status.state) == (1_000_001, 1, "running")
    assert [past.number for past in status.rounds] == [1] and status.started is not None
    assert bench.call("watch", seen=before, within=20.0)["version"] > before
    assert all(alive(pid) for pid in workers)
    bench.go.touch()
    assert container.wait() == 0 and [node.wait() for node in nodes] == [0, 0]
    assert all(len(bench.lines(node)) == 1 for node in nodes)
    assert container.message()["rounds"] == 1
    bench.nothing_left()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a process namespace of its own")
def test_as_process_1_it_is_brought_back_and_can_be_stopped(bench: PodBench) -> None:
    bench.steps(nodes=1)
    container = bench.coordinate(inside=["unshare", "--pid", "--fork", "--kill-child"])
    node = bench.node(0)
    worker = bench.up(node, 1, 1)
    coordinator = container.coordinator
    first = processes.table()[coordinator].parent
    assert Path(f"/proc/{first}/status").read_text().split("NSpid:")[1].split()[1] == "1"
    os.kill(coordinator, signal.SIGKILL)
    until(lambda: container.events("continued"), "the round goes on")
    os.kill(first, signal.SIGTERM)
    assert container.wait() == 143 and alive(worker)


def test_a_wish_outlives_the_coordinator_that_heard_it(bench: PodBench) -> None:
    bench.steps(least=1, most=3)
    container = bench.coordinate()
    nodes = [bench.node(index) for index in (0, 1)]
    for node in nodes:
        bench.up(node, 1, 2)
    bench.call("scale", wanted=3)
    os.kill(container.coordinator, signal.SIGKILL)
    nodes.append(bench.node(2))
    for node in nodes:
        bench.up(node, 2, 3)
    assert bench.call("status")["size"]["wanted"] == 3
    bench.go.touch()
    assert container.wait() == 0


def test_another_container_takes_over_while_workers_step(bench: PodBench) -> None:
    bench.steps(least=1, most=3)
    first = bench.coordinate()
    nodes = [bench.node(index) for index in (0, 1)]
    for node in nodes:
        bench.up(node, 1, 2)
    bench.call("scale", wanted=1)
    assert nodes[1].wait() == LEAVE_CODE
    worker = bench.up(nodes[0], 2, 1)
    bench.kill(first)
    second = bench.coordinate(replacement=1)
    until(lambda: second.events("continued"), "the round goes on")
    status = JobStatus.from_dict(bench.call("status"))
    assert (status.epoch, status.round, status.state, status.size.wanted) == (2_000_000, 2, "running", 1)
    until(lambda: len(bench.call("status")["rounds"]) == 2, "what its node has kept of the time before")
    assert bench.call("status")["started"] == first.events("started")[0]["time"]
    assert second.events()[0]["kind"] == "replaced"
    assert alive(worker)
    bench.go.touch()
    assert second.wait() == 0 and nodes[0].wait() == 0
    assert bench.lines(nodes[0], 2) == [f"up {worker} 2 1"]
    bench.nothing_left()


def test_asked_to_stop_it_leaves_the_job_to_the_next(bench: PodBench) -> None:
    bench.steps(nodes=1)
    first = bench.coordinate()
    node = bench.node(0)
    worker = bench.up(node, 1, 1)
    first.process.send_signal(signal.SIGTERM)
    assert first.wait() == 143
    assert first.message_path.read_bytes() == b"" and not first.events("closing")
    assert alive(worker)
    second = bench.coordinate(replacement=1)
    until(lambda: second.events("continued"), "the round goes on")
    bench.go.touch()
    assert second.wait() == 0 and node.wait() == 0


def test_an_end_that_is_on_record_stays(bench: PodBench) -> None:
    """Killed between the record and the nodes' going: the next process closes the job, and only that."""
    bench.describe("shell", ["trap '' TERM; echo up; sleep 600 & wait; wait"], nodes=1, grace=3.0)
    container = bench.coordinate()
    node = bench.node(0)
    until(lambda: bench.lines(node), "the worker works")
    bench.call("cancel")
    until(lambda: container.message_path.read_bytes(), "the end is on record")
    recorded = container.message()
    os.kill(container.coordinator, signal.SIGKILL)
    assert container.wait() == 0 and node.wait() == 0
    assert container.message() == recorded and recorded["outcome"]["state"] == "cancelled"
    final = JobStatus.from_dict(container.events("final")[0]["status"])
    assert final.state == "cancelled" and final.finished == recorded["finished"]
    bench.nothing_left()


def test_stopped_after_the_end_it_says_how_the_job_ended(bench: PodBench) -> None:
    bench.describe("shell", ["trap '' TERM; echo up; sleep 600 & wait; wait"], nodes=1, grace=600.0)
    container = bench.coordinate()
    node = bench.node(0)
    until(lambda: bench.lines(node), "the worker works")
    bench.call("cancel")
    until(lambda: container.message_path.read_bytes(), "the end is on record")
    container.process.send_signal(signal.SIGTERM)
    assert container.wait() == 0


def test_an_old_coordinator_gives_way(bench: PodBench) -> None:
    """Nodes that know a newer one do not obey it, and it ends when it hears of that."""
    bench.steps(nodes=1)
    first = bench.coordinate(replacement=5)
    node = bench.node(0)
    bench.up(node, 1, 1)
    bench.kill(first)
    old = bench.coordinate(replacement=2)
    assert old.wait() == 91
    assert old.events()[-1]["kind"] == "deposed"
    third = bench.coordinate(replacement=6)
    bench.go.touch()
    assert third.wait() == 0 and node.wait() == 0


def test_a_coordinator_that_cannot_live_is_given_up(bench: PodBench) -> None:
    """Its port is taken: ten tries, with pauses, and then whoever made the container may try elsewhere."""
    bench.steps(nodes=1)
    first = bench.coordinate()
    bench.call("status")
    second = bench.coordinate(replacement=1)
    assert second.wait(100) == 1
    log = (second.out.parent / "err").read_text()
    assert log.count("restarting it") == 9 and "10 times in a row" in log
    assert log.count(f"cannot listen on 127.0.0.1, port {bench.port}") == 10 and "Traceback" not in log
    assert alive(first.process.pid)


def test_wrong_material_is_said_once(bench: PodBench) -> None:
    bench.steps(nodes=1)
    (bench.material / "job.json").write_text('{"task": 3}')
    container = bench.coordinate()
    assert container.wait() == 2
    log = (container.out.parent / "err").read_text()
    assert "is not the record of a job" in log and "Traceback" not in log and log.count("\n") == 1


def test_the_rounds_before_a_replaced_coordinator_are_known_to_the_next_and_so_is_what_was_lost(
    bench: PodBench,
) -> None:
    bench.steps(nodes=2, least=1, most=2, recover_within=1.0)
    first = bench.coordinate()
    nodes = [bench.node(index) for index in (0, 1)]
    for node in nodes:
        bench.up(node, 1, 2)
    started = bench.call("status")["started"]
    nodes[1].terminate()
    bench.up(nodes[0], 2, 1)
    nodes.append(bench.node(1))
    bench.up(nodes[0], 3, 2)
    before = bench.call("status")["rounds"]
    assert [entry["number"] for entry in before] == [1, 2, 3]

    bench.kill(first)  # with its container, and all that it remembered
    second = bench.coordinate(replacement=1)
    until(lambda: second.events("continued"), "the round goes on")
    status = until(lambda: bench.call("status") if len(bench.call("status")["rounds"]) == 3 else None, "its rounds")
    assert status["rounds"] == before and status["started"] == started

    bench.kill(second)  # and a node with it
    away = time.time()
    victims = {nodes[2].process.pid, *processes.descendants(nodes[2].process.pid, processes.table())}
    processes.signal_each(victims, signal.SIGKILL)
    third = bench.coordinate(replacement=2)
    bench.up(nodes[0], 4, 1)
    status = until(lambda: bench.call("status") if len(bench.call("status")["rounds"]) == 4 else None, "its rounds")
    last = status["rounds"][-1]
    assert [entry["number"] for entry in status["rounds"]] == [1, 2, 3, 4]
    assert 1.0 < last["seconds_lost"] <= last["started"] - away + 1.0
    bench.go.touch()
    assert third.wait() == 0
    bench.nothing_left()
