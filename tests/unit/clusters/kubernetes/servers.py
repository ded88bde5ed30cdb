"""Servers that a test plays itself: HTTP answers by a function, websockets byte by byte. Real sockets, and TLS."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import json
import socket
import ssl
import tempfile
import threading
from pathlib import Path
from typing import Any, Callable, Iterator

from petctl.clusters.certificate import Certificate, make_certificate
from petctl.kube.credentials import Access, Credentials
from petctl.kube.websocket import masked

WITHIN = 20.0
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def server_context(made: Certificate) -> ssl.SSLContext:
    """What a server with this certificate speaks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "both.pem").write_bytes(made.certificate + made.key)
        context.load_cert_chain(Path(folder) / "both.pem")
    return context


def access_to(server: str, made: Certificate | None = None, **fields: Any) -> Access:
    """How to reach a test's server."""
    authority = made.certificate.decode() if made else ""
    settings = {"namespace": "team", "credentials": Credentials(token="sesame"), "authority": authority, **fields}
    return Access(server=server, **settings)


class Handler(http.server.BaseHTTPRequestHandler):
    """One request; the test's function answers it."""

    protocol_version = "HTTP/1.1"
    server: Server
    body = b""
    timeout = WITHIN

    def _answer(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append(f"{self.command} {self.path}")
        self.server.script(self)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer

    def reply(self, value: Any, status: int = 200, **headers: str) -> None:
        """A whole answer."""
        text = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, content in headers.items():
            self.send_header(name.replace("_", "-"), content)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def refuse(self, code: int, reason: str, message: str, **fields: Any) -> None:
        """A Status, as the API server makes it."""
        self.reply(status(code, reason, message, **fields), code)

    def begin(self) -> None:
        """An answer in chunks."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        """One more; an empty one is the end."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def finish(self) -> None:
        """The connection ends."""
        super().finish()
        self.server.shutdown_request(self.request)
        self.server.finished.release()

    def log_message(self, *words: Any) -> None:
        """Says nothing."""


class Server(http.server.ThreadingHTTPServer):
    """Counts connections and requests."""

    daemon_threads = True

    def __init__(self, script: Callable[[Handler], None], made: Certificate | None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = script
        self.requests: list[str] = []
        self.connections = 0
        self.finished = threading.Semaphore(0)
        if made is not None:
            self.socket = server_context(made).wrap_socket(self.socket, server_side=True)

    def process_request(self, request: Any, client_address: Any) -> None:
        """One connection."""
        self.connections += 1
        super().process_request(request, client_address)


@contextlib.contextmanager
def serving(script: Callable[[Handler], None], made: Certificate | None = None) -> Iterator[Server]:
    """A server that answers as the function does."""
    with Server(script, made) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(WITHIN)


def url_of(server: Server, scheme: str = "http") -> str:
    """Its address."""
    return f"{scheme}://127.0.0.1:{server.server_address[1]}"


def status(code: int, reason: str, message: str, **fields: Any) -> dict[str, Any]:
    """A Status object of a refusal."""
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, **fields}


class Peer:
    """The server's side of one websocket, driven by the test."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        sock.settimeout(WITHIN)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.take(1)
        self.target = head.split(b" ")[1].decode()
        lines = head.decode().split("\r\n")[1:-2]
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    def accept(self, protocol: str) -> None:
        """Upgrades."""
        digest = hashlib.sha1((self.headers["sec-websocket-key"] + _GUID).encode()).digest()
        lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}", f"Sec-WebSocket-Protocol: {protocol}"]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())

    def refuse(self, code: int, body: dict[str, Any]) -> None:
        """Answers as HTTP does."""
        text = json.dumps(body).encode()
        self.socket.sendall(b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n%s" % (code, len(text), text))

    def take(self, count: int) -> bytes:
        """Exactly so many bytes."""
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError(data)
            data += more
        return data

    def frame(self) -> tuple[int, bytes]:
        """The next frame of the client: first byte and payload, unmasked. It must have been masked."""
        first, second = self.take(2)
        assert second & 0x80, "a client's frame must be masked"
        length = second & 0x7F
        if length > 125:
            length = int.from_bytes(self.take(2 if length == 126 else 8), "big")
        key = self.take(4)
        return first, masked(self.take(length), key)

    def send(self, payload: bytes, first: int = 0x82) -> None:
        """A frame."""
        self.socket.sendall(packed(payload, first))

    def goodbye(self) -> None:
        """Closes as the protocol wants it, whoever began."""
        self.send((1000).to_bytes(2, "big"), 0x88)
        with contextlib.suppress(EOFError, OSError):
            while self.frame()[0] != 0x88:
                pass


def packed(payload: bytes, first: int = 0x82) -> bytes:
    """A server's frame."""
    length = len(payload)
    if length < 126:
        return bytes([first, length]) + payload
    if length < 1 << 16:
        return bytes([first, 126]) + length.to_bytes(2, "big") + payload
    return bytes([first, 127]) + length.to_bytes(8, "big") + payload


@contextlib.contextmanager
def websockets(script: Callable[[Peer], None], made: Certificate | None = None) -> Iterator[str]:
    """A server for one websocket after another; what goes wrong in the script fails the test."""
    wrong: list[BaseException] = []
    context = server_context(made) if made else None

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(sock, server_side=True) if context else sock as connection:
                    script(Peer(connection))
            except BaseException as error:
                wrong.append(error)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"{'https' if made else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(WITHIN)
    assert not thread.is_alive()
    if wrong:
        raise wrong[0]


def certificate() -> Certificate:
    """One for a server on loopback."""
    return make_certificate(["localhost"], ["127.0.0.1"])
