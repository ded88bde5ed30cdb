"""HTTP to any server, over connections that are kept, and through a proxy where the environment wants one.

    Wire          one connection, for one thread at a time: as little of HTTP/1.1 as object stores need, for the
                  standard library parses each answer as an e-mail; large answers go into the caller's memory, uncopied
    Server        one server, asked by any number of threads; the caller brings finished requests
    HttpClient    requests to whatever server their URL names

Both try once: what a cut connection means, an OSError, is the caller's to decide. Whatever else goes wrong on the way
(a disk, a file that became shorter) comes out as a PetctlError. Standard library only.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import struct
import sys
from collections import deque
from functools import cached_property
from typing import Callable, Deque, Dict, Mapping, NamedTuple, Optional
from urllib.parse import urlsplit

from petctl.http_proxy import proxy_headers, proxy_of
from petctl.storage.core.answers import LARGEST, BadAnswer, whole_number
from petctl.storage.core.body import NOTHING, Body, own_buffer, unheard

ANSWER_WITHIN = 30.0
"""Seconds without a byte after which a connection is given up."""

Take = Callable[["Head", memoryview], None]
_ROOM = 1 << 16
_LONGEST_HEAD = 1 << 18
_MOST_LINES = 100  # of what nobody needs: answers that announce another one, trailers


class Head:
    """How an answer begins."""

    def __init__(self, text: str) -> None:
        self._text, self._lower = text, text.lower()
        status = text[9:12]
        if not text.startswith("HTTP/1.") or not status.isdigit():
            raise ConnectionCut("the server does not speak HTTP")
        self.status = int(status)

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """By their names in lower case."""
        pairs = (line.partition(":") for line in self._text.split("\r\n")[1:])
        return {name.lower(): value.strip() for name, _, value in pairs}

    def get(self, name: str) -> str:
        """One of them, or nothing, without a look at the others."""
        begin = self._lower.find(f"\r\n{name}:")
        if begin < 0:
            return ""
        begin += len(name) + 3
        end = self._text.find("\r\n", begin)
        return self._text[begin : end if end >= 0 else None].strip()


class ConnectionCut(ConnectionError):
    """The connection ended before the answer did."""


def dial(host: str, port: int, timeout: float, tls: ssl.SSLContext | None = None) -> socket.socket:
    """Connects, within so many seconds."""
    connection = socket.create_connection((host, port), timeout=timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection if tls is None else tls.wrap_socket(connection, server_hostname=host)


class Wire:
    """A connection, for one request after the other; `head` is how the last answer began."""

    head: Head

    def __init__(self, connection: socket.socket, timeout: float) -> None:
        """`timeout` seconds without a byte end it."""
        self.used = False
        self._wait_all = 0
        if not isinstance(connection, ssl.SSLSocket):
            # The kernel keeps the time: a socket that waits inside a call costs half as many calls.
            connection.settimeout(None)
            limit = struct.pack("ll", int(timeout), 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            self._wait_all = socket.MSG_WAITALL
        self._socket = connection
        self._ahead = memoryview(b"")  # received, and not asked for yet
        self._left = 0  # bytes to come of the answer, or of its current chunk
        self._chunked = self._closing = False

    def ask(self, head: bytes, body: Body, has_body: bool = True, moved: Callable[[int], None] = unheard) -> Head:
        """Sends a request; `has_body` is false where the answer has none whatever it says (HEAD)."""
        try:
            body.send(head, self._socket, moved)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it may have refused before it read everything; if it did not, the next line says so
        answer = self._read_head()
        for _ in range(_MOST_LINES):
            if answer.status != 100:
                break
            answer = self._read_head()
        length = answer.get("content-length")
        self._chunked = not length and answer.get("transfer-encoding").lower() == "chunked"
        self._closing = answer.get("connection").lower() == "close"
        if not has_body or answer.status in (204, 304):
            self._chunked, length = False, "0"
        elif not self._chunked and not length:
            raise ConnectionCut("the answer does not say how long it is")
        self._left = whole_number(length or "0", "length")
        self.used, self.head = True, answer
        return answer

    @property
    def free(self) -> bool:
        """Whether the answer has been read to its end and another request may follow."""
        return not (self._left or self._chunked or self._closing or len(self._ahead))

    def read(self) -> bytes:
        """The rest of the answer."""
        if self._left > LARGEST:
            raise self._too_long()
        if not self._chunked:
            if len(self._ahead) >= self._left:
                return self._take_ahead(self._left)
            data = bytearray(self._left)
            self._fill_from_chunk(memoryview(data))
            return bytes(data)
        pieces = []
        room = LARGEST
        while self._next_chunk():
            room -= self._left
            if room < 0:
                raise self._too_long()
            data = bytearray(self._left)
            self._fill_from_chunk(memoryview(data))
            pieces.append(bytes(data))
        return b"".join(pieces)

    def fill(self, target: memoryview) -> int:
        """Puts the next bytes of the answer into memory; fewer than it holds only at the end of the answer."""
        count = 0
        while count < len(target) and (self._left or (self._chunked and self._next_chunk())):
            count += self._fill_from_chunk(target[count : count + self._left])
        return count

    def close(self) -> None:
        """Lets go of it."""
        self._socket.close()

    def _fill_from_chunk(self, target: memoryview) -> int:
        size = count = min(len(target), len(self._ahead))
        target[:count] = self._ahead[:count]
        self._ahead = self._ahead[count:]
        while size < len(target):
            count = self._socket.recv_into(target[size:], len(target) - size, self._wait_all)
            if not count:
                raise ConnectionCut("the connection was closed in the middle of an answer")
            size += count
        self._left -= size
        return size

    def _next_chunk(self) -> bool:
        """Whether there is one."""
        line = self._read_line() or self._read_line()  # the empty one ends the chunk before
        size = line.partition(b";")[0].strip()
        if not re.fullmatch(rb"[0-9A-Fa-f]{1,15}", size):
            raise BadAnswer(f"the store's answer has a chunk of size {size[:40]!r}")
        self._left = int(size, 16)
        if not self._left:
            for _ in range(_MOST_LINES):
                if not self._read_line():
                    break
            else:
                self._closing = True  # whatever else it says is not waited for
            self._chunked = False
        return self._chunked

    def _too_long(self) -> BadAnswer:
        self._closing = True
        return BadAnswer(f"the store's answer is longer than {LARGEST >> 20} MiB")

    def _read_line(self) -> bytes:
        return self._read_to(b"\r\n")

    def _read_head(self) -> Head:
        return Head(self._read_to(b"\r\n\r\n").decode("latin-1"))

    def _read_to(self, end: bytes) -> bytes:
        data = bytes(self._ahead)
        while (at := data.find(end)) < 0:
            more = self._socket.recv(_ROOM)
            if not more or len(data) > _LONGEST_HEAD:
                raise ConnectionCut("the connection was closed instead of an answer")
            data = data + more if data else more
        self._ahead = memoryview(data)[at + len(end) :]
        return data[:at]

    def _take_ahead(self, count: int) -> bytes:
        data = bytes(self._ahead[:count])
        self._ahead, self._left = self._ahead[count:], 0
        return data


class Answer(NamedTuple):
    """What the server said; `body` is empty where it was taken piece by piece."""

    head: Head
    body: bytes

    @property
    def status(self) -> int:
        return self.head.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self.head.headers


class Server:
    """The server that a URL begins with."""

    def __init__(self, base: str, proxy: str = "", within: float = ANSWER_WITHIN) -> None:
        """`proxy`: the URL of one that everything goes through; `within`: seconds without a byte that end a wait."""
        parts, through = urlsplit(base), urlsplit(proxy)
        self._netloc, self._within = parts.netloc, within
        self._tls = tls_context() if parts.scheme == "https" else None
        self._address = (parts.hostname or "", parts.port or (443 if self._tls else 80))
        self._proxy = (through.hostname or "", through.port or 80) if proxy else None
        self._for_proxy = proxy_headers(proxy) if proxy else {}
        self._idle: Deque[Wire] = deque()

    def dial(self) -> socket.socket:
        """A new connection."""
        if self._proxy is None or self._tls is None:
            return dial(*(self._proxy or self._address), self._within, self._tls)
        connection = dial(*self._proxy, self._within)
        try:
            host, port = self._address
            name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            wire = Wire(connection, self._within)
            request = _text("CONNECT", name, {"Host": name, **self._for_proxy})
            head = wire.ask(request, NOTHING, has_body=False)
            if head.status >= 300:
                raise ConnectionError(f"the proxy refused the way to {name} ({head.status})")
            connection.settimeout(self._within)
            return self._tls.wrap_socket(connection, server_hostname=host)
        except BaseException:
            connection.close()
            raise

    def request(self, method: str, url: str, headers: Mapping[str, str]) -> bytes:
        """A request to this server, without its body."""
        at = url.find("/", url.index("://") + 3)
        target = url[at:] if at >= 0 else "/"
        if "host" not in headers:
            headers = {"Host": self._netloc, **headers}
        if self._proxy and not self._tls:  # what is not encrypted: a proxy is told the whole address
            target, headers = url, {**headers, **self._for_proxy}
        return _text(method, target, headers)

    def ask(self, request: bytes, body: Body, has_body: bool = True, moved: Callable[[int], None] = unheard) -> Wire:
        """Sends it and reads how the answer begins (`Wire.head`); `has_body` is false for HEAD."""
        while True:
            try:
                wire = self._idle.pop()
            except IndexError:
                wire = Wire(self.dial(), self._within)
            kept = wire.used
            try:
                wire.ask(request, body, has_body, moved)
                return wire
            except BaseException as error:
                wire.close()
                # A kept one the server may have closed long ago: another is tried at once.
                if not kept or not isinstance(error, ConnectionError):
                    raise

    def answered(self, wire: Wire) -> Answer:
        """The whole answer."""
        try:
            return Answer(wire.head, wire.read())
        finally:
            self.keep(wire)

    def keep(self, wire: Wire) -> None:
        """Keeps a connection for the next request, if its answer has been read."""
        if wire.free:
            self._idle.append(wire)
        else:
            wire.close()


class HttpClient:
    """Requests of any number of threads, to any number of servers."""

    def __init__(self, moved: Callable[[int], None] = unheard) -> None:
        """`moved` is told of the bytes of bodies, in either direction, as they go."""
        self._moved = moved
        self._servers: Dict[str, Server] = {}

    def once(
        self,
        method: str,
        url: str,
        headers: Optional[Mapping[str, str]] = None,
        body: Body = NOTHING,
        take: Optional[Take] = None,
    ) -> Answer:
        """The answer; with `take`, the body of a good one is handed over piece by piece (an empty one comes first)."""
        server = self._server(url)
        given = dict(headers or {})
        if body.length or method in ("PUT", "POST"):
            given["content-length"] = str(body.length)
        wire = server.ask(server.request(method, url, given), body, method != "HEAD", self._moved)
        if take is None or wire.head.status >= 300:
            return server.answered(wire)
        try:
            count = 0
            while True:
                take(wire.head, own_buffer()[:count])
                count = wire.fill(own_buffer())
                if not count:
                    return Answer(wire.head, b"")
                self._moved(count)
        finally:
            server.keep(wire)

    def _server(self, url: str) -> Server:
        parts = urlsplit(url)
        base = f"{parts.scheme}://{parts.netloc}"
        found = self._servers.get(base)
        if found is None:
            found = self._servers[base] = Server(base, proxy_of(base, os.environ))
        return found


def _text(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    text = "\r\n".join(lines)
    if text.count("\n") >= len(lines) or text.count("\r") >= len(lines) or " " in target:
        raise BadAnswer("a request cannot hold what the store's answer said")  # a line break would begin another
    return f"{text}\r\n\r\n".encode("latin-1")


def tls_context() -> ssl.SSLContext:
    """Trusts whom this system trusts; a Python that was brought into a container also whom its own system trusted."""
    context = ssl.create_default_context()
    brought = os.path.join(sys.prefix, "lib", "ca.pem")  # agent/workers/python_copy.py
    if os.path.isfile(brought):
        context.load_verify_locations(brought)
    return context
