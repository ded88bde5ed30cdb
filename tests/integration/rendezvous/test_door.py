"""Who is let in, and what becomes of those who are not."""

import asyncio
import contextlib
import json
import os
import resource
import socket
import struct
import subprocess
import sys

import pytest

from petctl.agent.node import connection
from petctl.errors import AuthError, InternalError, Unreachable
from petctl.rendezvous.core.events import Disconnected, Reported
from petctl.rendezvous.net import client, listener
from petctl.rendezvous.net.client import AgentLink, ControlLink
from petctl.rendezvous.net.frames import CoordinatorProof, encode_frame, tokens_of
from petctl.rendezvous.net.join_file import JoinFile, write_join_file

from .harness import TOKEN, WITHIN, RawPeer, ScriptedMachine, Served, in_loop, report_of, when_logged


def wrong(served):
    return JoinFile("job", "another token", "", served.join.locator)


@in_loop
async def test_a_wrong_token_is_an_auth_error_on_both_links():
    machine = ScriptedMachine()
    async with Served(machine) as served:
        with pytest.raises(AuthError, match="refused this join file's token"):
            await AgentLink(wrong(served)).connect()
        with pytest.raises(AuthError, match="refused this join file's token"):
            await served.blocking(ControlLink(wrong(served)).connect)
        assert served.server.dropped == 2
        assert not machine.of(Reported)


@in_loop
async def test_a_coordinator_that_cannot_prove_itself_is_an_auth_error():
    async def impostor(reader, writer):
        writer.write(encode_frame(CoordinatorProof(tokens_of("guess"), "plain").greeting()))
        await reader.read(4096)
        writer.write(encode_frame({"proof": "0" * 64, "welcome": {"task": "rm -rf"}}))
        writer.close()

    server = await asyncio.start_server(impostor, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(AuthError, match="not the one this join file is for"):
        await AgentLink(JoinFile("job", TOKEN, "", {"address": f"127.0.0.1:{port}"})).connect()
    server.close()


@in_loop
async def test_nobody_there_or_somebody_else_is_unreachable(tmp_path):
    async def other_program(reader, writer):
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n" * 4)
        writer.close()

    server = await asyncio.start_server(other_program, "127.0.0.1", 0)
    other = server.sockets[0].getsockname()[1]
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        places = [{"address": f"127.0.0.1:{other}"}, {"address": f"127.0.0.1:{unused.getsockname()[1]}"}]
        places += [{"file": str(tmp_path / "missing")}, {"dns": "nobody.invalid:80"}, {"url": "http://127.0.0.1:1/"}]
        for place in places:
            join = JoinFile("job", TOKEN, "", place)
            with pytest.raises(Unreachable):
                await AgentLink(join).connect()
            with pytest.raises(Unreachable):
                await asyncio.get_running_loop().run_in_executor(None, ControlLink(join).connect)
    server.close()


@in_loop
async def test_silence_instead_of_a_greeting_is_unreachable(monkeypatch):
    monkeypatch.setattr(client, "CONNECT_WITHIN", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        join = JoinFile("job", TOKEN, "", {"address": f"127.0.0.1:{silent.getsockname()[1]}"})
        with pytest.raises(Unreachable, match="answered within"):
            await AgentLink(join).connect()


@contextlib.contextmanager
def swallowing():
    """An address that swallows what is sent there: nobody answers, and nobody refuses."""
    with contextlib.ExitStack() as sockets:
        full = sockets.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(2):  # nobody accepts them, and then there is no place left
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield f"127.0.0.1:{full.getsockname()[1]}"


@in_loop
async def test_an_address_that_swallows_everything_is_left_when_patience_ends():
    with swallowing() as address, pytest.raises(Unreachable, match="no answer within"):
        await AgentLink(JoinFile("job", TOKEN, "", {"address": address})).connect(patience=0.1)


@in_loop
async def test_a_node_does_not_stick_to_an_address_that_swallows_everything(tmp_path, monkeypatch):
    monkeypatch.setattr(client, "CONNECT_WITHIN", 2 * WITHIN)  # so that only its hurry can help it
    place, connected, tried = tmp_path / "coordinator.json", asyncio.Event(), asyncio.Event()
    join = JoinFile("job", TOKEN, "", {"file": str(place)})
    node = connection.Connection(join, lambda argv, log: None, lambda welcome: connected.set(), print, print)
    when_logged(monkeypatch, tried.set)
    with swallowing() as address:
        place.write_text(json.dumps({"address": address}))
        running = asyncio.create_task(node.run())
        await tried.wait()
    async with Served(ScriptedMachine()) as served:
        place.write_text(json.dumps({"address": f"127.0.0.1:{served.port}"}))
        await connected.wait()
        running.cancel()
        node.drop()


@in_loop
async def test_a_node_waits_longer_for_a_coordinator_that_comes_to_the_proof_too_late(monkeypatch):
    greet, loop, connected = listener.Connection.connection_made, asyncio.get_running_loop(), asyncio.Event()
    monkeypatch.setattr(client, "CONNECT_WITHIN", 0.2)
    monkeypatch.setattr(
        listener.Connection, "connection_made", lambda self, transport: loop.call_later(1.0, greet, self, transport)
    )
    async with Served(ScriptedMachine()) as served:
        node = connection.Connection(served.join, lambda argv, log: None, lambda welcome: connected.set(), print, print)
        running = asyncio.create_task(node.run())
        await connected.wait()
        running.cancel()
        node.drop()


def test_only_the_nodes_of_large_jobs_wait_before_they_connect():
    assert {connection._jitter(64) for _ in range(100)} == {0.0}
    waits = [connection._jitter(10_000) for _ in range(1000)]
    assert 0.0 <= min(waits) < 1.0 and 4.0 < max(waits) <= 5.0


@in_loop
async def test_who_joins_by_hand_where_nobody_listens_gives_up_soon(monkeypatch):
    monkeypatch.setattr(connection, "_GIVE_UP_BY_HAND", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = f"127.0.0.1:{gone.getsockname()[1]}"
    node = connection.Connection(
        JoinFile("job-3f9k", TOKEN, "", {"address": address}), lambda argv, log: None, print, print, print
    )
    with pytest.raises(Unreachable) as caught:
        await node.run()
    told = str(caught.value)
    assert told.startswith(f"no coordinator at {address}: Connection refused; gave up after 0 s. ")
    assert "`petctl status job-3f9k`" in told and "`petctl token job-3f9k`" in told


@in_loop
async def test_a_link_connects_again_to_wherever_the_locator_points(tmp_path):
    place = tmp_path / "coordinator.json"
    link = AgentLink(JoinFile("job", TOKEN, "", {"file": str(place)}))
    for _ in range(2):
        async with Served(ScriptedMachine()) as served:
            place.write_text(json.dumps({"address": f"127.0.0.1:{served.port}"}))
            assert await link.connect() == {"task": 1}
        with pytest.raises(Unreachable):
            await link.receive()
    link.send({"report": {}})  # lost, without an error
    link.close()
    with pytest.raises(Unreachable, match="not connected"):
        await link.receive()


@in_loop
async def test_frames_beyond_4_kib_are_refused_until_the_proof_holds():
    async with Served(ScriptedMachine()) as served:
        with RawPeer(served) as peer:
            peer.socket.sendall(struct.pack(">I", 4097))
            assert await served.blocking(peer.until_dropped)
        with RawPeer(served, role="control") as peer:
            await served.blocking(peer.introduce)
            peer.send({"id": 1, "call": "status", "padding": "x" * 100_000})
            assert "does not match" in (await served.blocking(peer.receive))["error"]
            peer.socket.sendall(struct.pack(">I", (1 << 20) + 16 + 1))  # 16: its seal
            assert await served.blocking(peer.until_dropped)


@in_loop
async def test_whoever_does_not_prove_itself_in_time_is_dropped(monkeypatch):
    monkeypatch.setattr(listener, "PROOF_WITHIN", 1.5)
    async with Served(ScriptedMachine()) as served:
        with RawPeer(served) as slow, RawPeer(served) as proven:
            await served.blocking(proven.introduce)
            slow.socket.sendall(b"\x00\x00")
            assert await served.blocking(slow.until_dropped)
            proven.send(report_of())
            assert served.server.dropped == 1


@in_loop
async def test_strangers_cannot_keep_the_places_of_newcomers(monkeypatch):
    monkeypatch.setattr(listener, "UNPROVEN_AT_ONCE", 16)
    monkeypatch.setattr(listener, "SILENT", 0.2)
    async with Served(ScriptedMachine()) as served:
        strangers = [await served.blocking(RawPeer, served) for _ in range(50)]
        link = AgentLink(served.join)
        assert await link.connect() == {"task": 1}
        assert served.server.dropped >= 34
        for stranger in strangers:
            stranger.socket.close()
        link.close()


@in_loop
async def test_in_a_herd_nobody_loses_the_place_from_which_it_proves_itself(monkeypatch):
    monkeypatch.setattr(listener, "UNPROVEN_AT_ONCE", 4)
    async with Served(ScriptedMachine()) as served:
        slow = [RawPeer(served) for _ in range(4)]
        links = [AgentLink(served.join) for _ in range(60)]
        connecting = [asyncio.ensure_future(link.connect()) for link in links]
        for peer in slow:  # they are greeted, and take their time: the herd behind them must not cost them their place
            assert await served.blocking(peer.introduce) == {"task": 1}
        assert await asyncio.gather(*connecting) == [{"task": 1}] * 60
        assert served.server.dropped == 0
        for peer in slow:
            peer.socket.close()
        for link in links:
            link.close()


@in_loop
async def test_without_a_descriptor_left_strangers_make_room():
    async with Served(ScriptedMachine()) as served:
        await served.blocking(int)  # the thread for blocking peers, while there are descriptors
        peers = [RawPeer(served) for _ in range(5)]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        spare = [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(spare) + 1, hard))
        try:
            for descriptor in spare:
                os.close(descriptor)
            assert await served.blocking(peers[-1].introduce) == {"task": 1}
            assert await served.blocking(peers[0].until_dropped)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for peer in peers:
            peer.socket.close()


@in_loop
async def test_an_agents_nonsense_ends_its_connection_and_nothing_else():
    machine = ScriptedMachine()
    async with Served(machine) as served:
        honest = AgentLink(served.join)
        await honest.connect()
        nonsenses: list[dict[str, object]] = [{}, {"report": 7}, {"report": {"node": "1"}}, {"order": {}}]
        for nonsense in nonsenses:
            with RawPeer(served) as peer:
                await served.blocking(peer.introduce)
                peer.send(nonsense)
                assert await served.blocking(peer.until_dropped)
        assert not machine.of(Reported)
        honest.send(report_of())
        await machine.until_true(lambda: machine.of(Reported))
        honest.close()


@in_loop
async def test_a_connection_reports_for_one_node_only():
    machine = ScriptedMachine()
    async with Served(machine) as served:
        with RawPeer(served) as peer:
            await served.blocking(peer.introduce)
            peer.send(report_of("0"))
            peer.send(report_of("1"))
            assert await served.blocking(peer.until_dropped)
        await machine.until_true(lambda: machine.of(Disconnected))
        assert [fact.report.node for fact in machine.of(Reported)] == ["0"]


@in_loop
async def test_a_peer_that_does_not_read_is_dropped():
    async with Served(ScriptedMachine(), control={"much": lambda: "x" * (1 << 20)}) as served:
        with RawPeer(served, role="control") as peer:
            await served.blocking(peer.introduce)
            try:
                for number in range(200):
                    await served.blocking(peer.send, {"id": number, "call": "much"})
            except ConnectionError:
                pass
            assert await served.blocking(peer.until_dropped)
            assert served.server.dropped == 1


@in_loop
async def test_a_flood_of_hostile_peers_is_one_line_in_the_log(caplog):
    async with Served(ScriptedMachine()) as served:
        for _ in range(100):
            with RawPeer(served) as peer:
                peer.socket.sendall(b"\xff" * 8)
                await served.blocking(peer.until_dropped)
        assert served.server.dropped == 100
        assert 1 <= len(caplog.records) <= 10
        assert "dropped a connection from 127.0.0.1" in caplog.text


@in_loop
async def test_a_port_that_is_taken_leaves_the_coordinator_as_it_was():
    async with Served(ScriptedMachine()) as first:
        second = Served(ScriptedMachine())
        with pytest.raises(OSError):
            await second.server.listen("127.0.0.1", first.port)
        async with second:
            assert await AgentLink(second.join).connect() == {"task": 1}


@in_loop
async def test_off_loopback_only_with_tls():
    served = Served(ScriptedMachine())
    with pytest.raises(InternalError, match="needs a certificate"):
        await served.server.listen("0.0.0.0", 0)


def test_the_command_line_does_not_pay_for_asyncio_or_ssl(tmp_path):
    write_join_file(tmp_path / "j", JoinFile("job", TOKEN, "", {"address": "127.0.0.1:1"}))
    program = (
        "import sys; from petctl.rendezvous.net.client import ControlLink; "
        "from petctl.rendezvous.net.join_file import read_join_file\n"
        "try: ControlLink(read_join_file(sys.argv[1])).call('status')\n"
        "except Exception as error: print(type(error).__name__, 'asyncio' in sys.modules, 'ssl' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program, tmp_path / "j"], capture_output=True, text=True, timeout=30)
    assert run.stdout.split() == ["Unreachable", "False", "False"], run.stderr


@in_loop
async def test_a_coordinator_that_dies_while_a_node_connects_is_unreachable_like_a_dead_one(monkeypatch):
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    loop = asyncio.get_running_loop()
    connect = loop.sock_connect

    async def die_when_connected(sock, address):
        await connect(sock, address)
        listening.close()  # nobody had accepted it: the kernel resets it before anybody looks at it

    monkeypatch.setattr(loop, "sock_connect", die_when_connected)
    with pytest.raises(Unreachable, match="closed the connection"):
        await AgentLink(JoinFile("job", TOKEN, "", {"address": f"127.0.0.1:{port}"})).connect()
