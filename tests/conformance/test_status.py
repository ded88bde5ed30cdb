"""Where a job stands is told truly, in time, and for good once it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from petctl.jobs import JobHandle, Status
from tests.conformance.backend import Backend

Start = Callable[..., JobHandle]
LIFE = ("pending", "queued", "starting", "running", "succeeded")


def test_a_whole_life_is_told_in_its_order(backend: Backend, start: Start) -> None:
    handle = start("wait", nodes=2)
    status = handle.status()
    told = [status.state]

    def ran(status: Status) -> bool:
        told.append(status.state)
        return status.state == "running" and len(status.nodes) == 2

    backend.seen(handle, ran, "it runs")
    backend.greeted(handle, 2)
    backend.tell(handle, "finish")
    end = handle.wait(backend.patience)
    places = [LIFE.index(state) for state in [*told, end.state]]
    assert places == sorted(places), told
    assert (end.state, end.exit_code, end.final, end.spent, end.error) == ("succeeded", 0, True, 0, None)
    assert end.started and end.finished and end.submitted <= end.started <= end.finished
    assert end.sentence and end.command.startswith("worker.py wait")


def test_a_running_job_tells_its_nodes_and_ranks(backend: Backend, live: JobHandle) -> None:
    status = backend.running(live, 2)
    assert [(node.name, node.rank, node.ranks) for node in status.nodes] == [("0", 0, [0]), ("1", 1, [1])]
    assert (status.world_size, status.exit_code, status.finished, status.final) == (2, None, None, False)
    (only,) = status.rounds
    assert (only.number, only.nodes, only.world_size) == (status.round, ["0", "1"], 2)
    assert only.members == {"0": [0, 1], "1": [1, 1]}


def test_watch_returns_when_something_changes(backend: Backend, start: Start) -> None:
    handle, cluster = start("wait"), backend.connect()
    backend.greeted(handle, 1)
    backend.running(handle, 1)
    with ThreadPoolExecutor(1) as pool:
        seen, began = cluster.status(handle.id), time.monotonic()
        watched = pool.submit(cluster.watch, handle.id, seen, 4 * backend.patience)
        backend.tell(handle, "finish")
        assert watched.result() != seen
    assert time.monotonic() - began < backend.patience


def test_watch_returns_when_its_time_is_over(backend: Backend, live: JobHandle) -> None:
    """Of the cluster itself: a handle asks it again."""
    cluster = backend.connect()
    backend.running(live, 2)
    for _ in range(5):  # what is new of the last seconds may still come
        before, began = cluster.status(live.id), time.monotonic()
        after = cluster.watch(live.id, before, 0.5)
        if after == before:
            break
    assert after == before
    assert 0.4 < time.monotonic() - began < backend.patience / 2


def test_waiting_for_an_end_that_does_not_come_is_given_up(backend: Backend, live: JobHandle) -> None:
    with pytest.raises(TimeoutError, match=live.id):
        live.wait(0.2)


def test_the_last_status_does_not_change(backend: Backend, ended: JobHandle) -> None:
    before = ended.status()
    assert before.final and before.finished
    assert "ended already" in ended.cancel()
    assert ended.status() == before == ended.wait(1) == ended.watch(timeout=0.1)
    assert ended.watch(before, 0.2) == before
    assert before.nodes == [] or {node.state for node in before.nodes} == {"gone"}


def test_events_come_oldest_first_and_tell_the_life(backend: Backend, ended: JobHandle) -> None:
    events = list(ended.events())
    times, kinds = [event["time"] for event in events], [event["kind"] for event in events]
    assert times == sorted(times)
    assert all(event["sentence"] for event in events)
    of_life = [kind for kind in kinds if kind in ("started", "round", "running", "failure", "closing")]
    assert of_life == ["started", "round", "running", "failure", "round", "running", "closing"]
    assert [event["round"] for event in events if event["kind"] == "running"] == [1, 2]


def test_events_are_followed_to_the_end_of_the_job(backend: Backend, start: Start) -> None:
    handle = start("wait")
    following, kinds = handle.events(follow=True), list[str]()
    for event in following:
        kinds.append(event["kind"])
        if event["kind"] == "running":
            backend.running(handle, 1)
            backend.tell(handle, "finish")
    assert "running" in kinds and "closing" in kinds
    assert handle.wait(backend.patience).state == "succeeded"
    assert [event["kind"] for event in handle.events()][: len(kinds)] == kinds
