"""Workers of one node in this process's loop, started cold or forked from a zygote, and what became of each."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Awaitable, Callable, NamedTuple, Optional

from petctl.agent.warm.warm import WarmStart
from petctl.agent.workers.snapshot_command import interpreter_words
from petctl.agent.workers.workers import Launch, Worker, Workers

DEADLINE = 60.0
_ADDRESS = re.compile("0x[0-9a-f]+")


class Ended(NamedTuple):
    """What is left of a worker."""

    code: Optional[int]
    signal: int
    out: str
    err: str


class WarmScene:
    """Made inside a running loop. Everything that was said is in `said`, changes of `warming` in `changes`."""

    def __init__(self, directory: Path, env: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.env = {**os.environ, **(env or {}), "PETCTL_NODE_KEY": f"scene-{os.urandom(4).hex()}/n0/1"}
        self.said: list[str] = []
        self.changes: asyncio.Queue[bool] = asyncio.Queue()
        self.exits: asyncio.Queue[Worker] = asyncio.Queue()
        self.stopped = asyncio.Event()
        self.warm = WarmStart(self.said.append, self.changes.put_nowait)
        key = self.env["PETCTL_NODE_KEY"]
        self.workers = Workers(key, 0, self.exits.put_nowait, self.stopped.set, None, self.warm)
        self._count = 0

    def launch(self, *argv: str, cwd: Path | None = None, local_rank: int = 1, **round_names: str) -> Launch:
        """Local rank 0 would note what it imports."""
        self._count += 1
        out, err = (str(self.directory / f"{id(self)}-{self._count}.{stream}") for stream in ("out", "err"))
        env = {**self.env, "RANK": "7", "PETCTL_ROUND": "3", **round_names}
        words = interpreter_words(argv)
        return Launch(local_rank, local_rank, list(argv), env, str(cwd or self.directory), out, err, interpreter=words)

    async def warmed(self) -> None:
        """Until nothing is being imported any more."""
        while self.changes.qsize() or self.warm.warming:
            await asyncio.wait_for(self.changes.get(), DEADLINE)

    async def ended(self, launch: Launch) -> Ended:
        worker = await asyncio.wait_for(self.exits.get(), DEADLINE)
        assert worker.launch is launch
        out, err = (_ADDRESS.sub("0x", Path(path).read_text()) for path in (launch.out, launch.err))
        return Ended(worker.code, worker.signal, out, err)

    async def cold(self, *argv: str, **options: Any) -> Ended:
        """A worker that is started as ever."""
        launch = self.launch(*argv, **options)
        assert not self.warm.processes
        self.workers.start([launch])
        return await self.ended(launch)

    async def forked(self, *argv: str, preload: list[str] | None = None, **options: Any) -> Ended:
        """A worker that comes from a zygote."""
        launch = self.launch(*argv, **options)
        if not self.warm.processes:
            self.warm.begin(launch, preload or ["json"])
        self.workers.start([launch])
        (worker,) = self.workers.running
        done = await self.ended(launch)
        assert worker.process is None, f"it was started cold: {self.said}"
        return done


def play(directory: Path, act: Callable[[WarmScene], Awaitable[None]], env: dict[str, str] | None = None) -> None:
    """Runs a scene and leaves no process behind."""

    async def main() -> None:
        scene = WarmScene(directory, env)
        try:
            await asyncio.wait_for(act(scene), 2 * DEADLINE)
        finally:
            scene.workers.destroy()

    asyncio.run(main())


def make_environment(directory: Path, modules: dict[str, str], python: str = sys.executable) -> str:
    """A virtual environment in which these modules are installed; answers with its interpreter."""
    subprocess.run([python, "-m", "venv", "--without-pip", str(directory)], check=True)
    (packages,) = directory.glob("lib/python3*/site-packages")
    for name, text in modules.items():
        path = packages / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(directory / "bin" / "python")
