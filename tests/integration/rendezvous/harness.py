"""What the tests of the coordinator share: a loop with a deadline, a scripted machine, raw peers."""

import asyncio
import functools
import socket
import threading

from petctl.agent.node import connection
from petctl.rendezvous.core.messages import Header, Outcome, Report, encode
from petctl.rendezvous.net.frames import FrameReader, PeerProof, encode_frame, plain_binding, tokens_of, welcome_of
from petctl.rendezvous.net.join_file import JoinFile
from petctl.rendezvous.net.server import CoordinatorServer

TOKEN = "5ec7e7" * 4
WITHIN = 60.0


def in_loop(test):
    """Runs an async test in a loop of its own, with a deadline."""

    @functools.wraps(test)
    def run(**fixtures):
        asyncio.run(asyncio.wait_for(test(**fixtures), WITHIN))

    return run


class ScriptedMachine:
    """Has the machine's interface; writes down what it is told and answers with what it was given."""

    def __init__(self):
        self.log = []  # events, and "settle" for each decision
        self.effects = []  # of the next settle
        self.until = None
        self.epoch, self.round, self.ran, self.places = 1, 0, 0, {}
        self.changed = asyncio.Event()

    def step(self, event, now):
        self.log.append(event)
        self.changed.set()

    def settle(self, now):
        self.log.append("settle")
        self.changed.set()
        effects, self.effects = self.effects, []
        if self.until is not None and now >= self.until:
            self.until = None
        return effects

    @property
    def due(self):
        return self.until

    def status(self):
        return {"phase": "scripted"}

    def of(self, kind):
        return [entry for entry in self.log if isinstance(entry, kind)]

    async def until_true(self, condition):
        """Waits for the machine to be told something that makes `condition` true."""
        while not condition():
            self.changed.clear()
            await self.changed.wait()


class Served:
    """A coordinator on loopback for as long as the block lasts."""

    def __init__(self, machine, **options):
        self.effects: list[object] = []
        self.recorded: list[Outcome] = []
        options = {"record": self.recorded.append, "on_effect": self.effects.append, "welcome": {"task": 1}, **options}
        self.server = CoordinatorServer(machine, TOKEN, **options)

    async def __aenter__(self):
        self.host, self.port = await self.server.listen("127.0.0.1", 0)
        self.join = JoinFile("job", TOKEN, "", {"address": f"{self.host}:{self.port}"})
        return self

    async def __aexit__(self, *error):
        self.server.close()

    async def blocking(self, work, *arguments, **named):
        """A blocking peer needs a thread of its own while the coordinator's loop turns."""
        return await asyncio.get_running_loop().run_in_executor(None, functools.partial(work, *arguments, **named))


class RawPeer:
    """A peer by plain sockets, for what no well-behaved client would do. Blocking."""

    def __init__(self, served, token=TOKEN, role="agent"):
        self.socket = socket.create_connection((served.host, served.port), WITHIN)
        self.reader, self.seal, self.token, self.role = FrameReader(1 << 22), None, token, role

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.socket.close()

    def receive(self):
        while True:
            message = self.reader.next()
            if message is not None:
                return message
            data = self.socket.recv(1 << 16)
            if not data:
                return None
            self.reader.feed(data)

    def introduce(self):
        """Proves itself; the coordinator's welcome."""
        binding = plain_binding(self.socket.getsockname(), self.socket.getpeername())
        proof = PeerProof(tokens_of(self.token)[self.role], self.role, binding)
        self.send(proof.hello(self.receive()))
        self.seal, self.reader.seal = proof.check(self.receive())
        return welcome_of(self.receive())

    def sealed(self, message):
        return encode_frame(message, self.seal)

    def send(self, message):
        self.socket.sendall(self.sealed(message))

    def until_dropped(self):
        """True once the coordinator has ended the connection."""
        try:
            while self.receive() is not None:
                pass
        except ConnectionError:
            pass
        return True


def report_of(node="0", incarnation="a", number=1, **fields):
    return {"report": encode(Report(node, incarnation, number, 1, "127.0.0.1", Header(), **fields))}


def hold_up(seconds):
    """Keeps the calling thread, and so its loop, from doing anything else."""
    threading.Event().wait(seconds)


def when_logged(monkeypatch, called):
    """Calls when a node's connection logs something."""
    monkeypatch.setattr(connection.log, "info", lambda *words: called())
