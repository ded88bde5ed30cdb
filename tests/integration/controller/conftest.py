"""A job as it is in pods: its coordinator's container and its nodes, each a process tree on loopback, with TLS."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from petctl.agent.logs.stream import parse_tagged
from petctl.agent.node import runtime_dir
from petctl.agent.workers import processes
from petctl.clusters.certificate import make_certificate
from petctl.errors import Unreachable
from petctl.job.record import JobRecord
from petctl.job.task import Task, Timing
from petctl.rendezvous.core.events import Config
from petctl.rendezvous.net.client import ControlLink
from petctl.rendezvous.net.join_file import JoinFile, read_join_file, write_join_file
from tests.integration.agent.conftest import Node, archive
from tests.integration.elastic.harness import free_port
from tests.integration.waiting import DEADLINE, until

__all__ = ["PodBench", "archive", "bench"]

LEAVE_CODE = 91

# A worker that takes a step whenever it is asked to go on, and says who and where it is.
STEPS = """
import os, sys, time
print("up", os.getpid(), os.environ["PETCTL_ROUND"], os.environ["WORLD_SIZE"], flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""


class Container:
    """A coordinator's container: its process 1, and what it printed."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, message: Path) -> None:
        self.process, self.out, self.message_path = process, out, message

    @property
    def coordinator(self) -> int:
        """Process id of the coordinator proper."""
        return int(until(self._child, "a coordinator process"))

    def _child(self) -> int:
        """The last of the chain: it has no children."""
        living = processes.table()
        below = processes.descendants(self.process.pid, living)
        return next((pid for pid in below if not any(living[other].parent == pid for other in below)), 0)

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        found = []
        for line in self.out.read_bytes().split(b"\n")[:-1]:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # half a line of a process that was killed
            found.append(event)
        return [event for event in found if not kind or event["kind"] == kind]

    def wait(self, seconds: float = DEADLINE) -> int:
        return self.process.wait(seconds)

    def message(self) -> dict[str, Any]:
        data = self.message_path.read_bytes()
        assert len(data) <= 4096
        loaded: dict[str, Any] = json.loads(data)
        return loaded


class PodBench:
    """One job: what a cluster would mount into its pods, and the pods."""

    def __init__(self, directory: Path, archive: Path) -> None:
        self.directory, self.archive = directory, archive
        self.job = f"pods-{os.urandom(4).hex()}"
        self.material = directory / "job"
        self.join_path = directory / "join.json"
        self.go = directory / "go"
        self.containers: list[Container] = []
        self.nodes: list[Node] = []
        self.port = free_port()

    def describe(
        self, kind: str, words: list[str], nodes: int = 2, least: int = 0, most: int = 0, **fields: Any
    ) -> None:
        """Writes what the pods of a job find mounted."""
        said: dict[str, Any] = {name: fields.pop(name) for name in ("max_time", "secrets") if name in fields}
        fields.setdefault("timing", Timing(silence=5.0, fence_after=60.0))
        fields.setdefault("python", sys.executable)
        fields.setdefault("grace", 2.0)
        fields.setdefault("warm", False)
        restarts = fields.pop("restarts", 0)
        request = {"numbered": fields.pop("numbered", True)}
        bounds = {name: fields.pop(name) for name in ("retry_on", "recover_within") if name in fields}
        config = Config(least or nodes, most or nodes, nodes, restarts, silence=5.0, resize_interval=0.2, **bounds)
        task = Task(job=self.job, kind=kind, words=words, restarts=restarts, **fields)
        command = " ".join(words)
        record = JobRecord(self.job, "pods", "kubernetes", time.time(), command, config, task, request=request, **said)
        self.material.mkdir(exist_ok=True)
        certificate = make_certificate(["localhost"], ["127.0.0.1"])
        token = os.urandom(16).hex()
        (self.material / "job.json").write_text(json.dumps(record.to_dict()))
        (self.material / "token").write_text(token)
        (self.material / "tls.crt").write_bytes(certificate.certificate)
        (self.material / "tls.key").write_bytes(certificate.key)
        locator = {"address": f"127.0.0.1:{self.port}"}
        write_join_file(self.join_path, JoinFile(self.job, token, certificate.pin, locator))

    def found_by_file(self) -> Path:
        """Lets nodes and coordinators find the coordinator through a file that names its address."""
        join, place = read_join_file(self.join_path), self.directory / "coordinator.json"
        for path in (self.join_path, self.material / "join.json"):
            write_join_file(path, dataclasses.replace(join, locator={"file": str(place)}))
        return place

    def steps(self, **options: Any) -> None:
        """A job whose workers work until `go` exists."""
        script = self.directory / "steps.py"
        script.write_text(STEPS)
        self.describe("script", [str(script), str(self.go)], **options)

    def coordinate(
        self,
        *words: str,
        replacement: int = 0,
        port: int = 0,
        python: str = sys.executable,
        inside: Sequence[str] = (),
    ) -> Container:
        """The coordinator's pod, the first or a replacement; `inside`: what starts it."""
        own = self.directory / f"coordinator-{len(self.containers)}"
        own.mkdir()
        message = own / "termination-log"
        message.touch()
        argv = [*inside, python, str(self.archive), "coordinate", "--job", str(self.material)]
        argv += ["--state", str(own / "state")]
        argv += ["--replacement", f"{replacement}+", "--listen", "127.0.0.1", "--port", str(port or self.port)]
        argv += ["--message", str(message), *words]
        with open(own / "out", "wb") as out, open(own / "err", "wb") as err:
            process = subprocess.Popen(argv, stdout=out, stderr=err, cwd=self.directory, start_new_session=True)
        self.containers.append(Container(process, own / "out", message))
        return self.containers[-1]

    def node(self, index: int, *words: str, python: str = sys.executable) -> Node:
        """A node's pod."""
        life = sum(node.state.name.startswith(f"{index}-") for node in self.nodes)
        state = self.directory / "nodes" / f"{index}-{life}"
        state.mkdir(parents=True)
        argv = [python, str(self.archive), "join", "--file", str(self.join_path), "--node", str(index)]
        argv += ["--address", "127.0.0.1", "--state-dir", str(state), "--stream", "--tagged"]
        argv += ["--replacement", str(life), "--leave-code", str(LEAVE_CODE), *words]
        with open(state / "out", "wb") as out, open(state / "err", "wb") as err:
            process = subprocess.Popen(argv, stdout=out, stderr=err, cwd=self.directory, start_new_session=True)
        self.nodes.append(Node(process, state, state / "out"))
        return self.nodes[-1]

    def lines(self, node: Node, number: int | None = None) -> list[str]:
        """What the workers of a node have printed, read back from its pod's log."""
        parsed = [parse_tagged(line) for line in node.log.read_bytes().split(b"\n")[:-1]]
        return [one.data.decode() for one in parsed if one is not None and number in (None, one.name.round)]

    def up(self, node: Node, number: int, world_size: int) -> int:
        """Process id of a node's worker, once it works in this round."""

        def look() -> str:
            found = [line.split() for line in self.lines(node, number) if line.startswith("up ")]
            return next((words[1] for words in found if words[2:] == [str(number), str(world_size)]), "")

        return int(until(look, f"a worker of round {number} of {world_size}"))

    def link(self) -> ControlLink:
        return ControlLink(read_join_file(self.join_path))

    def call(self, name: str, **params: Any) -> Any:
        """One control call, whichever coordinator answers."""
        end = time.monotonic() + DEADLINE
        while True:
            try:
                with self.link() as link:
                    return link.call(name, **params)
            except Unreachable:
                assert time.monotonic() < end

    @property
    def _processes(self) -> list[subprocess.Popen[bytes]]:
        return [container.process for container in self.containers] + [node.process for node in self.nodes]

    def left(self) -> set[int]:
        """Every living process of the job."""
        living = processes.table()
        own = {process.pid for process in self._processes} & set(living)
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

    def kill(self, container: Container) -> None:
        """The whole pod, without a warning."""
        victims = {container.process.pid, *processes.descendants(container.process.pid, processes.table())}
        processes.signal_each(victims, signal.SIGKILL)
        container.wait()

    def shut(self) -> None:
        """Leaves nothing behind, whatever the test did."""
        for process in self._processes:
            process.poll()
        processes.extinguish(self.left, DEADLINE)
        for process in self._processes:
            process.wait(DEADLINE)
        for state in (self.directory / "nodes").glob("*"):
            runtime_dir.remove_of(str(state))


@pytest.fixture
def bench(tmp_path: Path, archive: Path) -> Iterator[PodBench]:
    """A job that leaves nothing behind."""
    bench = PodBench(tmp_path, archive)
    try:
        yield bench
    finally:
        bench.shut()
