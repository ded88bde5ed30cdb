"""Commands and ports in pods, against a server whose websockets the test plays."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator
from urllib.parse import parse_qsl, urlsplit

import pytest

from petctl.clusters.certificate import Certificate
from petctl.kube import failures
from petctl.kube.api import Api
from tests.unit.clusters.kubernetes.servers import WITHIN, Peer, access_to, certificate, packed, status, websockets

SUCCESS = b'\x03{"metadata":{},"status":"Success"}'
V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"


@pytest.fixture(scope="module")
def made() -> Certificate:
    return certificate()


@contextlib.contextmanager
def api(script: Callable[[Peer], None], made: Certificate | None = None) -> Iterator[Api]:
    with websockets(script, made) as url, Api(access_to(url, made)) as found:
        yield found


def ended(code: int) -> bytes:
    """The Status of a command that ended with this exit code."""
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return b"\x03" + json.dumps(status(500, "NonZeroExitCode", "no", details={"causes": causes})).encode()


def given(text: bytes, folder: Path) -> int:
    """A descriptor from which this can be read."""
    (folder / "stdin").write_bytes(text)
    return os.open(folder / "stdin", os.O_RDONLY)


@pytest.mark.parametrize("tls", [False, True])
def test_a_command_gets_its_input_and_gives_output_and_exit_code(tmp_path: Path, made: Certificate, tls: bool) -> None:
    sent = os.urandom(1_000_000)
    heard: list[bytes] = []

    def script(peer: Peer) -> None:
        assert urlsplit(peer.target).path == "/api/v1/namespaces/team/pods/x/exec"
        query = parse_qsl(urlsplit(peer.target).query)
        streams = [("stdin", "true"), ("stdout", "true"), ("stderr", "true")]
        assert query == [("command", "cat"), ("command", "a b&c"), *streams, ("container", "main")]
        assert peer.headers["sec-websocket-protocol"] == f"{V5}, {V4}"
        assert peer.headers.get("authorization") == ("Bearer sesame" if tls else None)
        peer.accept(V5)
        peer.send(b"\x01")  # the empty one that says: connected
        while (frame := peer.frame()[1]) != b"\xff\x00":
            assert frame[0] == 0
            heard.append(frame[1:])
            peer.send(b"\x01" + frame[1:])
        peer.send(b"\x02complaint")
        peer.send(b"\xff\x01")
        peer.send(ended(7))
        peer.goodbye()

    stdin = given(sent, tmp_path)
    with (
        api(script, made if tls else None) as found,
        open(tmp_path / "out", "wb") as out,
        open(tmp_path / "err", "wb") as err,
    ):
        assert found.execute("team", "x", ["cat", "a b&c"], "main", False, stdin, out, err) == 7
    os.close(stdin)
    assert b"".join(heard) == sent
    assert (tmp_path / "out").read_bytes() == sent
    assert (tmp_path / "err").read_bytes() == b"complaint"


def test_an_older_server_is_not_told_of_the_end_of_input(tmp_path: Path) -> None:
    def script(peer: Peer) -> None:
        peer.accept(V4)
        assert peer.frame()[1] == b"\x00some"
        peer.send(SUCCESS)
        peer.goodbye()

    stdin = given(b"some", tmp_path)
    with api(script) as found:
        assert found.execute("team", "x", ["true"], stdin=stdin) == 0
    os.close(stdin)


def test_silence_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(peer: Peer) -> None:
        if peer.target.startswith("/api/v1/namespaces/team/pods/x/exec"):
            peer.accept(V5)
            assert peer.frame() == (0x89, b"")
            peer.send(b"", 0x8A)
            peer.send(SUCCESS)
        else:
            ports(peer)
            assert peer.frame() == (0x89, b"")
            peer.send(b"", 0x8A)
        peer.goodbye()

    for module in ("execute", "dial"):
        monkeypatch.setattr(f"petctl.kube.{module}.BEAT", 0.05)
    with api(script) as found:
        assert found.execute("team", "x", ["sleep"]) == 0
        with found.dial("team", "x", 8000) as near:
            assert everything(near) == b""
            assert near.failure is None


def test_a_command_that_cannot_be_run() -> None:
    message = 'exec failed: unable to start container process: exec: "nope": executable file not found in $PATH'

    def script(peer: Peer) -> None:
        peer.accept(V5)
        peer.send(b"\x03" + json.dumps(status(500, "InternalError", message)).encode())
        peer.goodbye()

    with api(script) as found, pytest.raises(failures.CommandFailed, match=r'could not be run: .*"nope": executable'):
        found.execute("team", "x", ["nope"])


def test_a_command_whose_connection_is_lost() -> None:
    lost = pytest.raises(failures.CommandFailed, match="lost before it ended; it may still be running")
    with api(lambda peer: peer.accept(V5)) as found, lost:
        found.execute("team", "x", ["sleep"])


def test_who_may_not_run_commands_hears_why() -> None:
    message = 'User "ann" cannot create resource "pods/exec" in API group "" in the namespace "team"'
    told = pytest.raises(failures.Forbidden, match="'ann' may not create pods/exec in the namespace 'team'")
    with api(lambda peer: peer.refuse(403, status(403, "Forbidden", message))) as found, told:
        found.execute("team", "x", ["true"])


def test_a_reader_that_has_gone_ends_it() -> None:
    def script(peer: Peer) -> None:
        peer.accept(V5)
        with contextlib.suppress(OSError, EOFError):
            while True:
                peer.send(b"\x01" + b"y\n" * 10_000)
                if select.select([peer.socket], [], [], 0)[0]:
                    assert peer.frame()[0] == 0x88
                    return

    reading, writing = os.pipe()
    os.close(reading)
    with api(script) as found, pytest.raises(BrokenPipeError):
        found.execute("team", "x", ["yes"], stdout=writing)
    os.close(writing)


TERMINAL = """
import sys
from petctl.kube.api import Api
from tests.unit.clusters.kubernetes.servers import access_to
print("ready", flush=True)
sys.exit(Api(access_to(sys.argv[1])).execute("team", "x", ["bash"], tty=True, stdin=0, stdout=1, stderr=2))
"""


def test_with_a_terminal_keys_and_sizes_arrive() -> None:
    sized = threading.Event()
    seen: list[Any] = []

    def size(peer: Peer) -> dict[str, int]:
        frame = peer.frame()[1]
        assert frame[0] == 4
        return json.loads(frame[1:])

    def script(peer: Peer) -> None:
        query = parse_qsl(urlsplit(peer.target).query)
        assert ("tty", "true") in query and ("stderr", "true") not in query
        peer.accept(V5)
        seen.append(size(peer))
        sized.set()
        seen.append(size(peer))
        peer.send(b"\x01$ ")
        seen.append(peer.frame()[1])
        peer.send(ended(130))
        peer.goodbye()

    root = Path(__file__).resolve().parents[4]
    with websockets(script) as url:
        master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (24, 80))
        before = termios.tcgetattr(slave)
        words = [sys.executable, "-c", TERMINAL, url]
        process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, cwd=root)
        try:
            assert sized.wait(WITHIN)
            termios.tcsetwinsize(slave, (50, 132))
            process.send_signal(signal.SIGWINCH)
            printed = b""
            while not printed.endswith(b"$ "):
                assert select.select([master], [], [], WITHIN)[0], printed
                printed += os.read(master, 1000)
            os.write(master, b"\x03")
            assert process.wait(WITHIN) == 130
            assert termios.tcgetattr(slave) == before, "the terminal is as it was"
        finally:
            process.kill()
            process.wait()
            os.close(master)
            os.close(slave)
    assert seen == [{"Width": 80, "Height": 24}, {"Width": 132, "Height": 50}, b"\x00\x03"]


def ports(peer: Peer, port: int = 8000) -> None:
    """How a kubelet begins."""
    assert urlsplit(peer.target).path == "/api/v1/namespaces/team/pods/x/portforward"
    assert parse_qsl(urlsplit(peer.target).query) == [("ports", str(port))]
    assert peer.headers["sec-websocket-protocol"] == V4
    peer.accept(V4)
    for channel in (0, 1):
        peer.send(bytes([channel]) + struct.pack("<H", port))


def everything(sock: socket.socket) -> bytes:
    """All until the end."""
    sock.settimeout(WITHIN)
    found = b""
    while data := sock.recv(1 << 20):
        found += data
    return found


@pytest.mark.parametrize("tls", [False, True])
def test_much_goes_both_ways_at_once(made: Certificate, tls: bool) -> None:
    there, back = os.urandom(5_000_000), os.urandom(5_000_000)
    heard = bytearray()

    def script(peer: Peer) -> None:
        ports(peer)
        for place in range(0, len(back), 50_000):
            peer.send(b"\x00" + back[place : place + 50_000])
            while len(heard) < min(place, len(there)):  # in step: neither side can hold it all
                frame = peer.frame()[1]
                assert frame[0] == 0
                heard.extend(frame[1:])
        while len(heard) < len(there):
            heard.extend(peer.frame()[1][1:])
        peer.goodbye()

    with api(script, made if tls else None) as found, found.dial("team", "x", 8000) as near:
        sender = threading.Thread(target=near.sendall, args=(there,))
        sender.start()
        assert everything(near) == back
        sender.join(WITHIN)
        assert near.failure is None
    assert bytes(heard) == there


def test_what_was_sent_before_the_close_arrives() -> None:
    heard: list[bytes] = []

    def script(peer: Peer) -> None:
        ports(peer)
        for _ in range(200):  # more than fits on the way: it must be read, although nobody wants it any more
            peer.send(b"\x00" + b"never read" * 10_000)
        while (frame := peer.frame())[0] != 0x88:
            heard.append(frame[1][1:])
        peer.send((1000).to_bytes(2, "big"), 0x88)

    sent = os.urandom(30_000_000)
    with api(script) as found:
        near = found.dial("team", "x", 8000)
        near.setblocking(False)
        poll, rest = select.poll(), memoryview(sent)
        poll.register(near, select.POLLOUT)
        while poll.poll(300):  # until nothing more goes: the server does not read yet
            rest = rest[near.send(rest) :]
        near.close()
    assert rest, "it was to be too much"
    assert b"".join(heard) == sent[: len(sent) - len(rest)]


def test_who_says_that_it_sends_no_more_still_gets_the_rest() -> None:
    def script(peer: Peer) -> None:
        ports(peer)
        assert peer.frame()[1] == b"\x00question"
        peer.send(b"\x00answer")
        peer.goodbye()

    with api(script) as found, found.dial("team", "x", 8000) as near:
        near.sendall(b"question")
        near.shutdown(socket.SHUT_WR)
        assert everything(near) == b"answer"


def test_a_socket_that_nobody_holds_any_more_is_closed() -> None:
    closed = threading.Event()

    def script(peer: Peer) -> None:
        ports(peer)
        assert peer.frame()[0] == 0x88
        closed.set()

    with api(script) as found:
        near = found.dial("team", "x", 8000)
        with pytest.warns(ResourceWarning):
            del near
        assert closed.wait(WITHIN)


def test_a_port_where_nobody_listens() -> None:
    message = b"error forwarding port 8000 to pod 1f, uid : failed to connect to localhost:8000: connection refused"

    def script(peer: Peer) -> None:
        ports(peer)
        for byte in packed(b"\x01" + message):
            peer.socket.sendall(bytes([byte]))
        peer.goodbye()

    with api(script) as found, found.dial("team", "x", 8000) as near:
        assert everything(near) == b""
        assert isinstance(near.failure, failures.KubernetesError)
        assert str(near.failure) == f"port 8000 of pod x: {message.decode()}"


def test_a_connection_to_the_server_that_is_cut_is_told() -> None:
    def script(peer: Peer) -> None:
        ports(peer)
        peer.send(b"\x00some")

    with api(script) as found, found.dial("team", "x", 8000) as near:
        assert everything(near) == b"some"
        assert "port 8000 of pod x: the connection to the API server was cut" in str(near.failure)


def test_the_failure_is_found_when_tls_has_taken_the_descriptor() -> None:
    def script(peer: Peer) -> None:
        ports(peer)
        peer.send(b"\x01nobody listens")
        peer.goodbye()

    with api(script) as found:
        near = found.dial("team", "x", 8000)
        with socket.socket(fileno=near.detach()) as other:
            assert everything(other) == b""
        assert "nobody listens" in str(near.failure)


def test_a_caller_that_does_not_read_holds_up_the_server_and_nothing_else() -> None:
    """Memory does not fill: what nobody reads stays on the far side."""
    filled = threading.Event()

    def script(peer: Peer) -> None:
        ports(peer)
        peer.socket.settimeout(0.3)
        try:
            for _ in range(2000):
                peer.send(b"\x00" + b"x" * 50_000)
        except TimeoutError:
            filled.set()

    with api(script) as found, found.dial("team", "x", 8000):
        before = time.process_time()
        assert filled.wait(WITHIN)
        assert time.process_time() - before < 5, "waiting costs nothing"


def test_a_port_of_a_pod_that_is_not_there() -> None:
    told = pytest.raises(failures.NoSuchObject, match='pods "x" not found')
    with api(lambda peer: peer.refuse(404, status(404, "NotFound", 'pods "x" not found'))) as found, told:
        found.dial("team", "x", 8000)
