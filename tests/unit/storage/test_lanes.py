"""Many small requests from one thread: each gets its own answer, and what does not go as it should is given back."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from petctl.clusters.certificate import make_certificate
from petctl.storage.core.http_client import Head, dial
from petctl.storage.transfer import pipelining as module
from petctl.storage.transfer.pipelining import Lanes

Answer = Callable[[bytes], list[bytes]]
"""From the first line of a request to the pieces of the answer; an empty one closes the connection."""


class Server:
    """Answers every request on every connection, each connection in a thread of its own."""

    def __init__(self, folder: Path, answer: Answer, tls: bool = False) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self._listener.getsockname()[1]
        self.connections: list[socket.socket] = []
        self._own: ssl.SSLContext | None = None
        self._trusted: ssl.SSLContext | None = None
        if tls:
            made = make_certificate([], ["127.0.0.1"])
            (folder / "cert.pem").write_bytes(made.certificate)
            (folder / "key.pem").write_bytes(made.key)
            self._own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._own.load_cert_chain(folder / "cert.pem", folder / "key.pem")
            self._trusted = ssl.create_default_context(cafile=folder / "cert.pem")
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def dial(self) -> socket.socket:
        return dial("127.0.0.1", self.port, 10, self._trusted)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the other end was quicker
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self._own is not None:
                connection = self._own.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as file:
                while line := file.readline():
                    length = 0
                    while (header := file.readline().strip().lower()) != b"":
                        length = int(header[15:]) if header.startswith(b"content-length:") else length
                    file.read(length)
                    for piece in self._answer(line):
                        if not piece:
                            return
                        connection.sendall(piece)
        except OSError:
            return


class Desk:
    """Hands requests in, and keeps what became of them."""

    def __init__(self, dial: Callable[[], socket.socket]) -> None:
        self.lanes = Lanes(dial)
        self.done: dict[int, memoryview] = {}
        self.undone: list[int] = []

    def ask(self, number: int, body: bytes = b"") -> None:
        request = b"PUT /%d HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (number, len(body), body)
        self.lanes.hand(request, partial(self._take, number), lambda: self.undone.append(number))

    def ask_all(self, count: int, body: bytes = b"") -> None:
        for number in range(count):
            self.ask(number, body)
        self.lanes.settle()

    def _take(self, number: int, head: Head, body: memoryview) -> None:
        assert head.status == 200 and number not in self.done
        self.done[number] = body


Open = Callable[..., tuple[Server, Desk]]


@pytest.fixture
def open_desk(tmp_path: Path) -> Iterator[Open]:
    """A server with this way of answering, and a desk in front of it."""
    opened: list[tuple[Server, Desk]] = []

    def start(answer: Answer, tls: bool = False) -> tuple[Server, Desk]:
        server = Server(tmp_path, answer, tls)
        opened.append((server, Desk(server.dial)))
        return opened[-1]

    yield start
    for server, desk in opened:
        desk.lanes.close()
        server.close()


def number_in(line: bytes) -> int:
    return int(line.split()[1][1:])


def plain(body: bytes, extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n%s" % (len(body), extra, body)


def own_words(line: bytes) -> bytes:
    """Another length for each, some longer than one look at the socket brings."""
    number = number_in(line)
    return b"%d " % number * (1 + number * 97 % 20_000)


@pytest.mark.parametrize("tls", [False, True])
def test_each_request_gets_its_own_answer_over_few_connections(open_desk: Open, tls: bool) -> None:
    server, desk = open_desk(lambda line: [plain(own_words(line))], tls)
    desk.ask_all(300)
    assert desk.done == {number: own_words(b"GET /%d" % number) for number in range(300)}
    assert not desk.undone
    assert len(server.connections) <= module._MOST


@pytest.mark.parametrize("tls", [False, True])
def test_large_requests_and_answers_that_come_byte_by_byte(open_desk: Open, tls: bool) -> None:
    _, desk = open_desk(lambda line: [plain(b"x" * 50)[at : at + 1] for at in range(len(plain(b"x" * 50)))], tls)
    desk.ask_all(30, body=bytes(4 << 20))  # more than the kernel holds for a connection
    assert desk.done == dict.fromkeys(range(30), b"x" * 50)


@pytest.mark.parametrize(
    "answer",
    [
        [b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", b""],
        [b"SSH-2.0-OpenSSH\r\n\r\n"],
        [b"x" * (1 << 17)],
        [b""],
    ],
    ids=["refused", "chunked", "cut", "another protocol", "no end of a head", "closed"],
)
def test_what_does_not_go_is_given_back_once(open_desk: Open, answer: list[bytes]) -> None:
    _, desk = open_desk(lambda line: [plain(b"good")] if number_in(line) % 7 else answer)
    desk.ask_all(100)
    assert sorted(desk.undone) == [number for number in range(100) if number % 7 == 0]
    assert desk.done == {number: b"good" for number in range(100) if number % 7}


def test_a_connection_that_the_server_wants_closed_is_not_used_again(open_desk: Open) -> None:
    server, desk = open_desk(lambda line: [plain(b"last", b"Connection: close\r\n")])
    desk.ask_all(40)
    assert len(desk.done) == 40
    assert len(server.connections) == 40


def test_a_connection_that_was_closed_meanwhile_is_noticed(open_desk: Open) -> None:
    server, desk = open_desk(lambda line: [plain(b"yes")])
    desk.ask_all(1)
    server.connections[0].shutdown(socket.SHUT_RDWR)
    desk.ask_all(60)
    assert len(desk.done) + len(desk.undone) >= 60
    assert len(desk.undone) <= 1


def test_nobody_there_gives_everything_back() -> None:
    gone = socket.create_server(("127.0.0.1", 0))
    port = gone.getsockname()[1]
    gone.close()
    desk = Desk(lambda: dial("127.0.0.1", port, 1))
    desk.ask_all(10)
    assert desk.undone == list(range(10))
    desk.lanes.close()


def test_who_does_not_answer_is_given_up(open_desk: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SILENCE", 0.3)
    over = threading.Event()
    _, desk = open_desk(lambda line: [plain(b"yes")] if number_in(line) or over.wait(10) else [b""])
    desk.ask_all(20)
    over.set()
    assert desk.undone == [0]
    assert len(desk.done) == 19


def test_a_server_far_away_gets_more_requests_at_the_same_time(open_desk: Open) -> None:
    here, together = threading.Condition(), 0

    def when_many_wait(line: bytes) -> list[bytes]:
        nonlocal together
        with here:
            together += 1
            here.notify_all()
            assert here.wait_for(lambda: together >= module._MOST, 20)
        return [plain(b"yes")]

    server, desk = open_desk(when_many_wait)
    desk.ask_all(200)
    assert len(desk.done) == 200
    assert len(server.connections) == module._MOST


def test_an_error_of_the_taker_reaches_the_caller_and_the_rest_goes_on(open_desk: Open) -> None:
    _, desk = open_desk(lambda line: [plain(b"yes")])

    def refuse(head: Head, body: memoryview) -> None:
        raise LookupError

    desk.lanes.hand(b"GET /0 HTTP/1.1\r\n\r\n", refuse, lambda: None)
    with pytest.raises(LookupError):
        desk.lanes.settle()
    desk.ask_all(30)
    assert len(desk.done) == 30


def test_a_connection_that_comes_too_late_is_closed() -> None:
    here, there = socket.socketpair()
    dialled, over = threading.Event(), threading.Event()

    def late() -> socket.socket:
        dialled.set()
        assert over.wait(10)
        return here

    lanes = Lanes(late)
    lanes._open(1)
    assert dialled.wait(10)
    lanes.close()
    over.set()
    there.settimeout(10)
    assert there.recv(1) == b""  # the other end is closed
    there.close()
