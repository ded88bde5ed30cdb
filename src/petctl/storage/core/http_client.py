"""HTTP to any server, over connections that are kept, and through a proxy where the environment wants one.

    Server        one server, asked by any number of threads; the caller brings finished requests
    HttpClient    requests to whatever server their URL names

Both try once: what a cut connection means, an OSError, is the caller's to decide. Whatever else goes wrong on the way
(a disk, a file that became shorter) comes out as a PetctlError. Standard library only.
"""

from __future__ import annotations

import os
import socket
import sys
from collections import deque
from typing import TYPE_CHECKING, Callable, Deque, Dict, Mapping, NamedTuple, Optional
from urllib.parse import urlsplit

from petctl.storage.core.answers import BadAnswer
from petctl.storage.core.body import NOTHING, Body, own_buffer, unheard
from petctl.storage.core.http_connection import Head, Wire, dial
from petctl.storage.core.http_proxy import proxy_headers, proxy_of

if TYPE_CHECKING:
    import ssl

ANSWER_WITHIN = 30.0
"""Seconds without a byte after which a connection is given up."""

Take = Callable[[Head, memoryview], None]


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
    import ssl

    context = ssl.create_default_context()
    brought = os.path.join(sys.prefix, "lib", "ca.pem")  # agent/workers/python_copy.py
    if os.path.isfile(brought):
        context.load_verify_locations(brought)
    return context
