"""Hostile input to a coordinator's port: it must not crash, not change its mind, and not grow.

    python benchmarks/fuzz_coordinator.py [--inputs 1000000] [--seed 1]

Nine of ten inputs come from strangers who do not know the token: random bytes, mangled and truncated frames, promises
of gigabytes, wrong and overheard proofs, half-open and dripping connections. All the while an honest node is
connected to the same coordinator. Checked: the status afterwards is the one from before, the node was never
disturbed, the memory of the process stayed where it was. The rest comes from insiders with the right token whose
reports and calls are wrong; those may well change what the coordinator believes, but must not bring it down.

A failing run is repeated with the same seed, which it prints.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import multiprocessing
import random
import socket
import sys
import time
from collections import deque
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Deque, List, NamedTuple, Tuple

from hostile_inputs import insider, strangers
from pretend_node import PretendNode

from petctl.errors import ProtocolError
from petctl.rendezvous.core import messages as m
from petctl.rendezvous.core.events import Config
from petctl.rendezvous.core.machine import Coordinator
from petctl.rendezvous.net.client import ControlLink
from petctl.rendezvous.net.frames import (
    ROLES,
    FrameReader,
    PeerProof,
    Seal,
    encode_frame,
    frame,
    plain_binding,
    tokens_of,
)
from petctl.rendezvous.net.join_file import JoinFile
from petctl.rendezvous.net.locator import split_address
from petctl.rendezvous.net.server import CoordinatorServer

TOKEN = "feedc0de" * 4
IN_FLIGHT = 32
DRIPPING = 100  # connections that are kept open and send a byte now and then
FRESH_EVERY = 20_000  # insiders' inputs until the coordinator is given a fresh machine: a deposed one ignores much
GROWTH = 8 << 20  # bytes that the process may grow after the first tenth of the inputs


class Result(NamedTuple):
    inputs: int
    seconds: float
    dropped: int
    first_memory: int
    last_memory: int
    complaints: List[str]


class Faults(logging.Handler):
    """Keeps what the coordinator logs as its own fault: an exception that nobody foresaw would end up here."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: List[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.seen) < 5:
            self.seen.append(self.format(record)[-2000:])


def serve(pipe: Connection) -> None:
    """The coordinator's process: a fresh machine on a fresh port whenever the pipe asks, until it says stop."""
    logging.disable(logging.WARNING)
    faults = Faults()
    logging.getLogger().addHandler(faults)

    async def once() -> bool:
        loop = asyncio.get_running_loop()
        machine = Coordinator(Config(1, 4, 1), loop.time(), "fuzzed", epoch=1)
        server: CoordinatorServer
        calls = {"memory": memory, "dropped": lambda: server.dropped, "faults": lambda: faults.seen}
        server = CoordinatorServer(machine, TOKEN, {}, lambda outcome: None, lambda effect: None, calls)
        asked: asyncio.Queue[Any] = asyncio.Queue()
        loop.add_reader(pipe.fileno(), lambda: asked.put_nowait(pipe.recv()))
        host, port = await server.listen("127.0.0.1", 0)
        pipe.send(f"{host}:{port}")
        again: bool = await asked.get() == "renew"
        loop.remove_reader(pipe.fileno())
        server.close()
        return again

    while asyncio.run(once()):
        pass


def stay(address: str, pipe: Connection) -> None:
    """The honest node's process: says when it runs, and at the end whether it was ever disturbed."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        runs, asked = asyncio.Event(), asyncio.Event()

        def told() -> None:
            pipe.recv()
            asked.set()

        def changed(node: PretendNode) -> None:
            if node.member.state == m.RUNNING:
                runs.set()

        loop.add_reader(pipe.fileno(), told)
        node = PretendNode(_join(address), "honest", changed=changed)
        playing = asyncio.ensure_future(node.run())
        await asyncio.wait([playing, asyncio.ensure_future(runs.wait())], return_when=asyncio.FIRST_COMPLETED)
        pipe.send("runs" if runs.is_set() else "never ran")
        await asked.wait()
        pipe.send(not playing.done() and node.member.state == m.RUNNING)
        node.drop()
        await playing

    asyncio.run(play())


def memory() -> int:
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def _join(address: str) -> JoinFile:
    return JoinFile("fuzz", TOKEN, "", {"address": address})


class Attack:
    """Sends inputs, a few connections at a time, and waits for the coordinator's reaction to each."""

    def __init__(self, address: str, chance: random.Random) -> None:
        self.address, self.chance = split_address(address), chance
        self.sources = itertools.cycle(f"127.{a}.{b}.1" for a in range(1, 32) for b in range(1, 255))
        self.dripping: Deque[socket.socket] = deque()

    def strangers(self, count: int) -> None:
        """`count` inputs of peers who do not know the token, each over a connection of its own."""
        for start in range(0, count, IN_FLIGHT):
            waiting = []
            for _ in range(min(IN_FLIGHT, count - start)):
                connection, data = self._connect(), strangers(self.chance)
                try:
                    connection.sendall(data)
                    if self.chance.random() < 0.02:
                        self._drip(connection)
                        continue
                    connection.shutdown(socket.SHUT_WR)
                except OSError:
                    pass  # dropped before everything was sent
                waiting.append(connection)
            for connection in waiting:
                self._until_end(connection)

    def insiders(self, count: int) -> None:
        """`count` inputs of peers who know the token; each speaks until it is dropped."""
        connection, left = None, 0
        for _ in range(count):
            if connection is None or left == 0:
                if connection is not None:
                    self._until_end(connection)
                role = self.chance.choice(ROLES)
                (connection, seal), left = self._introduced(role), self.chance.randrange(1, 20)
            left -= 1
            payload = insider(self.chance, role)
            try:  # now and then without its seal
                connection.sendall(frame(payload, seal if self.chance.random() < 0.98 else None))
            except OSError:
                connection.close()
                connection = None
        if connection is not None:
            self._until_end(connection)

    def end(self) -> None:
        while self.dripping:
            self.dripping.popleft().close()

    def _connect(self) -> socket.socket:
        connection = socket.socket()
        connection.settimeout(20)
        connection.bind((next(self.sources), 0))  # so many connections need more ports than one address has
        connection.connect(self.address)
        return connection

    def _introduced(self, role: str) -> Tuple[socket.socket, Seal]:
        connection, reader = self._connect(), FrameReader(1 << 20)
        proof = PeerProof(
            tokens_of(TOKEN)[role], role, plain_binding(connection.getsockname(), connection.getpeername())
        )

        def receive() -> Any:
            message = reader.next()
            while message is None:
                reader.feed(connection.recv(65536))
                message = reader.next()
            return message

        connection.sendall(encode_frame(proof.hello(receive())))
        seal, _ = proof.check(receive())
        return connection, seal

    def _until_end(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
            except ConnectionError:
                pass
            except OSError as error:
                if isinstance(error, socket.timeout):
                    raise ProtocolError("the coordinator did not end a hostile connection within 20 s") from None

    def _drip(self, connection: socket.socket) -> None:
        self.dripping.append(connection)
        if len(self.dripping) > DRIPPING:
            self.dripping.popleft().close()
        for slow in list(self.dripping)[::7]:
            try:
                slow.send(b"\x00")
            except OSError:
                self.dripping.remove(slow)
                slow.close()


def fuzz(inputs: int, seed: int) -> Result:
    """Attacks a coordinator of its own in another process."""
    spawn = multiprocessing.get_context("spawn")
    pipe, theirs = spawn.Pipe()
    honest_pipe, honest_theirs = spawn.Pipe()
    processes = [spawn.Process(target=serve, args=(theirs,), daemon=True)]
    complaints: List[str] = []
    began, chance = time.monotonic(), random.Random(seed)
    try:
        processes[0].start()
        address = _hear(pipe)
        processes.append(spawn.Process(target=stay, args=(address, honest_theirs), daemon=True))
        processes[1].start()
        if _hear(honest_pipe) != "runs":
            return Result(0, 0, 0, 0, 0, ["the honest node could not join"])
        first, last, dropped = _outside(address, chance, inputs * 9 // 10, complaints)
        honest_pipe.send("how are you?")
        if not _hear(honest_pipe):
            complaints.append("the honest node was disturbed")
        last = _inside(pipe, chance, inputs - inputs * 9 // 10, complaints) or last
        pipe.send("stop")
        processes[0].join(10)
        if processes[0].exitcode != 0:
            complaints.append(f"the coordinator ended with {processes[0].exitcode}")
        if last - first > GROWTH:
            complaints.append(f"the coordinator grew by {(last - first) >> 20} MiB")
        return Result(inputs, time.monotonic() - began, dropped, first, last, complaints)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()


def _outside(address: str, chance: random.Random, inputs: int, complaints: List[str]) -> Tuple[int, int, int]:
    attack = Attack(address, chance)
    with ControlLink(_join(address)) as link:
        before = link.call("status")
        attack.strangers(inputs // 10)
        first = link.call("memory")
        attack.strangers(inputs - inputs // 10)
        attack.end()
        after, last, dropped = link.call("status"), link.call("memory"), link.call("dropped")
        complaints += link.call("faults")
    if after != before:
        complaints.append(f"strangers changed the status from {before} to {after}")
    if dropped < inputs // 2:
        complaints.append(f"only {dropped} of {inputs} hostile connections were counted")
    return first, last, dropped


def _inside(pipe: Connection, chance: random.Random, inputs: int, complaints: List[str]) -> int:
    last = 0
    for start in range(0, inputs, FRESH_EVERY):
        pipe.send("renew")
        address = _hear(pipe)
        Attack(address, chance).insiders(min(FRESH_EVERY, inputs - start))
        with ControlLink(_join(address)) as link:
            if "phase" not in link.call("status"):
                complaints.append("the coordinator has lost its status")
            last = link.call("memory")
            complaints += link.call("faults")
    return last


def _hear(pipe: Connection, within: float = 60.0) -> Any:
    if not pipe.poll(within):
        raise ProtocolError(f"nothing happened for {within:.0f} s")
    return pipe.recv()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    result = fuzz(options.inputs, options.seed)
    print(
        f"{result.inputs:,} inputs in {result.seconds:.0f} s, {result.dropped:,} connections dropped; memory of the"
        f" coordinator {result.first_memory / 2**20:.1f} -> {result.last_memory / 2**20:.1f} MiB"
    )
    for complaint in result.complaints:
        print(f"FAILED: {complaint}")
    return 1 if result.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
