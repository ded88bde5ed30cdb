"""Whatever is lost, the job goes on; what is the program's own fault is charged, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable

from petctl.jobs import JobHandle
from tests.conformance.backend import LOSE_CONTROLLER, LOSE_NODE, Backend

Start = Callable[..., JobHandle]


def test_a_killed_worker_costs_one_restart(backend: Backend, ended: JobHandle) -> None:
    status = ended.status()
    assert (status.state, status.spent, status.nodes_lost, len(status.rounds)) == ("succeeded", 1, 0, 2)
    assert status.last_failure is not None
    failure = status.last_failure
    assert (failure.rank, failure.node, failure.signal, failure.code) == (1, "1", "SIGKILL", 137)


def test_a_lost_node_is_replaced_and_costs_nothing(backend: Backend, start: Start) -> None:
    backend.needs(LOSE_NODE)
    handle = start("wait", nodes=2, restarts=0)
    first = backend.greeted(handle, 2)
    backend.running(handle, 2)
    backend.lose_node(handle, "1")
    second = backend.greeted(handle, 2, after=first[0].round)
    assert second[0].node == "0"  # it keeps its rank; the other may have another name
    backend.running(handle, 2, after=first[0].round)
    backend.tell(handle, "finish")
    end = handle.wait(backend.patience)
    assert (end.state, end.spent) == ("succeeded", 0), list(handle.events())


def test_a_lost_controller_disturbs_nobody(backend: Backend, start: Start) -> None:
    backend.needs(LOSE_CONTROLLER)
    handle = start("wait", nodes=2, restarts=1)
    backend.greeted(handle, 2)
    backend.running(handle, 2)
    backend.tell(handle, "die-1", "1")
    second = backend.greeted(handle, 2, after=1)
    before = backend.running(handle, 2, after=1)
    backend.lose_controller(handle)
    after = backend.seen(handle, lambda now: now.epoch > before.epoch and now.state == "running", "another one")
    assert (after.round, after.spent, len(after.rounds)) == (2, 1, 2), after
    backend.running(handle, 2)
    backend.tell(handle, "finish")
    end = handle.wait(backend.patience)
    assert (end.state, end.spent, [past.number for past in end.rounds]) == ("succeeded", 1, [1, 2])
    assert backend.greeted(handle, 2, after=1) == second
    assert len([line for line in handle.logs(round=2) if b" by " in line.text]) == 2
