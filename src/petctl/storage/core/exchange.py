"""One HTTP request at a time, over connections that are kept: what nodes and coordinators need to reach a store.

It tries once. A cut connection is an OSError or HTTPException; whether to ask again is the caller's decision. Whatever
else goes wrong on the way (a disk, a file that became shorter) comes out as the caller raised it.
"""

from __future__ import annotations

import http.client
import os
import sys
import threading
from typing import TYPE_CHECKING, Callable, Dict, Iterable, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import SplitResult, urlsplit

from petctl.storage.core.answers import LARGEST, BadAnswer, whole_number
from petctl.storage.core.http_proxy import proxy_headers, proxy_of

if TYPE_CHECKING:
    import ssl

ANSWER_WITHIN = 30.0  # seconds without a byte
BLOCK = 256 << 10

_Connection = Tuple[http.client.HTTPConnection, Dict[str, str]]
Take = Callable[[int, Mapping[str, str], bytes], None]


class Answer(NamedTuple):
    """What the store said; `body` is empty where it was taken block by block."""

    status: int
    headers: Dict[str, str]
    body: bytes


class Exchange:
    """Requests of any number of threads; each has its own connections."""

    def __init__(self, moved: Callable[[int], None] = lambda count: None) -> None:
        """`moved` is told of every block of a body, in either direction."""
        self._moved = moved
        self._threads = threading.local()

    def once(
        self,
        method: str,
        url: str,
        headers: Optional[Mapping[str, str]] = None,
        body: Iterable[bytes] = (),
        length: int = 0,
        take: Optional[Take] = None,
    ) -> Answer:
        """The answer; with `take`, the body of a good one is handed over block by block (at least one, maybe empty)."""
        parts = urlsplit(url)
        connection, proxied = self._connection(parts.scheme, parts.netloc)
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            if proxied:  # for what is not encrypted: it is told the whole address
                target = f"{parts.scheme}://{parts.netloc}{target}"
            connection.putrequest(method, target, skip_host=bool(proxied), skip_accept_encoding=True)
            for name, value in proxied.items():
                connection.putheader(name, value)
            for name, value in (headers or {}).items():
                connection.putheader(name, value)
            if length or method in ("PUT", "POST"):
                connection.putheader("content-length", str(length))
            try:
                connection.endheaders()
                for block in body:
                    connection.send(block)
                    self._moved(len(block))
            except (BrokenPipeError, ConnectionResetError):
                pass  # it may have refused before it read everything; if it did not, the next line says so
            response = connection.getresponse()
            answer = self._read(response, method, take)
            if response.will_close:
                self._drop(parts.netloc)
            return answer
        except BaseException:
            self._drop(parts.netloc)  # half a request or half an answer may be on its way
            raise

    def _read(self, response: http.client.HTTPResponse, method: str, take: Optional[Take]) -> Answer:
        headers = {name.lower(): value for name, value in response.getheaders()}
        if take is None or response.status >= 300:
            body = response.read(LARGEST + 1)
            if len(body) > LARGEST:
                raise BadAnswer(f"the store's answer is longer than {LARGEST >> 20} MiB")
            if response.length:  # a bounded read does not say that the connection was cut
                raise http.client.IncompleteRead(body, response.length)
            return Answer(response.status, headers, body)
        left = whole_number(headers["content-length"], "length") if "content-length" in headers else -1
        take(response.status, headers, b"")
        while True:
            block = response.read(BLOCK)
            if not block:
                break
            left -= len(block)
            self._moved(len(block))
            take(response.status, headers, block)
        if left > 0:
            raise http.client.IncompleteRead(b"", left)
        return Answer(response.status, headers, b"")

    def _connection(self, scheme: str, netloc: str) -> _Connection:
        kept: Dict[str, _Connection] = self._threads.__dict__
        if netloc not in kept:
            kept[netloc] = _connection(scheme, netloc)
        return kept[netloc]

    def _drop(self, netloc: str) -> None:
        kept = self._threads.__dict__.pop(netloc, None)
        if kept is not None:
            kept[0].close()


def _connection(scheme: str, netloc: str) -> _Connection:
    """A connection that is made when it is used, through a proxy where the environment wants one; with what a proxy
    has to be told in each request."""
    proxy = proxy_of(f"{scheme}://{netloc}", os.environ)
    through = urlsplit(proxy)
    place = f"{_host(through)}:{through.port or 80}" if proxy else netloc
    if scheme != "https":
        told = {"Host": netloc, **proxy_headers(proxy)} if proxy else {}
        return http.client.HTTPConnection(place, timeout=ANSWER_WITHIN), told
    connection = http.client.HTTPSConnection(place, timeout=ANSWER_WITHIN, context=_tls_context())
    if proxy:
        target = urlsplit(f"{scheme}://{netloc}")
        connection.set_tunnel(target.hostname or "", target.port or 443, proxy_headers(proxy))
    return connection, {}


def _host(parts: SplitResult) -> str:
    host = parts.hostname or ""
    return f"[{host}]" if ":" in host else host


def _tls_context() -> ssl.SSLContext:
    """Trusts whom this system trusts; a Python that was brought into a container also whom its own system trusted."""
    import ssl

    context = ssl.create_default_context()
    brought = os.path.join(sys.prefix, "lib", "ca.pem")  # agent/workers/python_copy.py
    if os.path.isfile(brought):
        context.load_verify_locations(brought)
    return context
