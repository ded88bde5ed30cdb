"""An HTTP proxy in front of a store that counts what passes and makes trouble on demand."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Passed:
    """A request that the store has answered well."""

    method: str
    path: str
    query: dict[str, list[str]]
    sent: int
    received: int

    @property
    def part(self) -> str:
        """Which part of a large object it carried, if any."""
        return "".join(self.query.get("partNumber", []) + self.query.get("blockid", []))


class Proxy:
    """`trouble(method, target)` names the fault of a request.

    503, reset (unanswered), half (of the answer), flip (a bit of the answer) or none.
    """

    def __init__(self, port: int) -> None:
        self.passed: list[Passed] = []
        self.trouble: Callable[[str, str], str] = lambda method, target: ""
        self.before: Callable[[str, str], None] = lambda method, target: None
        self.after: Callable[[Passed], None] = lambda passed: None
        self.busy = 0
        self._lock = threading.Lock()
        self._server = _Listener(("127.0.0.1", 0), _handler(self, port))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def note(self, passed: Passed) -> None:
        with self._lock:
            self.passed.append(passed)
        self.after(passed)

    def entered(self, more: int) -> None:
        with self._lock:
            self.busy += more

    def take(self) -> list[Passed]:
        """What has passed since the last time."""
        with self._lock:
            taken, self.passed = self.passed, []
        return taken


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # clients that were killed


def _handler(proxy: Proxy, port: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            self.store = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

        def finish(self) -> None:
            self.store.close()
            super().finish()

        def answer(self) -> None:
            proxy.entered(1)
            try:
                self.pass_on()
            finally:
                proxy.entered(-1)

        def pass_on(self) -> None:
            length = int(self.headers.get("content-length", 0))
            body = self.rfile.read(length)
            if len(body) < length:
                self.reset()  # the client is gone
                return
            trouble = proxy.trouble(self.command, self.path)
            proxy.before(self.command, self.path)
            if trouble == "reset":
                self.reset()
                return
            if trouble == "503":
                self.send_response(503)
                self.send_header("content-length", "0")
                self.end_headers()
                return
            try:
                response, data = self.forward(body)
            except (OSError, http.client.HTTPException):
                self.reset()  # the store is away
                return
            parts = urlsplit(self.path)
            if response.status < 300:
                proxy.note(Passed(self.command, parts.path, parse_qs(parts.query), len(body), len(data)))
            self.send_response_only(response.status)
            for name, value in response.getheaders():
                if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                    self.send_header(name, value)
            told = response.getheader("content-length") if self.command == "HEAD" else str(len(data))
            self.send_header("content-length", told or "0")
            self.end_headers()
            if trouble == "half":
                self.wfile.write(data[: len(data) // 2])
                self.reset()
                return
            if trouble == "flip":
                data = data[:-1] + bytes([data[-1] ^ 1])
            self.wfile.write(data)

        def forward(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
            self.store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                self.store.putheader(name, value)
            self.store.endheaders(body)
            response = self.store.getresponse()
            return response, response.read()

        def reset(self) -> None:
            self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

        def log_message(self, *words: object) -> None:
            pass

    return Handler
