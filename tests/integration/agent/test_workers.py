"""`Workers` by itself, in this process's loop: with pidfds, and as on systems that have none."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Awaitable, Callable

import pytest

from petctl.agent.workers import processes
from petctl.agent.workers import workers as module
from petctl.agent.workers.spawn import start_process
from petctl.agent.workers.workers import Launch, Worker, Workers
from tests.integration.agent.conftest import alive
from tests.integration.waiting import DEADLINE, until

STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"


class Scene:
    """Workers in a loop, and what was heard of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.key = f"scene-{os.urandom(4).hex()}/n0/1"
        self.exits: asyncio.Queue[Worker] = asyncio.Queue()
        self.stopped = asyncio.Event()
        self.workers = Workers(self.key, 0, self.exits.put_nowait, self.stopped.set)

    def launch(self, rank: int, *argv: str) -> Launch:
        out, err = (str(self.directory / f"{rank}.{stream}") for stream in ("out", "err"))
        return Launch(rank, rank, list(argv), {**os.environ, "PETCTL_NODE_KEY": self.key}, None, out, err)

    def four(self) -> set[int]:
        """The four processes that carry the scene's key; none, as long as there are others or fewer."""
        found = processes.carrying(f"PETCTL_NODE_KEY={self.key}", processes.table())
        return found if len(found) == 4 else set()

    async def up(self, rank: int) -> str:
        path = self.directory / f"{rank}.out"
        await asyncio.get_running_loop().run_in_executor(None, until, lambda: "\n" in path.read_text(), "a line")
        return path.read_text()


@pytest.fixture(params=["pidfd", "sigchld"])
def play(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs a scene and leaves no process behind."""
    if request.param == "sigchld":
        monkeypatch.setattr(module, "_pidfds_work", lambda: False)

    def run(act: Callable[[Scene], Awaitable[None]]) -> None:
        async def main() -> None:
            scene = Scene(tmp_path)
            try:
                await asyncio.wait_for(act(scene), 2 * DEADLINE)
            finally:
                scene.workers.destroy()

        asyncio.run(main())

    return run


def test_every_exit_is_reported_with_its_code(play: Callable[..., None]) -> None:
    async def act(scene: Scene) -> None:
        commands = ("exit 0", "exit 3", "kill -9 $$")
        scene.workers.start([scene.launch(rank, "/bin/sh", "-c", line) for rank, line in enumerate(commands)])
        seen = {
            worker.launch.rank: (worker.code, worker.signal) for worker in [await scene.exits.get() for _ in commands]
        }
        assert seen == {0: (0, 0), 1: (3, 0), 2: (137, 9)}
        assert not scene.workers.running

    play(act)


def test_the_shorter_grace_holds(play: Callable[..., None]) -> None:
    async def act(scene: Scene) -> None:
        scene.workers.start([scene.launch(0, sys.executable, "-c", STUBBORN)])
        await scene.up(0)
        begun = time.monotonic()
        scene.workers.stop(600.0)
        scene.workers.stop(0.2)
        scene.workers.stop(300.0)
        await scene.stopped.wait()
        assert 0.2 <= time.monotonic() - begun < DEADLINE
        assert scene.exits.empty()  # an end that was asked for is no news

    play(act)


def test_stopped_means_that_grandchildren_are_gone_too(play: Callable[..., None]) -> None:
    async def act(scene: Scene) -> None:
        line = 'trap "exit 0" TERM; setsid "$0" -c "$1" & setsid sleep 600 & sleep 600 & echo $! ; wait'
        scene.workers.start([scene.launch(0, "/bin/bash", "-c", line, sys.executable, STUBBORN)])
        text = await scene.up(0)
        await asyncio.get_running_loop().run_in_executor(
            None, until, lambda: "up" in (scene.directory / "0.out").read_text(), "the stubborn one runs"
        )
        marked = await asyncio.get_running_loop().run_in_executor(None, until, scene.four, "all four run")
        scene.workers.stop(0.3)
        await scene.stopped.wait()
        assert not any(alive(pid) for pid in marked), text

    play(act)


def test_stop_with_nothing_running_is_answered(play: Callable[..., None]) -> None:
    async def act(scene: Scene) -> None:
        scene.workers.stop(30.0)
        await scene.stopped.wait()

    play(act)


def test_what_ended_workers_left_is_gone_before_the_next_start(play: Callable[..., None]) -> None:
    async def act(scene: Scene) -> None:
        scene.workers.start([scene.launch(0, "/bin/sh", "-c", "setsid sleep 600 & echo $!")])
        assert (await scene.exits.get()).code == 0
        left = int(await scene.up(0))
        assert alive(left)
        cleared = asyncio.Event()
        scene.workers.clear(cleared.set)
        await asyncio.wait_for(cleared.wait(), DEADLINE)
        assert not alive(left)
        scene.workers.start([scene.launch(1, "/bin/true")])
        await scene.exits.get()

    play(act)


def test_early_workers_give_way_to_those_of_a_round(play: Callable[..., None]) -> None:
    async def act(scene: Scene) -> None:
        less = asyncio.Event()
        scene.workers.on_early = less.set
        scene.workers.start_early([scene.launch(0, "/bin/sleep", "600"), scene.launch(1, "/bin/true")])
        early = scene.workers.early[0].pid
        await less.wait()
        assert [worker.pid for worker in scene.workers.early] == [early]
        scene.workers.start([scene.launch(0, "/bin/sh", "-c", "exit 3")])
        assert not alive(early) and not scene.workers.early
        assert (await scene.exits.get()).code == 3
        assert scene.exits.empty()  # the end of an early one is no news

    play(act)


def test_early_workers_are_stopped_like_any_other(play: Callable[..., None]) -> None:
    async def act(scene: Scene) -> None:
        scene.workers.start_early([scene.launch(0, "/bin/sleep", "600")])
        early = scene.workers.early[0].pid
        scene.workers.stop(30.0, final=True)
        await scene.stopped.wait()
        assert not alive(early) and not scene.workers.early

    play(act)


def test_all_or_none_are_started(play: Callable[..., None]) -> None:
    async def act(scene: Scene) -> None:
        with pytest.raises(FileNotFoundError):
            scene.workers.start([scene.launch(0, "/bin/sleep", "600"), scene.launch(1, "/no/such/program")])
        assert not scene.workers.running
        assert not processes.carrying(f"PETCTL_NODE_KEY={scene.key}", processes.table())

    play(act)


def test_a_worker_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            launch = Launch(
                0, 0, ["/bin/sleep", "600"], dict(os.environ), None, str(tmp_path / "o"), str(tmp_path / "e")
            )
            os.write(write, b"%d\n" % start_process(launch, launch.env).pid)
            signal.pause()
        finally:
            os._exit(1)
    os.close(write)
    try:
        worker = int(os.read(read, 64))
        assert alive(worker)
    finally:
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        os.close(read)
    try:
        until(lambda: not alive(worker), "the worker is gone")
    finally:
        processes.signal_each([worker], signal.SIGKILL)


def test_the_loop_goes_on_while_leftovers_end(play: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker left behind and cannot be ended holds up the next start for a while, not the loop."""

    async def act(scene: Scene) -> None:
        scene.workers.start([scene.launch(0, "/bin/sh", "-c", "exit 0")])
        await scene.exits.get()
        monkeypatch.setattr(module, "_CLEARING", 0.5)
        left = {2**30}  # no process has that number
        monkeypatch.setattr(scene.workers, "_leftovers", lambda: left)
        turns, done = 0, asyncio.Event()
        scene.workers.clear(done.set)
        assert not done.is_set(), "it does not wait"
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0.005)
        assert turns > 5
        done.clear()
        scene.workers.clear(done.set)
        left.clear()
        await asyncio.wait_for(done.wait(), DEADLINE)

    play(act)
