"""A job's size can be changed within its bounds while it runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from petctl.errors import PetctlError, UsageError
from petctl.jobs import JobHandle
from tests.conformance.backend import Backend


def test_a_job_grows_and_shrinks(backend: Backend, start: Callable[..., JobHandle]) -> None:
    handle = start("wait", nodes="1:1:3")
    backend.greeted(handle, 1)
    first = backend.running(handle, 1)
    assert "3" in handle.scale(3)
    backend.greeted(handle, 3, after=first.round)
    second = backend.running(handle, 3, after=first.round)
    assert (second.size.wanted, second.world_size) == (3, 3)
    assert "2" in handle.scale(2)
    backend.greeted(handle, 2, after=second.round)
    third = backend.running(handle, 2, after=second.round)
    assert [node.name for node in third.nodes] == ["0", "1"]
    assert third.size.wanted == 2
    assert JobHandle(handle.id, backend.connect()).scale(2)  # nothing is to be done, and that is no error
    backend.tell(handle, "finish")
    end = handle.wait(backend.patience)
    assert (end.state, end.spent, end.nodes_lost) == ("succeeded", 0, 0)
    assert [past.world_size for past in end.rounds] == [1, 3, 2]


def test_a_node_that_is_just_leaving_comes_back(backend: Backend, start: Callable[..., JobHandle]) -> None:
    handle = start("last-words", nodes="1:2:2")
    backend.greeted(handle, 2)
    before = backend.running(handle, 2)
    handle.scale(1)
    backend.seen(handle, lambda now: now.size.wanted == 1, "the smaller size")
    handle.scale(2)
    after = backend.running(handle, 2, after=before.round)
    assert (after.size.wanted, after.world_size, after.spent) == (2, 2, 0)


@pytest.mark.parametrize("size", [0, 4, -1])
def test_a_size_out_of_bounds_is_refused_with_the_bounds(backend: Backend, live: JobHandle, size: int) -> None:
    with pytest.raises(PetctlError, match=rf"{live.id} may have 1 to 3 nodes, not {size}") as told:
        live.scale(size)
    assert told.value.code == 2
    assert live.status().size.wanted == 2


def test_a_job_that_has_ended_is_not_scaled(backend: Backend, ended: JobHandle) -> None:
    with pytest.raises(UsageError, match="has ended"):
        ended.scale(2)
