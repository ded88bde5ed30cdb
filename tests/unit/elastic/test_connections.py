"""Only the connections of the groups are cut, whatever else the process has open."""

from __future__ import annotations

import os
import socket
import threading
from typing import Iterator

import pytest

from petctl.elastic.groups.connections import Connections

_socketcall = socket.socket.__init__


def library_pair() -> tuple[int, socket.socket]:
    """A TCP connection as a C library makes it: no Python socket has the first end."""
    listener = socket.create_server(("127.0.0.1", 0))
    near = socket.socket()
    near.connect(listener.getsockname())
    far, _ = listener.accept()
    listener.close()
    return near.detach(), far


@pytest.fixture
def opened() -> Iterator[list[int | socket.socket]]:
    things: list[int | socket.socket] = []
    yield things
    for thing in things:
        if isinstance(thing, int):
            os.close(thing)
        else:
            thing.close()


def is_cut(far: socket.socket) -> bool:
    """Whether its other end was shut."""
    far.settimeout(0.2)
    try:
        return far.recv(1) == b""
    except TimeoutError:
        return False


def make_as_a_library(connections: Connections) -> tuple[int, socket.socket]:
    """The same, while it is watched; Python's own part of it stays unseen."""
    with connections.watching():
        seen, socket.socket.__init__ = socket.socket.__init__, _socketcall  # type: ignore[method-assign]
        try:
            return library_pair()
        finally:
            socket.socket.__init__ = seen  # type: ignore[method-assign]


def test_what_appeared_while_watching_is_cut(opened: list[int | socket.socket]) -> None:
    connections = Connections()
    before, before_far = library_pair()
    ours, ours_far = make_as_a_library(connections)
    after, after_far = library_pair()
    opened += [before, before_far, ours, ours_far, after, after_far]
    connections.cut()
    assert is_cut(ours_far)
    assert not is_cut(before_far) and not is_cut(after_far)


def test_python_sockets_of_other_threads_are_not_the_groups(opened: list[int | socket.socket]) -> None:
    connections = Connections()
    made: list[socket.socket] = []

    def connect() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            made.append(socket.create_connection(listener.getsockname()))
            made.append(listener.accept()[0])

    with connections.watching():
        thread = threading.Thread(target=connect)
        thread.start()
        thread.join(5)
    opened += made
    connections.cut()
    assert not is_cut(made[1])
    assert socket.socket.__init__ is _socketcall


def test_a_descriptor_that_was_given_to_somebody_else_is_not_touched(opened: list[int | socket.socket]) -> None:
    connections = Connections()
    ours, ours_far = make_as_a_library(connections)
    ours_far.close()
    other, other_far = library_pair()
    os.dup2(other, ours)  # the group closed its own, and another library got the number
    opened += [ours, other, other_far]
    connections.cut()
    assert not is_cut(other_far)


def test_listening_sockets_stay(opened: list[int | socket.socket]) -> None:
    connections = Connections()
    with connections.watching():
        seen, socket.socket.__init__ = socket.socket.__init__, _socketcall  # type: ignore[method-assign]
        listener = socket.create_server(("127.0.0.1", 0))
        socket.socket.__init__ = seen  # type: ignore[method-assign]
    opened.append(listener)
    connections.cut()
    opened.append(socket.create_connection(listener.getsockname(), 5))


def test_what_is_made_during_or_after_the_cut_is_cut_too_until_the_next_round(
    opened: list[int | socket.socket],
) -> None:
    connections = Connections()
    connections.cut()
    late, late_far = make_as_a_library(connections)
    assert is_cut(late_far)
    connections.forget()
    fresh, fresh_far = make_as_a_library(connections)
    opened += [late, late_far, fresh, fresh_far]
    assert not is_cut(fresh_far)
    connections.cut()
    assert is_cut(fresh_far)


def test_a_cut_from_another_thread_reaches_what_is_being_made(opened: list[int | socket.socket]) -> None:
    connections = Connections()
    with connections.watching():
        seen, socket.socket.__init__ = socket.socket.__init__, _socketcall  # type: ignore[method-assign]
        ours, ours_far = library_pair()
        socket.socket.__init__ = seen  # type: ignore[method-assign]
        thread = threading.Thread(target=connections.cut)
        thread.start()
        thread.join(5)
        assert is_cut(ours_far)
    opened += [ours, ours_far]
