"""One connection: answers of every form, in pieces of every size, and ends in the middle."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from petctl.clusters.certificate import make_certificate
from petctl.storage.core.body import FileSlice, Held
from petctl.storage.core.http_client import ConnectionCut, Head, Wire, dial

BODY = bytes(range(256)) * 40
HEAD = b"GET /x HTTP/1.1\r\n\r\n"


class Server:
    """Says what it is told, one line of pieces per request, then hangs up."""

    def __init__(self, folder: Path, tls: bool = False) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self.received = b""
        self._trusted: ssl.SSLContext | None = None
        if tls:
            made = make_certificate([], ["127.0.0.1"])
            (folder / "cert.pem").write_bytes(made.certificate)
            (folder / "key.pem").write_bytes(made.key)
            own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            own.load_cert_chain(folder / "cert.pem", folder / "key.pem")
            self._listener = own.wrap_socket(self._listener, server_side=True)
            self._trusted = ssl.create_default_context(cafile=folder / "cert.pem")

    def say(self, *answers: list[bytes]) -> Wire:
        def serve() -> None:
            connection, _ = self._listener.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for pieces in answers:
                    received = b""
                    while not received.endswith(b"\r\n\r\n") and (more := connection.recv(4096)):
                        received += more
                    self.received = received
                    for piece in pieces:
                        connection.sendall(piece)

        thread = threading.Thread(target=serve)
        thread.start()
        self._threads.append(thread)
        return Wire(dial("127.0.0.1", self._listener.getsockname()[1], 10, self._trusted), 10)

    def close(self) -> None:
        self._listener.close()
        for thread in self._threads:
            thread.join(10)


@pytest.fixture(params=["plain", "tls"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path, request.param == "tls")
    yield one
    one.close()


def plain(body: bytes, extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n%s" % (len(body), extra, body)


def chunked(body: bytes, size: int) -> bytes:
    chunks = b"".join(
        b"%x;note\r\n%s\r\n" % (len(body[at : at + size]), body[at : at + size]) for at in range(0, len(body), size)
    )
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nTrailer: x\r\n\r\n"


def sliced(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("answer", [plain(BODY), chunked(BODY, 100), chunked(BODY, 100_000)])
@pytest.mark.parametrize("size", [7, 1000, 1 << 20])
def test_an_answer_is_read_and_the_next_one_after_it(server: Server, answer: bytes, size: int) -> None:
    wire = server.say(sliced(answer, size), sliced(answer, size), [plain(b"end", b"Connection: close\r\n")])
    assert wire.ask(HEAD, Held(b"")).status == 200
    assert wire.read() == BODY
    assert wire.free
    wire.ask(HEAD, Held(b""))
    found, room = b"", memoryview(bytearray(3000))
    while count := wire.fill(room):
        found += bytes(room[:count])
    assert found == BODY
    assert wire.free
    wire.ask(HEAD, Held(b""))
    assert wire.read() == b"end"
    assert not wire.free
    wire.close()


def test_one_header_is_found_whatever_its_case_and_place() -> None:
    head = Head(
        "HTTP/1.1 200 content-length: 1\r\nX-Content-Length: 2\r\nCONTENT-Length: \t3 \r\nEmpty:\r\nLast: \xdc: x"
    )
    found = {name: head.get(name) for name in ("content-length", "empty", "last", "length", "absent")}
    assert found == {"content-length": "3", "empty": "", "last": "\xdc: x", "length": "", "absent": ""}
    assert all(head.headers.get(name, "") == value for name, value in found.items())


def test_headers_and_answers_without_a_body(server: Server) -> None:
    head = b'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nETag:  "a" \r\nContent-Length: 5\r\n\r\n'
    wire = server.say([head], [b"HTTP/1.1 204 No Content\r\n\r\n"], [plain(b"x")])
    answer = wire.ask(HEAD, Held(b""), has_body=False)
    assert (answer.status, answer.headers["etag"], wire.read()) == (404, '"a"', b"")
    assert wire.ask(HEAD, Held(b"")).status == 204
    assert wire.read() == b""
    wire.ask(HEAD, Held(b""))
    assert wire.read() == b"x"
    wire.close()


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200", plain(BODY)[:-1], chunked(BODY, 100)[:-300], b"SSH-2.0-x\r\n\r\n"]
)
def test_an_answer_cut_short_is_never_taken_for_whole(server: Server, answer: bytes) -> None:
    wire = server.say([answer])

    def read() -> None:
        wire.ask(HEAD, Held(b""))
        wire.read()

    with pytest.raises((ConnectionCut, ConnectionResetError)):
        read()
    assert not wire.free or not wire.used
    wire.close()


def test_a_slice_of_a_file_is_sent_as_it_is(server: Server, tmp_path: Path) -> None:
    data = bytes(range(255)) * 3000 + b"\r\n\r\n"
    (tmp_path / "file").write_bytes(data)
    wire = server.say([plain(b"ok")])
    with open(tmp_path / "file", "rb") as file:
        wire.ask(b"PUT /x HTTP/1.1\r\n", FileSlice(file.fileno(), 5, len(data) - 5, "file"))
    assert wire.read() == b"ok"
    assert server.received == b"PUT /x HTTP/1.1\r\n" + data[5:]
    wire.close()


def test_silence_ends() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    wire = Wire(dial("127.0.0.1", listener.getsockname()[1], 1), 1)
    with pytest.raises(BlockingIOError):
        wire.ask(HEAD, Held(b""))
    wire.close()
    listener.close()
