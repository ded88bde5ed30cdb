"""A real coordinator in this process, and real agents (guardian, agent, workers) as processes of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Iterator

import pytest

from petctl.agent.node import runtime_dir
from petctl.agent.workers import processes
from petctl.clusters.agent_archive import build_agent
from petctl.job.task import Task, Timing, encode_task
from petctl.rendezvous.core.events import Config, End, Expect, Scale
from petctl.rendezvous.core.machine import Coordinator
from petctl.rendezvous.core.messages import CANCELLED, Outcome
from petctl.rendezvous.net.join_file import JoinFile, write_join_file
from petctl.rendezvous.net.server import CoordinatorServer
from tests.integration.waiting import DEADLINE, until


def _interpreters() -> list[Any]:
    """This Python, and of the others that the agent supports those that are installed here."""
    found = [pytest.param(sys.executable, id="this")]
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for wanted in ("3.9", "3.13"):
        matches = sorted(versions.glob(f"{wanted}.*/bin/python"))
        skip = pytest.mark.skipif(not matches, reason=f"no Python {wanted} here")
        found.append(pytest.param(str(matches[-1]) if matches else "", id=wanted, marks=skip))
    return found


INTERPRETERS = _interpreters()
SILENCE = 5.0  # seconds that a node may be held up by a busy machine before it counts as lost


def alive(pid: int) -> bool:
    """Runs, and is not a zombie."""
    return pid in processes.table()


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """petctl-agent.pyz of the working tree."""
    return build_agent(tmp_path_factory.mktemp("pyz") / "petctl-agent.pyz")


class Bench:
    """One job: its coordinator, its agents, its files."""

    def __init__(self, directory: Path, archive: Path) -> None:
        self.directory, self.archive = directory, archive
        self.job = f"bench-{os.urandom(4).hex()}"
        self.logs = directory / "logs"
        self.join_path = directory / "join.json"
        self.outcome: Outcome | None = None
        self.closed = threading.Event()
        self.events: list[object] = []
        self.agents: list[subprocess.Popen[bytes]] = []
        self._token = os.urandom(16).hex()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.server: CoordinatorServer | None = None
        self.address: tuple[str, int] = ("", 0)

    def open(
        self,
        kind: str,
        words: list[str],
        nodes: int = 1,
        epoch: int = 1,
        restarts: int = 0,
        min_nodes: int = 0,
        eager: bool = False,
        revive: dict[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        """Starts the coordinator of a job that runs this command on `nodes` nodes."""
        fields.setdefault("timing", Timing(silence=SILENCE, fence_after=4 * SILENCE))
        fields.setdefault("python", sys.executable)
        task = Task(
            job=self.job, kind=kind, words=words, log_dir=str(self.logs), max_nodes=nodes, restarts=restarts, **fields
        )
        config = Config(min_nodes or nodes, nodes, wanted=nodes, restarts=restarts, silence=SILENCE, eager=eager)

        async def listen() -> None:
            machine = Coordinator(config, self._loop.time(), leader=f"bench-{epoch}", epoch=epoch, fresh=epoch == 1)
            welcome = {"task": encode_task(task)}
            self.server = CoordinatorServer(machine, self._token, welcome, self._record, self.events.append)
            self.address = await self.server.listen("127.0.0.1", self.address[1])
            if epoch == 1:
                self.server.step(Expect(tuple(f"n{i}" for i in range(nodes))))

        asyncio.run_coroutine_threadsafe(listen(), self._loop).result(DEADLINE)
        locator = {"address": f"127.0.0.1:{self.address[1]}"}
        write_join_file(self.join_path, JoinFile(self.job, self._token, "", locator, revive))

    def _record(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.closed.set()

    def close_coordinator(self) -> None:
        """As if it had died: nobody is told anything."""
        if self.server is not None:
            server, self.server = self.server, None

            async def close() -> None:
                server.close()

            asyncio.run_coroutine_threadsafe(close(), self._loop).result(DEADLINE)

    def status(self) -> dict[str, Any]:
        """The machine's own view."""

        async def ask() -> dict[str, Any]:
            assert self.server is not None
            return self.server._machine.status()

        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(DEADLINE)

    def elastic(self) -> bool:
        """Has every node a worker that can park?"""
        assert self.server is not None
        return all(node.report.elastic for node in list(self.server._machine.nodes.values()))

    def cancel(self) -> None:
        """The user's cancel."""
        assert self.server is not None
        self._loop.call_soon_threadsafe(self.server.step, End(Outcome(CANCELLED, 130, "cancelled")))

    def scale(self, wanted: int, *release: str) -> None:
        """The user's wish for another size, and whom the cluster gives up for it."""
        assert self.server is not None
        self._loop.call_soon_threadsafe(self.server.step, Scale(wanted, release))

    def agent(self, *words: str, node: str = "n0", python: str = sys.executable, **options: Any) -> Node:
        """A node in a process tree of its own."""
        state = self.directory / "nodes" / node
        argv = [python, str(self.archive), "join", "--file", str(self.join_path)]
        argv += ["--node", node, "--state-dir", str(state), *words]
        log = self.directory / f"{node}.log"
        with open(log, "ab") as file:
            options.setdefault("stdout", file)
            process = subprocess.Popen(argv, stderr=file, cwd=self.directory, start_new_session=True, **options)
        self.agents.append(process)
        return Node(process, state, log)

    def ended(self, seconds: float = DEADLINE) -> Outcome:
        """How the job ended."""
        assert self.closed.wait(seconds), f"the job did not end; status: {self.status()}"
        assert self.outcome is not None
        return self.outcome

    def log(self, rank: int = 0, stream: str = "out", number: int = 1) -> Path:
        return self.logs / f"round-{number:04d}" / f"rank-{rank}.{stream}"

    def line(self, rank: int = 0, stream: str = "out", number: int = 1) -> str:
        """The first line of a worker's log, once it is there."""
        path = self.log(rank, stream, number)
        until(lambda: path.exists() and b"\n" in path.read_bytes(), f"a line in {path}")
        return path.read_text().splitlines()[0]

    def left(self) -> set[int]:
        """Every living process that carries the job's key, and every one of its agents."""
        living = processes.table()
        own = {agent.pid for agent in self.agents} & set(living)
        below = set().union(*(processes.descendants(pid, living) for pid in own)) if own else set()
        marked = set()
        for pid in living:
            try:
                environ = Path(f"/proc/{pid}/environ").read_bytes()
            except OSError:
                continue
            if b"PETCTL_NODE_KEY=" + self.job.encode() in environ:
                marked.add(pid)
        return own | below | marked

    def nothing_left(self) -> None:
        until(lambda: not self.left(), "no process of the job is left")

    def shut(self) -> None:
        """Leaves nothing behind, whatever the test did."""
        for agent in self.agents:
            agent.poll()
        processes.extinguish(self.left, DEADLINE)
        for agent in self.agents:
            agent.wait(DEADLINE)
            if agent.stdout is not None:
                agent.stdout.close()
        for state in (self.directory / "nodes").glob("*"):
            runtime_dir.remove_of(str(state))  # a guardian that was killed just now could not
        self.close_coordinator()

        async def drain() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()

        asyncio.run_coroutine_threadsafe(drain(), self._loop).result(DEADLINE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE)
        self._loop.close()


class Node:
    """A started node, seen from outside."""

    def __init__(self, process: subprocess.Popen[bytes], state: Path, log: Path) -> None:
        self.process, self.state, self.log = process, state, log

    @property
    def agent(self) -> int:
        """Pid of the agent proper: the guardian's child that leads a session."""
        living = processes.table()
        return next(p.pid for p in living.values() if p.parent == self.process.pid and p.session == p.pid)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float = DEADLINE) -> int:
        return self.process.wait(seconds)


@pytest.fixture
def bench(tmp_path: Path, archive: Path) -> Iterator[Bench]:
    """A job that leaves nothing behind."""
    bench = Bench(tmp_path, archive)
    try:
        yield bench
    finally:
        bench.shut()


@pytest.fixture(autouse=True)
def children_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent ends all that is below it, and so are servers of other tests where this process plays one."""
    others = processes.descendants(os.getpid(), processes.table())
    descendants = processes.descendants
    monkeypatch.setattr(processes, "descendants", lambda pid, living: descendants(pid, living) - others)
