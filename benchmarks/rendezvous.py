"""How long until N agents agree on a round: petctl's coordinator beside torch's own dynamic rendezvous.

    python benchmarks/rendezvous.py [--nodes 4,16,64,256,1024] [--tls] [--torch-python PYTHON] [--repeat 3]
    python benchmarks/rendezvous.py --silent 2000          what silent connections to a TLS port cost in memory

Every agent is a real, authenticated connection on loopback with a real `Member` behind it; only the workers are
pretended. One process coordinates, at most 8 processes hold the agents. Time runs from "go", when every process
stands and nobody is connected yet, until the last node has been told RUN and has reported RUNNING. Then one node
drops its connection, and the time until all others run in the next round is taken. Torch's handlers are threads of
one process against one TCPStore, in the same run; it gets a deadline for each N.

It fails (exit code 1) when 1,024 agents take longer than 3 s, or more than 24 times as long as 64.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Set

from pretend_node import PretendNode

from petctl.clusters.certificate import make_certificate
from petctl.rendezvous.core import messages as m
from petctl.rendezvous.core.events import Config, Expect, Reported, Tell
from petctl.rendezvous.core.machine import Coordinator
from petctl.rendezvous.net.client import ControlLink
from petctl.rendezvous.net.join_file import JoinFile
from petctl.rendezvous.net.listener import allow_many_connections
from petctl.rendezvous.net.locator import split_address
from petctl.rendezvous.net.server import CoordinatorServer
from petctl.rendezvous.net.tls import certificate_pin, server_context

ROOT = Path(__file__).resolve().parent.parent
TOKEN = "0123456789abcdef" * 2
CLIENT_PROCESSES = 8
LONGEST, STEEPEST = 3.0, 24.0
TORCH_NODES, TORCH_DEADLINE = (4, 16, 64), 60.0


class Result(NamedTuple):
    seconds: float
    again: float  # seconds of the round after one node was lost
    messages: float  # per node, both directions, from "go" to the last RUNNING
    again_messages: float
    cpu: float  # milliseconds of the coordinator's processor per node, until all run


class Watched(Coordinator):
    """Counts what goes in and out, and notices when enough nodes run the same round, one after that of `watch`."""

    inward = outward = 0

    def watch(self, enough: int, pipe: Connection) -> None:
        self.enough, self.pipe, self.before = enough, pipe, self.ran
        self.seen: Set[str] = set()
        self.inward = self.outward = 0
        self.cpu_before = time.process_time()

    def step(self, event: object, now: float) -> None:
        super().step(event, now)
        if isinstance(event, Reported):
            self.inward += 1
            report = event.report
            new = report.round == self.round > self.before
            if report.state == m.RUNNING and new and report.node not in self.seen:
                self.seen.add(report.node)
                if len(self.seen) == self.enough:
                    self.pipe.send(
                        (time.monotonic(), self.inward + self.outward, time.process_time() - self.cpu_before)
                    )

    def settle(self, now: float) -> List[object]:
        effects = super().settle(now)
        self.outward += sum(isinstance(effect, Tell) for effect in effects)
        return effects


def coordinate(nodes: int, pipe: Connection, profile: str, tls: str) -> None:
    """The coordinator's process: serves until the pipe says otherwise."""
    allow_many_connections()
    gc.freeze()

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        machine = Watched(Config(1, nodes, nodes), loop.time(), "benchmark", epoch=1)
        machine.watch(nodes, pipe)
        encrypted: Dict[str, Any] = {}
        if tls:
            certificate, key = f"{tls}/tls.crt", f"{tls}/tls.key"
            encrypted = {"tls": server_context(certificate, key), "binding": certificate_pin(certificate)}
        server = CoordinatorServer(
            machine, TOKEN, {"task": {}}, lambda outcome: None, lambda effect: None, {"memory": memory}, **encrypted
        )
        host, port = await server.listen("127.0.0.1", 0)
        server.step(Expect(tuple(str(n) for n in range(nodes)), within(nodes)))
        asked: asyncio.Queue[Any] = asyncio.Queue()
        loop.add_reader(pipe.fileno(), lambda: asked.put_nowait(pipe.recv()))
        pipe.send(f"{host}:{port}")
        while await asked.get() == "again":
            machine.watch(nodes - 1, pipe)
            pipe.send("watching")
        server.close()

    if not profile:
        asyncio.run(serve())
        return
    import cProfile

    with cProfile.Profile() as profiler:
        asyncio.run(serve())
    profiler.dump_stats(profile)


def take_part(names: List[str], address: str, pin: str, pipe: Connection) -> None:
    """A client process: its share of the nodes, each with a connection of its own."""
    allow_many_connections()

    async def play() -> None:
        loop = asyncio.get_running_loop()
        asked: asyncio.Queue[Any] = asyncio.Queue()
        loop.add_reader(pipe.fileno(), lambda: asked.put_nowait(pipe.recv()))
        join = JoinFile("benchmark", TOKEN, pin, {"address": address})
        pipe.send("ready")
        await asked.get()
        nodes = [PretendNode(join, name) for name in names]
        playing = [asyncio.ensure_future(node.run()) for node in nodes]
        while await asked.get() == "drop":
            nodes[-1].drop()
        for node in nodes:
            node.drop()
        await asyncio.gather(*playing, return_exceptions=True)

    asyncio.run(play())


def memory() -> int:
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def within(nodes: int) -> float:
    """Seconds that a rendezvous may take here before it counts as failed."""
    return 60.0 + nodes / 50


def measure(nodes: int, profile: str = "", tls: str = "") -> Result:
    """One rendezvous of `nodes` agents, and the next one with one agent fewer."""
    spawn = multiprocessing.get_context("spawn")
    processes: List[Any] = []

    def start(target: Any, *arguments: Any) -> Connection:
        mine, theirs = spawn.Pipe()
        process = spawn.Process(target=target, args=tuple(theirs if a is PIPE else a for a in arguments), daemon=True)
        process.start()
        theirs.close()
        processes.append(process)
        return mine

    try:
        coordinator = start(coordinate, nodes, PIPE, profile, tls)
        address = hear(coordinator)
        names = [str(n) for n in range(nodes)]
        shares = [names[k::CLIENT_PROCESSES] for k in range(min(CLIENT_PROCESSES, nodes))]
        pin = certificate_pin(f"{tls}/tls.crt") if tls else ""
        clients = [start(take_part, share, address, pin, PIPE) for share in shares]
        for client in clients:
            hear(client)
        began = time.monotonic()
        for client in clients:
            client.send("go")
        ended, messages, cpu = hear(coordinator, within(nodes))
        coordinator.send("again")
        hear(coordinator)
        dropped = time.monotonic()
        clients[0].send("drop")
        again, again_messages, _ = hear(coordinator, within(nodes))
        for pipe in (*clients, coordinator):
            pipe.send("stop")
        for process in processes:
            process.join(10)
        return Result(ended - began, again - dropped, messages / nodes, again_messages / nodes, 1000 * cpu / nodes)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()


PIPE = object()  # stands for the child's end of its pipe


def hear(pipe: Connection, seconds: float = 60.0) -> Any:
    if not pipe.poll(seconds):
        raise SystemExit(f"nothing happened for {seconds:.0f} s")
    return pipe.recv()


def measure_silent(count: int, tls: str) -> None:
    """Prints what `count` connections that say nothing cost a coordinator that speaks TLS."""
    spawn = multiprocessing.get_context("spawn")
    mine, theirs = spawn.Pipe()
    process = spawn.Process(target=coordinate, args=(1, theirs, "", tls), daemon=True)
    process.start()
    allow_many_connections()
    try:
        host, port = split_address(hear(mine))
        join = JoinFile("benchmark", TOKEN, certificate_pin(f"{tls}/tls.crt"), {"address": f"{host}:{port}"})
        with ControlLink(join) as link:
            before = link.call("memory")
            silent = [socket.create_connection((host, port)) for _ in range(count)]
            with ControlLink(join) as last:  # accepted after all of them
                after = last.call("memory")
        for connection in silent:
            connection.close()
        print(f"{count:,} silent connections: {(after - before) / 2**20:.1f} MiB")
    finally:
        process.kill()
        process.join()


def measure_torch(python: str, nodes: int) -> Optional[float]:
    """Seconds of torch's rendezvous of `nodes`, or None when it does not get there in time."""
    script = Path(__file__).with_name("rendezvous_torch.py")
    with subprocess.Popen([python, str(script), str(nodes)], stdout=subprocess.PIPE, text=True) as process:
        try:
            output, _ = process.communicate(timeout=TORCH_DEADLINE + 20)
        except subprocess.TimeoutExpired:
            process.kill()
            return None
    return float(output) if process.returncode == 0 else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="4,16,64,256,1024")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--torch-python",
        default=os.environ.get("PETCTL_TORCH_PYTHON", str(ROOT / ".venv-torch/bin/python")),
        help="an interpreter with PyTorch 2.13 (default: $PETCTL_TORCH_PYTHON, else .venv-torch/bin/python)",
    )
    parser.add_argument("--profile", default="", help="write the coordinator's profile to this file")
    parser.add_argument("--tls", action="store_true", help="TLS with a pinned certificate, as off loopback")
    parser.add_argument("--silent", type=int, default=0, help="only measure so many silent connections to a TLS port")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tls = ""
        if options.tls or options.silent:
            tls, made = folder, make_certificate([], ["127.0.0.1"])
            Path(tls, "tls.crt").write_bytes(made.certificate)
            Path(tls, "tls.key").write_bytes(made.key)
        if options.silent:
            measure_silent(options.silent, tls)
            return 0
        return compare(options, tls)


def compare(options: argparse.Namespace, tls: str) -> int:
    sizes = [int(word) for word in options.nodes.split(",")]
    middle: Dict[int, float] = {}
    print(f"{'nodes':>6} {'seconds':>9} {'worst':>7} {'one lost':>9} {'messages per node':>19} {'CPU':>8} {'torch':>8}")
    for size in sizes:
        results = [measure(size, options.profile, tls) for _ in range(options.repeat)]
        middle[size] = statistics.median(r.seconds for r in results)
        beside = ""
        if Path(options.torch_python).exists() and size in TORCH_NODES:
            seconds = measure_torch(options.torch_python, size)
            beside = f"{seconds:.2f}" if seconds is not None else f"> {TORCH_DEADLINE:.0f}"
        print(
            f"{size:6} {middle[size]:9.3f} {max(r.seconds for r in results):7.3f}"
            f" {statistics.median(r.again for r in results):9.3f}"
            f" {results[0].messages:11.1f} /{results[0].again_messages:6.1f}"
            f" {min(r.cpu for r in results):5.2f} ms {beside:>8}",
            flush=True,
        )
    good = True
    if 1024 in middle:
        good = middle[1024] <= LONGEST
        print(f"1,024 agents: {middle[1024]:.2f} s (at most {LONGEST:.0f})")
        if 64 in middle:
            ratio = middle[1024] / middle[64]
            good = good and ratio <= STEEPEST
            print(f"t(1,024) / t(64): {ratio:.1f} (at most {STEEPEST:.0f})")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
