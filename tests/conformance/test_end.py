"""How jobs end: by themselves, by their user's wish, by their limit; and how they are forgotten."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from petctl.errors import NotFound, UsageError
from petctl.jobs import JobHandle
from tests.conformance.backend import WAITING, Backend

Start = Callable[..., JobHandle]


def test_the_worker_that_fails_first_is_the_root_cause(backend: Backend, start: Start) -> None:
    handle = start("exit", "7", "1", nodes=2, restarts=0)
    backend.greeted(handle, 2)
    backend.running(handle, 2)
    backend.tell(handle, "go")
    end = handle.wait(backend.patience)
    assert (end.state, end.exit_code, end.final) == ("failed", 7, True)
    assert end.error is not None
    assert (end.error.rank, end.error.node, end.error.code, end.error.signal) == (1, "1", 7, "")
    assert "rank 1 on node 1 exited with code 7" in end.sentence


def test_restarts_are_used_up(backend: Backend, start: Start) -> None:
    handle = start("exit", "7", "0", nodes=1, restarts=1)
    backend.greeted(handle, 1)
    backend.running(handle, 1)
    backend.tell(handle, "go")  # which it finds in the next round, too
    end = handle.wait(backend.patience)
    assert (end.state, end.exit_code, end.spent, end.restarts, len(end.rounds)) == ("failed", 7, 1, 1, 2)


def test_a_cancelled_job_has_its_grace(backend: Backend, start: Start) -> None:
    handle = start("last-words", nodes=2, grace=30)
    backend.greeted(handle, 2)
    handle.cancel()
    end = handle.wait(backend.patience)
    assert (end.state, end.exit_code, end.spent) == ("cancelled", 130, 0)
    assert sorted(line.text for line in handle.logs() if line.text.startswith(b"last words")) == [
        b"last words of rank 0\n",
        b"last words of rank 1\n",
    ]


def test_a_killed_job_has_none(backend: Backend, start: Start) -> None:
    handle = start("stubborn", grace=600)
    backend.greeted(handle, 1)
    began = time.monotonic()
    handle.cancel(kill=True)
    end = handle.wait(backend.patience)
    assert time.monotonic() - began < backend.patience
    assert (end.state, end.exit_code) == ("cancelled", 130)


def test_who_has_cancelled_can_still_kill(backend: Backend, start: Start) -> None:
    handle = start("stubborn", grace=600)
    backend.greeted(handle, 1)
    handle.cancel()
    with pytest.raises(TimeoutError):
        handle.wait(0.5)
    handle.cancel(kill=True)
    assert handle.wait(backend.patience).state == "cancelled"


def test_a_job_that_has_not_begun_is_cancelled(backend: Backend, start: Start) -> None:
    backend.needs(WAITING)
    with backend.waiting() as fields:
        handle = start("wait", **fields)
        assert handle.status().state in ("pending", "queued", "starting")
        handle.cancel()
        end = handle.wait(backend.patience)
    assert (end.state, end.exit_code, end.rounds) == ("cancelled", 130, [])
    assert list(handle.logs()) == []


def test_a_job_over_its_time_is_ended(backend: Backend, start: Start) -> None:
    end = start("wait", max_time=1).wait(backend.patience)
    assert (end.state, end.exit_code) == ("failed", 124)
    assert "time limit of 1 s" in end.sentence
    assert end.finished
    assert end.started is None or end.finished - end.started > 0.9  # by other clocks; or before it had begun


def test_a_running_job_is_not_removed(backend: Backend, live: JobHandle) -> None:
    with pytest.raises(UsageError, match=f"{live.id} has not ended; cancel it first: petctl cancel {live.id}"):
        live.remove()
    assert live.status().state == "running"


@pytest.mark.parametrize("force", [False, True], ids=["after its end", "by force"])
def test_a_removed_job_leaves_nothing(backend: Backend, start: Start, force: bool) -> None:
    handle = start("wait" if force else "hello")
    backend.greeted(handle, 1)
    if not force:
        handle.wait(backend.patience)
    handle.remove(force)
    assert handle.id not in backend.connect().ids()
    with pytest.raises(NotFound):
        handle.status()
    assert not backend.left(handle.id)
