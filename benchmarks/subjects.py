"""The systems that are measured, with one face: start nodes, kill one, see it step again.

    PetctlJob       one job of petctl's local cluster, in a PETCTL_HOME of its own
    TorchrunNodes   one torchrun agent per node, with the settings that make it fastest and keep it alive longest
    BareProcesses   the same workers without any launcher: the floor for every cold start
    BareFork        the same workers forked from a process that has imported everything: the floor for every warm one

Each is a context manager, runs programs/step.py (or another program) and leaves nothing behind, also when it fails.
When a torchrun node dies nobody restarts it; `restart` does what a cluster's own node keeper would do.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from common import PROGRAMS, Missed
from processes import KEY, Marks, carriers, descendants, free_port, kill_tree, new_key, sweep, wait_gone

# Without this one, a torchrun that loses or gains a node may hang or die: workers would share the agents' store.
BEST_ENVIRONMENT = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
BEST_RENDEZVOUS = "last_call_timeout=1"
# Losses are noticed sooner with these; with them a newcomer was not let in, so growing is measured without.
QUICK_KEEP_ALIVE = "keep_alive_interval=1,keep_alive_max_attempt=2"
BEST_OPTIONS = ("--max-restarts", "100", "--monitor-interval", "0.1")


class Subject:
    """A directory, a key for its processes and the marks of its workers; all gone at the end."""

    def __init__(
        self,
        pace: float = 0.05,
        alone: bool = False,
        program: str = "step.py",
        words: Sequence[str] = (),
        directory: Path | None = None,
    ) -> None:
        self.key = new_key()
        self.directory = directory or Path(tempfile.mkdtemp(prefix="petctl-bench-"))
        self.directory.mkdir(exist_ok=True)
        self.marks = Marks(self.directory / "marks")
        self.program = [str(PROGRAMS / program), str(self.marks.path), "--pace", str(pace), *words]
        self.program += ["--alone"] if alone else []
        self.environment = {**os.environ, KEY: self.key, "OMP_NUM_THREADS": "1"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.close()
        finally:
            sweep(self.key)
            self.marks.close()
            shutil.rmtree(self.directory, ignore_errors=True)

    def close(self) -> None:
        """End in the subject's own way, before whatever is left is swept away."""

    def stop(self) -> None:
        """Let the workers end well at their next step."""
        Path(f"{self.marks.path}.stop").touch()

    def spawn(self, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """A process of this run; what it says goes to a file beside the marks."""
        with (self.directory / "output").open("ab") as output:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**self.environment, **(environment or {})},
                cwd=self.directory,
                start_new_session=True,
            )

    def piped(self, argv: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """A process of this run whose standard output the benchmark reads itself."""
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**self.environment, **environment},
            cwd=self.directory,
        )


class BareProcesses(Subject):
    """`world` workers, started by hand."""

    def __init__(self, python: str, world: int, **words: Any) -> None:
        super().__init__(**words)
        self.python, self.world = python, world
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self) -> float:
        """Start all workers; the moment before the first."""
        place = {"WORLD_SIZE": str(self.world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        begin = time.monotonic()
        for rank in range(self.world):
            who = {**place, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            self.workers.append(self.spawn([self.python, "-u", *self.program], who))
        return begin

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()


class BareFork(Subject):
    """The same workers, forked from a process that has imported all they need: the floor for every warm start."""

    def __init__(self, python: str, world: int, **words: Any) -> None:
        super().__init__(**words)
        self.world = world
        with (self.directory / "output").open("ab") as output:
            self.parent = subprocess.Popen(
                [python, str(PROGRAMS / "fork.py"), str(world), *self.program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                env=self.environment,
                cwd=self.directory,
            )
        self._stepping()

    def _stepping(self) -> float:
        """Seconds from the first fork to all of them stepping; then they are ended."""
        assert self.parent.stdin is not None and self.parent.stdout is not None
        moment = float(self.parent.stdout.readline() or "nan")
        seconds = self.marks.stepping(60.0, world=self.world, after=moment) - moment
        self.parent.stdin.write("\n")
        self.parent.stdin.flush()
        return seconds

    def measure(self) -> float:
        """Seconds from the first fork to all of them stepping."""
        assert self.parent.stdin is not None
        self.parent.stdin.write("\n")
        self.parent.stdin.flush()
        return self._stepping()

    def close(self) -> None:
        kill_tree(self.parent.pid)
        self.parent.wait()


class TorchrunNodes(Subject):
    """torchrun agents that find each other through node 0's store."""

    def __init__(self, python: str, nodes: str, best: bool = True, quick: bool = False, **words: Any) -> None:
        super().__init__(**words)
        self.python, self.nodes, self.best = python, nodes, best
        self.quick = quick
        self.port = free_port()
        self.agents: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, count: int) -> float:
        """Start nodes 0 to count - 1; the moment before the first."""
        begin = time.monotonic()
        for node in range(count):
            self.restart(node)
        return begin

    def restart(self, node: int) -> None:
        """Start one node; node 0 keeps the store."""
        options = ["--nnodes", self.nodes, "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", self.key]
        options += ["--rdzv-endpoint", f"127.0.0.1:{self.port}", "--local-addr", "127.0.0.1"]
        settings = [f"is_host={int(node == 0)}"]
        settings += [BEST_RENDEZVOUS] if self.best else []
        settings += [QUICK_KEEP_ALIVE] if self.quick else []
        options += ["--rdzv-conf", ",".join(settings), *(BEST_OPTIONS if self.best else ())]
        command = [self.python, "-m", "torch.distributed.run", *options, *self.program]
        self.agents[node] = self.spawn(command, BEST_ENVIRONMENT if self.best else None)

    def kill_node(self, node: int) -> float:
        """A power cut; the moment of it."""
        moment = time.monotonic()
        kill_tree(self.agents[node].pid)
        self.agents[node].wait()
        return moment

    def worker(self, node: int) -> int:
        """The pid of the worker of a node that stepped last."""
        own = set(carriers(self.key)) & _below(self.agents[node].pid)
        return self.marks.last_of(own)

    def close(self) -> None:
        for agent in self.agents.values():
            kill_tree(agent.pid)
            agent.wait()


class PetctlJob(Subject):
    """One job on petctl's local cluster.

    petctl learns what a command imports, by its words and directory. Where it should know that already, jobs share a
    `cache` and a `directory`, and one of them is run to `teach` it.
    """

    def __init__(self, petctl: str, python: str, cache: Path | None = None, **words: Any) -> None:
        super().__init__(**words)
        self.petctl, self.python = petctl, python
        self.home = self.directory / "home"
        self.cache = cache or self.directory / "cache"
        self.environment |= {"PETCTL_HOME": str(self.home), "XDG_CACHE_HOME": str(self.cache)}
        self.id = ""

    def teach(self, deadline: float) -> None:
        """Run until it is known what the workers import."""
        self.start("1")
        self.marks.stepping(deadline, steps=10)
        known = self.cache / "petctl" / "preload"
        self.marks.until("imports learnt", lambda marks: 0.0 if any(known.glob("*.json")) else None, deadline)

    def start(self, nodes: str, *options: str, restarts: int = 1000) -> float:
        """Submit the job; the moment before."""
        words = ["-n", nodes, "--restarts", str(restarts), "--python", self.python, *options]
        return self._submit(*words, *self.program)

    def job_file(self, **fields: object) -> float:
        """Submit the job with fields that only a job file can give; the moment before."""
        path = self.directory / "job.json"
        script, *arguments = self.program
        path.write_text(json.dumps({"script": script, "args": arguments, "python": self.python, **fields}))
        return self._submit(str(path))

    def _submit(self, *words: str) -> float:
        begin = time.monotonic()
        self.call("submit", *words)
        self.id = next(path.name for path in (self.home / "jobs").iterdir() if (path / "job.json").exists())
        return begin

    def command(self, *words: str) -> list[str]:
        """The command line for these words."""
        return [self.petctl, *words]

    def call(self, *words: str, check: bool = True, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """The command line, as a user would type it."""
        done = subprocess.run(
            self.command(*words),
            env=self.environment,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check and done.returncode != 0:
            raise Missed(f"petctl {words[0]} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
        return done

    def status(self) -> dict[str, Any]:
        """What `petctl status` knows."""
        status: dict[str, Any] = json.loads(self.call("status", "-o", "json", self.id).stdout)
        return status

    @property
    def path(self) -> Path:
        """The job's directory."""
        return self.home / "jobs" / self.id

    def guardian(self, node: str) -> int:
        """The pid of a node's top process."""
        return int((self.path / "nodes" / node / "pid").read_text())

    def supervisor(self) -> int:
        """The pid of the job's supervisor."""
        pid: int = json.loads((self.path / "coordinator.json").read_text())["pid"]
        return pid

    def node_names(self) -> list[str]:
        """The nodes of the running round, rank 0's first."""
        end = time.monotonic() + 5
        nodes: list[dict[str, Any]] = []
        while not nodes and time.monotonic() < end:  # on a busy machine the picture may be older than the steps
            status = json.loads((self.path / "status.json").read_text())  # the command would cost the machine more time
            nodes = [node for node in status["nodes"] if node.get("rank") is not None]
            time.sleep(0 if nodes else 0.05)
        return [node["name"] for node in sorted(nodes, key=lambda node: node["rank"])]

    def worker(self, node: str) -> int:
        """The pid of the worker of a node that stepped last."""
        return self.marks.last_of(_below(self.guardian(node)))

    def kill_node(self, node: str) -> float:
        """A power cut; the moment of it."""
        guardian = self.guardian(node)
        moment = time.monotonic()
        kill_tree(guardian)
        return moment

    def close(self) -> None:
        if self.id:
            self.call("cancel", "--kill", self.id, check=False)
            until = time.monotonic() + 5.0
            for pid in carriers(self.key):
                wait_gone(pid, until - time.monotonic())


def _below(pid: int) -> set[int]:
    return set(descendants(pid))
