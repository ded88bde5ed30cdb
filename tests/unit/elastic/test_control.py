"""What becomes of a worker whose groups cannot be cut, or whose orders end in an error."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from petctl.elastic.channel import Channel
from petctl.elastic.control import Control
from petctl.elastic.groups.groups import Groups

DEADLINE = 30.0


class Line:
    """A channel without an agent."""

    def __init__(self) -> None:
        self.receivers: dict[str, Callable[[dict[str, Any]], None]] = {}
        self.said: list[str] = []

    def on(self, kind: str, receiver: Callable[[dict[str, Any]], None]) -> None:
        self.receivers[kind] = receiver

    def send(self, kind: str, **body: Any) -> None:
        self.said.append(kind)


class Torn:
    """Groups that the main thread takes down while they are cut: torch knows them no more."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def cut(self) -> None:
        raise ValueError("Default process group has not been initialized")

    def release(self) -> None:
        self.released.set()


def test_a_main_thread_is_brought_back_although_its_groups_could_not_be_cut() -> None:
    line, groups = Line(), Torn()
    problems: list[ValueError] = []
    control = Control(cast(Channel, line), cast(Groups, groups), 1)

    def park() -> None:
        try:
            line.receivers["park"]({"round": 1, "planned": False})
        except ValueError as error:
            problems.append(error)

    orders = threading.Thread(target=park)
    orders.start()
    assert groups.released.wait(DEADLINE), "nobody looks after the main thread"
    orders.join(DEADLINE)
    assert control.cut_off and len(problems) == 1
    control.returned()
    control.rest()
    assert line.said == ["elastic", "aborting", "aborted", "parked"]


def fail(body: dict[str, Any]) -> None:
    raise ValueError("no port is left")


def test_an_order_that_fails_does_not_end_those_that_follow(tmp_path: Path, capsys: Any) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
        agent.bind(str(tmp_path / "agent"))
        agent.listen()
        channel, heard = Channel(str(tmp_path / "agent"), "key"), threading.Event()
        channel.on("bind", fail)
        channel.on("run", lambda body: heard.set())
        with agent.accept()[0] as connection:
            for kind in ("bind", "run"):
                connection.sendall(json.dumps({kind: {}}).encode() + b"\n")
            assert heard.wait(DEADLINE)
    assert "no port is left" in capsys.readouterr().err
