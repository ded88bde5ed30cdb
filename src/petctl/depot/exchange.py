"""One HTTP request at a time, over connections that are kept: what nodes and coordinators need to reach a store.

It tries once. A cut connection is an OSError or HTTPException; whether to ask again is the caller's decision. Whatever
else goes wrong on the way (a disk, a file that became shorter) comes out as the caller raised it.
"""

from __future__ import annotations

import http.client
import threading
from typing import Any, Callable, Dict, Iterable, Mapping, NamedTuple, Optional
from urllib.parse import urlsplit

ANSWER_WITHIN = 30.0  # seconds without a byte
BLOCK = 256 << 10

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
        connection = self._connection(parts.scheme, parts.netloc)
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.putrequest(method, target, skip_accept_encoding=True)
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
            return Answer(response.status, headers, response.read())
        left = int(headers.get("content-length", "-1"))
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

    def _connection(self, scheme: str, netloc: str) -> http.client.HTTPConnection:
        kept: Dict[str, Any] = self._threads.__dict__
        connection: Optional[http.client.HTTPConnection] = kept.get(netloc)
        if connection is None:
            if scheme == "https":
                import ssl

                context = ssl.create_default_context()
                connection = http.client.HTTPSConnection(netloc, timeout=ANSWER_WITHIN, context=context)
            else:
                connection = http.client.HTTPConnection(netloc, timeout=ANSWER_WITHIN)
            kept[netloc] = connection
        return connection

    def _drop(self, netloc: str) -> None:
        connection = self._threads.__dict__.pop(netloc, None)
        if connection is not None:
            connection.close()
