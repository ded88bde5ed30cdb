"""Off loopback it is TLS with a pinned certificate, and the proof is bound to it."""

import gc
import socket
from asyncio import sslproto

import pytest

from petctl.clusters.certificate import make_certificate
from petctl.errors import AuthError, UsageError
from petctl.rendezvous.net import listener
from petctl.rendezvous.net.client import AgentLink, ControlLink
from petctl.rendezvous.net.join_file import JoinFile
from petctl.rendezvous.net.tls import certificate_pin, server_context

from .harness import TOKEN, RawPeer, ScriptedMachine, Served, in_loop


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    made = make_certificate(["localhost"], ["127.0.0.1", "::1"])
    (folder / "cert.pem").write_bytes(made.certificate)
    (folder / "key.pem").write_bytes(made.key)
    assert certificate_pin(folder / "cert.pem") == made.pin
    return folder, made.pin


def served_with(files, machine):
    folder, pin = files
    context = server_context(folder / "cert.pem", folder / "key.pem")
    return Served(machine, tls=context, binding=pin)


@in_loop
async def test_the_pinned_coordinator_is_talked_to(files):
    async with served_with(files, ScriptedMachine()) as served:
        join = JoinFile("job", TOKEN, files[1], served.join.locator)
        link = AgentLink(join)
        assert await link.connect() == {"task": 1}
        link.close()
        control = ControlLink(join)
        assert await served.blocking(control.call, "status") == {"phase": "scripted"}
        control.close()


@in_loop
async def test_another_certificate_is_refused_before_anything_is_sent(files):
    async with served_with(files, ScriptedMachine()) as served:
        join = JoinFile("job", TOKEN, "00" * 32, served.join.locator)
        with pytest.raises(AuthError, match="certificate is not the one"):
            await AgentLink(join).connect()
        with pytest.raises(AuthError, match="certificate is not the one"):
            await served.blocking(ControlLink(join).connect)


@in_loop
async def test_a_proof_bound_to_another_certificate_does_not_hold(files):
    machine = ScriptedMachine()
    folder, pin = files
    served = Served(machine, tls=server_context(folder / "cert.pem", folder / "key.pem"), binding="11" * 32)
    async with served:
        with pytest.raises(AuthError):
            await AgentLink(JoinFile("job", TOKEN, pin, served.join.locator)).connect()


@in_loop
async def test_bytes_that_are_no_tls_are_dropped_and_counted(files, monkeypatch):
    monkeypatch.setattr(listener, "PROOF_WITHIN", 0.5)
    async with served_with(files, ScriptedMachine()) as served:
        with RawPeer(served) as garbage, RawPeer(served) as silent:
            garbage.socket.sendall(b"\x00" * 64)
            assert await served.blocking(lambda: drained(garbage.socket))
            assert await served.blocking(lambda: drained(silent.socket))
        assert served.server.dropped == 2
        monkeypatch.undo()
        join = JoinFile("job", TOKEN, files[1], served.join.locator)
        link = AgentLink(join)
        assert await link.connect() == {"task": 1}
        link.close()


@in_loop
async def test_a_silent_connection_costs_no_tls(files):
    async with served_with(files, ScriptedMachine()) as served:
        strangers = [socket.create_connection((served.host, served.port)) for _ in range(200)]
        link = AgentLink(JoinFile("job", TOKEN, files[1], served.join.locator))
        assert await link.connect() == {"task": 1}  # accepted after all of them
        mine = sum(isinstance(thing, sslproto.SSLProtocol) for thing in gc.get_objects())
        assert mine <= 4  # both ends of the link
        for stranger in strangers:
            stranger.close()
        link.close()


@in_loop
async def test_strangers_in_the_middle_of_a_handshake_have_bounded_places_too(files, monkeypatch):
    monkeypatch.setattr(listener, "UNPROVEN_AT_ONCE", 16)
    monkeypatch.setattr(listener, "SILENT", 0.2)
    async with served_with(files, ScriptedMachine()) as served:
        strangers = [await served.blocking(RawPeer, served) for _ in range(40)]
        link = AgentLink(JoinFile("job", TOKEN, files[1], served.join.locator))
        assert await link.connect() == {"task": 1}
        assert await served.blocking(lambda: drained(strangers[0].socket))
        for stranger in strangers:
            stranger.socket.close()
        link.close()


@in_loop
async def test_without_a_pin_nothing_leaves_this_machine(monkeypatch):
    monkeypatch.setattr("petctl.rendezvous.net.client.is_loopback", lambda host: False)
    async with Served(ScriptedMachine()) as served:
        with pytest.raises(AuthError, match="has no certificate pin"):
            await AgentLink(served.join).connect()
        with pytest.raises(AuthError, match="has no certificate pin"):
            await served.blocking(ControlLink(served.join).connect)


def test_a_certificate_that_cannot_be_used_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"cert\.pem"):
        server_context(tmp_path / "cert.pem", tmp_path / "key.pem")


def drained(connection: socket.socket) -> bool:
    """True once the other side has ended the connection."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass
    return True
