"""What the agent believes of what comes over its socket, and what it does to those who speak nonsense."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any, Awaitable, Callable

import pytest

from petctl.agent.workers import channel as module
from petctl.agent.workers.channel import Channel
from petctl.agent.workers.workers import Launch, Worker

KEY = "job/n0/i1/3/0"


class Process:
    """What a Worker wants to know of a process; it is this one, as far as sessions go."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> None:
        return None


def worker(pid: int, key: str = KEY) -> Worker:
    launch = Launch(0, 0, ["train"], {"PETCTL_WORKER_KEY": key}, None, "out", "err", round=3)
    return Worker(launch, Process(pid))  # type: ignore[arg-type]


class Peer:
    """A worker's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def say(self, word: str, **data: Any) -> None:
        self.writer.write(json.dumps({word: data}).encode() + b"\n")

    def greet(self) -> None:
        self.say("hello", key=KEY, pid=os.getpid())
        self.say("elastic")

    async def hear(self) -> Any:
        return json.loads(await self.reader.readline())

    async def closed(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True


class Scene:
    """A channel, one worker that it knows, and what was heard."""

    def __init__(self, path: Path) -> None:
        self.channel = Channel(str(path))
        self.worker = worker(os.getsid(0))
        self.channel.know(self.worker)
        self.heard: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.peers: list[Peer] = []
        self.channel.on_elastic = lambda worker: self.heard.put_nowait(("elastic", worker))
        self.channel.on_parked = lambda worker: self.heard.put_nowait(("parked", worker))
        self.channel.on_lost = lambda worker: self.heard.put_nowait(("lost", worker))
        self.channel.on_progress = lambda worker, data: self.heard.put_nowait(("progress", data))

    async def peer(self) -> Peer:
        peer = Peer(*await asyncio.open_unix_connection(self.channel.path))
        self.peers.append(peer)
        return peer

    async def elastic(self) -> Peer:
        peer = await self.peer()
        peer.greet()
        assert await self.heard.get() == ("elastic", self.worker)
        return peer

    async def parked(self) -> Peer:
        peer = await self.elastic()
        peer.say("parked", round=3)
        assert await self.heard.get() == ("parked", self.worker)
        return peer


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Callable[[Scene], Awaitable[None]]], None]:
    def run(act: Callable[[Scene], Awaitable[None]]) -> None:
        async def main() -> None:
            scene = Scene(tmp_path / "s")
            try:
                await asyncio.wait_for(act(scene), 20)
            finally:
                scene.channel.close()
                for peer in scene.peers:
                    peer.writer.close()

        asyncio.run(main())

    return run


def test_a_worker_parks_and_gets_a_new_place(play: Any) -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.elastic()
        scene.channel.park(scene.worker, planned=True, within=7.0, final=False, why="scaled")
        wish = {"round": 3, "planned": True, "within": 7.0, "final": False, "why": "scaled"}
        assert await peer.hear() == {"park": wish}
        assert not scene.channel.parked(scene.worker)
        peer.say("parked", round=3)
        await scene.heard.get()
        assert scene.channel.parked(scene.worker)
        scene.worker.launch = Launch(1, 0, ["train"], {"RANK": "1"}, None, "o4", "e4", round=4)
        assert scene.channel.run(scene.worker, {"RANK": "1"})
        assert await peer.hear() == {"run": {"round": 4, "env": {"RANK": "1"}, "out": "o4", "err": "e4"}}
        assert scene.channel.elastic(scene.worker) and not scene.channel.parked(scene.worker)

    play(act)


def test_progress_reaches_whoever_asked_for_it(play: Any) -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        peer.say("hello", key=KEY, pid=1)
        peer.say("progress", step=5)
        assert await scene.heard.get() == ("progress", {"step": 5})
        assert not scene.channel.elastic(scene.worker)
        assert scene.channel.stacks(scene.worker, "/f") and await peer.hear() == {"stacks": {"file": "/f"}}

    play(act)


@pytest.mark.parametrize(
    "data",
    [
        b'{"hello": {"key": "job/n0/i1/3/1", "pid": 1}}\n',
        b'{"hello": {"pid": 1}}\n',
        b'{"hello": {"key": ["a"]}}\n',
        b'{"elastic": {}}\n',
        b'{"hello": 1}\n',
        b'{"hello": {}, "elastic": {}}\n',
        b"[]\n",
        b"\n",
        b"\xff\xfe\n",
        b"[" * 50_000 + b"\n",
        b"x" * 100_000,
    ],
    ids=["other-key", "no-key", "odd-key", "no-hello", "no-object", "two", "list", "empty", "bytes", "deep", "long"],
)
def test_nonsense_is_not_listened_to(play: Any, data: bytes) -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        peer.writer.write(data)
        assert await peer.closed()
        await scene.elastic()  # and everybody else is served as before

    play(act)


def test_a_key_is_worth_nothing_outside_of_its_workers_session(play: Any) -> None:
    async def act(scene: Scene) -> None:
        scene.channel.forget(scene.worker)
        scene.channel.know(worker(os.getsid(0) + 1))
        peer = await scene.peer()
        peer.greet()
        assert await peer.closed()

    play(act)


def test_a_worker_whose_number_is_not_known_yet_is_known_by_its_key(play: Any) -> None:
    async def act(scene: Scene) -> None:
        scene.worker.pid = 0
        await scene.elastic()

    play(act)


def test_a_second_process_cannot_speak_for_the_worker(play: Any) -> None:
    async def act(scene: Scene) -> None:
        await scene.elastic()
        second = await scene.peer()
        second.greet()
        second.say("parked", round=3)
        second.say("plain")
        second.say("progress", step=1)
        assert await scene.heard.get() == ("progress", {"step": 1})
        assert scene.channel.elastic(scene.worker) and not scene.channel.parked(scene.worker)

    play(act)


def test_parked_in_another_round_is_not_parked_in_this(play: Any) -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.elastic()
        peer.say("parked", round=2)
        peer.say("parked")
        peer.say("progress")
        assert await scene.heard.get() == ("progress", {})
        assert not scene.channel.parked(scene.worker)

    play(act)


@pytest.mark.parametrize("how", ["close", "plain"])
def test_whoever_cannot_be_talked_to_is_an_ordinary_worker(play: Any, how: str) -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.parked()
        if how == "close":
            peer.writer.close()
        else:
            peer.say("plain")
        assert await scene.heard.get() == ("lost", scene.worker)
        assert not scene.channel.elastic(scene.worker) and not scene.channel.parked(scene.worker)
        assert not scene.channel.run(scene.worker, {})

    play(act)


def test_a_flood_is_slowed_down_and_nothing_of_it_lost(play: Any) -> None:
    async def act(scene: Scene) -> None:
        times: list[float] = []
        clock = asyncio.get_running_loop().time
        scene.channel.on_progress = lambda worker, data: times.append(clock())
        peer = await scene.elastic()
        for _ in range(1000):
            peer.say("progress")
        peer.say("parked", round=3)
        assert await scene.heard.get() == ("parked", scene.worker)
        assert len(times) == 1000
        most = max(sum(begin <= time < begin + 0.1 for time in times) for begin in times)
        assert most <= 400  # the end of one turn and the beginning of the next

    play(act)


def test_whoever_does_not_read_is_hung_up_on(play: Any) -> None:
    async def act(scene: Scene) -> None:
        await scene.elastic()
        while scene.channel.stacks(scene.worker, "x" * 10_000):
            pass
        assert await scene.heard.get() == ("lost", scene.worker)

    play(act)


def test_connections_are_bounded_and_must_introduce_themselves(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CONNECTIONS", 2)
    monkeypatch.setattr(module, "_HELLO_WITHIN", 0.2)

    async def act(scene: Scene) -> None:
        await scene.elastic()
        silent = await scene.peer()
        surplus = await scene.peer()
        assert await surplus.closed()
        assert await silent.closed()
        assert scene.channel.elastic(scene.worker)

    play(act)


def test_the_end_of_a_worker_ends_its_connections(play: Any) -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.elastic()
        scene.channel.forget(scene.worker)
        assert await peer.closed()
        late = await scene.peer()
        late.greet()
        assert await late.closed()

    play(act)


def test_rank_0_opens_its_store_while_it_is_parked(play: Any) -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.parked()
        ports: asyncio.Queue[int] = asyncio.Queue()
        scene.channel.bind(scene.worker, 4, ports.put_nowait)
        assert await peer.hear() == {"bind": {"round": 4}}
        peer.say("bound", round=3, port=1)
        peer.say("bound", round=4, port=4711)
        assert await ports.get() == 4711
        peer.say("bound", round=4, port=4712)
        peer.say("progress")
        assert await scene.heard.get() == ("progress", {}) and ports.empty()

    play(act)


@pytest.mark.parametrize("how", ["late", "close", "odd", "another"])
def test_a_store_that_is_not_opened_is_port_0(play: Any, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(module, "BIND_TIMEOUT", 0.1 if how == "late" else 600.0)

    async def act(scene: Scene) -> None:
        peer = await scene.parked()
        ports: asyncio.Queue[int] = asyncio.Queue()
        scene.channel.bind(scene.worker, 4, ports.put_nowait)
        if how == "close":
            peer.writer.close()
        elif how == "odd":
            peer.say("bound", round=4, port="4711")
        elif how == "another":
            scene.channel.bind(scene.worker, 5, lambda port: None)
        assert await ports.get() == 0

    play(act)


def test_without_a_place_for_the_socket_nobody_is_elastic() -> None:
    async def main() -> None:
        for path in ("", "/no/such/directory/s"):
            channel = Channel(path)
            assert channel.path == "" and not channel.elastic(worker(1))
            channel.close()

    asyncio.run(main())
