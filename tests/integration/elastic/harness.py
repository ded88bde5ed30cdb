"""Workers that use petctl.elastic, and a pretended agent that speaks with them: rounds without petctl.

One agent for all of them; each worker is told apart by its key. The real agent has tests of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any, Callable

from tests.integration.waiting import DEADLINE, own_part, until

ROOT = Path(__file__).resolve().parents[3]
UNASKED = ("progress", "aborting", "aborted")  # what workers tell besides answers
IMPORTS = 90.0  # torch, on a busy machine


def environment(**more: str) -> dict[str, str]:
    """What every process of the tests gets: petctl from the sources, nothing of a surrounding job."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PETCTL_", "TORCHELASTIC_"))}
    return {**inherited, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **more}


def free_port() -> int:
    """One that the kernel gives to nobody else meanwhile, as it does with those of its own choice."""
    while True:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", random.choice(own_part(range(20_000, 30_000)))))
            return int(probe.getsockname()[1])


class Nursery:
    """The process that the workers are forked from."""

    def __init__(self, python: str) -> None:
        argv = [python, "-u", str(Path(__file__).with_name("nursery.py"))]
        self._process = subprocess.Popen(argv, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._born: queue.Queue[int] = queue.Queue()
        self._codes: dict[int, int] = {}
        self._changed = threading.Condition()
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        assert self._ready.wait(IMPORTS), "torch could not be imported in time"

    def fork(self, script: Path, env: dict[str, str], out: Path, err: Path) -> int:
        request = {"script": str(script), "env": env, "out": str(out), "err": str(err)}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return self._born.get(timeout=DEADLINE)

    def code(self, pid: int, seconds: float) -> int | None:
        """How it ended; None: it has not, in that time."""
        with self._changed:
            self._changed.wait_for(lambda: pid in self._codes, seconds)
            return self._codes.get(pid)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            news = json.loads(line)
            if "code" in news:
                with self._changed:
                    self._codes[news["pid"]] = news["code"]
                    self._changed.notify_all()
            elif "pid" in news:
                with self._changed:  # the number may have been another worker's, long ago
                    self._codes.pop(news["pid"], None)
                self._born.put(news["pid"])
            else:
                self._ready.set()


class Worker:
    """One process, its place, and what it said on the socket."""

    def __init__(self, nursery: Nursery, pid: int, rank: int, out: Path, err: Path) -> None:
        self._nursery, self.pid, self.rank, self.out, self.err = nursery, pid, rank, out, err
        self.said: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        self.connection: socket.socket | None = None
        self.greeted = threading.Event()
        self._parked = 0  # the last round in which it said so

    def greet(self) -> None:
        """Waits until it is in elastic.run."""
        until(lambda: self.greeted.is_set() or self._gone(), f"rank {self.rank} says hello")
        self.expect("elastic")

    def lines(self) -> list[dict[str, Any]]:
        """What it printed in its present place, as far as lines are whole."""
        text = self.out.read_text() if self.out.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def line(self, name: str) -> dict[str, Any]:
        """The first line that has that fact."""
        until(lambda: any(name in line for line in self.lines()) or self._gone(), f"{name} of rank {self.rank}")
        return next(line for line in self.lines() if name in line)

    def step(self, number: int) -> None:
        """Waits until it has made that step."""
        what = f"step {number} of rank {self.rank}: {self.lines()[-3:]}"
        until(lambda: any(line.get("step", -1) >= number for line in self.lines()) or self._gone(), what)

    def wait_for(self, fits: Callable[[dict[str, Any]], bool], what: str) -> None:
        """Waits until it has said such a line."""
        until(lambda: any(map(fits, self.lines())) or self._gone(), f"{what} of rank {self.rank}")

    def last_made(self) -> int:
        """The last step that it made, committed or not."""
        return max(line["made"] for line in self.lines() if "made" in line)

    def last_step(self) -> int:
        """The last step that it has committed, and went on from."""
        return max(line["step"] for line in self.lines() if "step" in line)

    def expect(self, kind: str, seconds: float = DEADLINE) -> dict[str, Any]:
        """The next message, which must be of that kind; that it is parked a worker says again when told to again."""
        try:
            said, body = self.said.get(timeout=seconds)
            while said == "parked" and body["round"] == self._parked:
                said, body = self.said.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError(f"rank {self.rank} said no {kind!r}; {self.err.read_text()}") from None
        assert said == kind, f"rank {self.rank} said {said}, not {kind}"
        self._parked = body["round"] if said == "parked" else self._parked
        return body

    def send(self, kind: str, **body: Any) -> None:
        assert self.connection is not None
        self.connection.sendall(json.dumps({kind: body}).encode() + b"\n")

    def signal(self, number: int) -> None:
        if self._nursery.code(self.pid, 0) is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and that is not known here yet
                os.kill(self.pid, number)

    def ended(self, seconds: float = DEADLINE) -> int:
        code = self._nursery.code(self.pid, seconds)
        assert code is not None, f"rank {self.rank} did not end: {self.lines()[-3:]} {self.err.read_text()}"
        return code

    def _gone(self) -> bool:
        code = self._nursery.code(self.pid, 0)
        assert code is None, f"rank {self.rank} ended with {code}: {self.err.read_text()}"
        return False


class Fleet:
    """The workers of one training, through its rounds."""

    def __init__(self, directory: Path, nursery: Nursery, script: Path) -> None:
        self.directory, self.nursery, self.script = directory, nursery, script
        self.round = 0
        self.everybody: list[Worker] = []
        self.options: dict[str, str] = {}
        self._path = directory / "agent.sock"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def start(self, world: int) -> list[Worker]:
        """The first round."""
        self.round = 1
        return self._place([], world, free_port())

    def park(self, workers: list[Worker], planned: bool = False, within: float = 10.0, final: bool = False) -> None:
        for worker in workers:
            worker.send("park", round=self.round, planned=planned, within=within, final=final, why="the test says so")

    def parked(self, workers: list[Worker]) -> None:
        for worker in workers:
            assert worker.expect("parked")["round"] == self.round

    def all_step(self, workers: list[Worker], number: int) -> None:
        for worker in workers:
            worker.step(number)

    def next(self, survivors: list[Worker], fresh: int = 0) -> list[Worker]:
        """The next round: parked survivors in this order, then so many new ones."""
        self.round += 1
        port = free_port()
        if survivors:
            survivors[0].send("bind", round=self.round)
            port = survivors[0].expect("bound")["port"]
        return self._place(survivors, len(survivors) + fresh, port)

    def _place(self, survivors: list[Worker], world: int, port: int) -> list[Worker]:
        fresh = []
        for rank in range(world):
            out, err = (self.directory / f"round-{self.round}-rank-{rank}.{end}" for end in ("out", "err"))
            env = {
                "RANK": str(rank),
                "LOCAL_RANK": "0",
                "WORLD_SIZE": str(world),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "PETCTL_ROUND": str(self.round),
                "PETCTL_WORKER_KEY": f"test/{self.round}/{rank}",
                "PETCTL_HEARTBEAT_LIMIT": "30",
                **self.options,
            }
            if rank < len(survivors):
                survivors[rank].rank, survivors[rank].out, survivors[rank].err = rank, out, err
                survivors[rank].send("run", round=self.round, env=env, out=str(out), err=str(err))
            else:
                whole = environment(PETCTL_AGENT_SOCKET=str(self._path), **env)
                pid = self.nursery.fork(self.script, whole, out, err)
                fresh.append(Worker(self.nursery, pid, rank, out, err))
                self.everybody.append(fresh[-1])
        for worker in fresh:
            worker.greet()
        return survivors + fresh

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._read, args=(connection,)))
            self._threads[-1].start()

    def _read(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            try:
                hello = json.loads(next(lines))["hello"]
                worker = until(lambda: next((w for w in self.everybody if w.pid == hello["pid"]), None), "its worker")
                worker.connection = connection
                worker.greeted.set()
                for line in lines:
                    for kind, body in json.loads(line).items():
                        if kind not in UNASKED:
                            worker.said.put((kind, body))
            except (OSError, StopIteration):
                pass

    def close(self) -> None:
        """Leaves no process behind."""
        for worker in self.everybody:
            worker.signal(signal.SIGKILL)
            worker.ended()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(DEADLINE)
