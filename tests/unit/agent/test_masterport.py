"""Ports that are held for tasks: nobody else gets them, and the tasks do, however they bind."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from petctl.agent.launchers import port_reservation
from petctl.agent.launchers.port_reservation import TaskPorts, first_handed_out


@pytest.fixture
def ports() -> Iterator[TaskPorts]:
    held = TaskPorts()
    yield held
    held.release()


def bind(port: int, reuse: bool) -> None:
    with socket.socket() as other:
        if reuse:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("", port))
        other.listen()


@pytest.mark.parametrize("reuse", [True, False])
def test_held_ports_are_nobody_elses_until_they_are_let_go(ports: TaskPorts, reuse: bool) -> None:
    found = ports.hold(5)
    assert len(set(found)) == 5
    for port in found:
        with pytest.raises(OSError, match="in use"):
            bind(port, reuse)
    ports.release()
    for port in found:
        bind(port, reuse)


def test_they_are_none_of_those_that_the_system_hands_out(ports: TaskPorts) -> None:
    if first_handed_out() < 12_000:
        pytest.skip("this system hands out nearly all ports")
    assert all(port < first_handed_out() for port in ports.hold(20))


def test_where_there_are_no_others_any_will_do(ports: TaskPorts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_reservation, "first_handed_out", lambda: 1024)
    assert len(set(ports.hold(3))) == 3


def test_holding_again_lets_the_old_ones_go(ports: TaskPorts) -> None:
    (old,) = ports.hold(1)
    ports.hold(1)
    bind(old, reuse=False)
