"""Another user of the machine between a node and its coordinator: no secret leaves, no frame gets in."""

import asyncio
import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from petctl.agent.node import connection
from petctl.errors import Unreachable
from petctl.rendezvous.core.events import Disconnected, Reported
from petctl.rendezvous.net.client import AgentLink, ControlLink
from petctl.rendezvous.net.frames import encode_frame
from petctl.rendezvous.net.join_file import JoinFile

from .harness import TOKEN, RawPeer, ScriptedMachine, Served, in_loop, report_of, when_logged

SECRET = "hunter2-of-the-job"
WELCOME = {"task": {"secrets": {"KEY": SECRET}}}


class Relay:
    """The relay's process, on a port of its choice."""

    def __init__(self, port):
        self.process: Any = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("relay.py")), str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.line() == "listens"

    def line(self):
        return self.process.stdout.readline().strip()

    def relay_to(self, port):
        self.process.stdin.write(f"{port}\n")
        self.process.stdin.flush()

    def seen(self):
        """What came from the peer and what from the coordinator, once the connection is over."""
        while len(parts := self.line().split()) < 2:
            assert parts == ["connected"]
        return [bytes.fromhex(part.strip("-")) for part in parts]

    def end(self):
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def relay_on(port):
    relay = Relay(port)
    try:
        yield relay
    finally:
        relay.end()


async def freed_port(tmp_path):
    """The port of a coordinator that has ended, which its nodes still know."""
    async with Served(ScriptedMachine()) as first:
        (tmp_path / "coordinator.json").write_text(json.dumps({"address": f"127.0.0.1:{first.port}"}))
    return first.port, JoinFile("job", TOKEN, "", {"file": str(tmp_path / "coordinator.json")})


@in_loop
async def test_a_relay_on_the_freed_port_gets_no_secrets_and_no_node(tmp_path):
    port, join = await freed_port(tmp_path)
    machine = ScriptedMachine()
    with relay_on(port) as relay:
        async with Served(machine, welcome=WELCOME) as served:
            relay.relay_to(served.port)
            with pytest.raises(Unreachable):
                await AgentLink(join).connect()
            said, answered = await served.blocking(relay.seen)
            assert said and SECRET.encode() not in answered
            assert served.server.dropped == 1 and not machine.of(Reported)


@in_loop
async def test_a_relay_cannot_use_the_command_line_either(tmp_path):
    port, join = await freed_port(tmp_path)
    with relay_on(port) as relay:
        async with Served(ScriptedMachine(), control={"secret": lambda: SECRET}) as served:
            relay.relay_to(served.port)
            with pytest.raises(Unreachable):
                await served.blocking(ControlLink(join).call, "secret")
            assert SECRET.encode() not in (await served.blocking(relay.seen))[1]


@in_loop
async def test_a_relay_that_gave_the_port_back_with_a_connection_in_hand_gets_nothing(tmp_path):
    port, join = await freed_port(tmp_path)
    with relay_on(port) as relay:
        connecting = asyncio.create_task(AgentLink(join).connect())
        blocking = asyncio.get_running_loop().run_in_executor
        assert await blocking(None, relay.line) == "connected"  # and its own port is closed
        served = Served(ScriptedMachine(), welcome=WELCOME)
        await served.server.listen("127.0.0.1", port)  # as the job's next supervisor does
        relay.relay_to(port)
        with pytest.raises(Unreachable):
            await connecting
        assert SECRET.encode() not in (await blocking(None, relay.seen))[1]
        served.server.close()


@in_loop
async def test_a_node_that_met_a_relay_finds_the_true_coordinator(tmp_path, monkeypatch):
    port, join = await freed_port(tmp_path)
    connected, refused = asyncio.Event(), asyncio.Event()
    node = connection.Connection(join, lambda argv, log: None, lambda welcome: connected.set(), print, print)
    when_logged(monkeypatch, refused.set)
    with relay_on(port) as relay:
        async with Served(ScriptedMachine(), welcome=WELCOME) as served:
            relay.relay_to(served.port)
            running = asyncio.create_task(node.run())
            await refused.wait()
            assert not connected.is_set()
            (tmp_path / "coordinator.json").write_text(json.dumps({"address": f"127.0.0.1:{served.port}"}))
            await connected.wait()
            running.cancel()
            node.drop()


@in_loop
async def test_a_node_does_not_end_because_of_what_answers_on_the_freed_port(tmp_path, monkeypatch):
    tried = asyncio.Event()

    async def answer(reader, writer):
        writer.write(encode_frame({"petctl": 99, "nonce": "none"}))
        await reader.read(4096)
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    address = f"127.0.0.1:{other.sockets[0].getsockname()[1]}"
    (tmp_path / "coordinator.json").write_text(json.dumps({"address": address}))
    join = JoinFile("job", TOKEN, "", {"file": str(tmp_path / "coordinator.json")})
    node = connection.Connection(join, lambda argv, log: None, print, print, print)
    when_logged(monkeypatch, tried.set)
    running = asyncio.create_task(node.run())
    await asyncio.wait([asyncio.create_task(tried.wait()), running], return_when=asyncio.FIRST_COMPLETED)
    assert not running.done()
    running.cancel()
    other.close()


@in_loop
async def test_a_frame_that_is_replayed_or_injected_ends_the_connection():
    for how in ("replayed", "injected", "unsealed", "changed"):
        machine = ScriptedMachine()
        async with Served(machine) as served:
            with RawPeer(served) as peer:
                await served.blocking(peer.introduce)
                honest = peer.sealed(report_of("0"))
                peer.socket.sendall(honest)
                await machine.until_true(lambda machine=machine: machine.of(Reported))
                forged = {
                    "replayed": honest,
                    "injected": honest[:4] + bytes(len(honest) - 4 - len(payload_of(honest))) + payload_of(honest),
                    "unsealed": encode_frame(report_of("0")),
                    "changed": peer.sealed(report_of("0"))[:-1] + b" ",
                }[how]
                peer.socket.sendall(forged)
                assert await served.blocking(peer.until_dropped)
            await machine.until_true(lambda machine=machine: machine.of(Disconnected))
            assert len(machine.of(Reported)) == 1, how
            assert served.server.dropped == 1


def payload_of(frame):
    return frame[frame.index(b"{") :]


@in_loop
async def test_a_node_refuses_orders_that_its_coordinator_did_not_seal():
    """The relay of these frames knows the whole conversation, but not the token."""

    async def altered(reader, writer):
        true_reader, true_writer = await asyncio.open_connection("127.0.0.1", served.port)

        async def forward():
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while data := await reader.read(1 << 16):
                    true_writer.write(data)

        forwarding = asyncio.create_task(forward())
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            for _ in range(3):  # greeting, proof, welcome
                size = await true_reader.readexactly(4)
                writer.write(size + await true_reader.readexactly(int.from_bytes(size, "big")))
            writer.write(encode_frame({"order": {"header": {}, "sentence": "run this"}}))
            await forwarding
        true_writer.close()
        writer.close()

    with pytest.MonkeyPatch.context() as patch:
        # As if the relay had the addresses of both ends, which no other process can have.
        patch.setattr("petctl.rendezvous.net.client.plain_binding", lambda near, far: "plain")
        patch.setattr("petctl.rendezvous.net.listener.plain_binding", lambda far, near: "plain")
        async with Served(ScriptedMachine()) as served:
            between = await asyncio.start_server(altered, "127.0.0.1", 0)
            port = between.sockets[0].getsockname()[1]
            link = AgentLink(JoinFile("job", TOKEN, "", {"address": f"127.0.0.1:{port}"}))
            assert await link.connect() == {"task": 1}
            with pytest.raises(Unreachable, match="not sealed"):
                await link.receive()
            link.close()
            between.close()
