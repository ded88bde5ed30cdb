"""Requests to one API server: made on kept connections, made again where that is right, refusals explained.

    a kept connection was closed   once more, on a new one; a POST only where it cannot have arrived
    the server is busy             it says for how long; again until PATIENCE is over
    credentials have expired       once more, where new ones can be had

Nothing else is tried again: that is the caller's decision. It knows no kinds of objects. ssl and http are imported when
the first request is made.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import petctl
from petctl.kube import failures
from petctl.kube.credentials import Access, Header

if TYPE_CHECKING:
    from http.client import HTTPResponse

    from petctl.kube.connection import Connection, Connections
    from petctl.kube.websocket import WebSocket

Object = dict[str, Any]
Begun = Callable[[Callable[[], None]], None]
"""Told when the server has accepted a stream, and given what cuts it, from any thread: its reader finds an error."""

PATIENCE = 30.0  # seconds that a busy server is asked again
_CHUNK = 64 << 10

log = logging.getLogger(__name__)


class Requests:
    """Those of any number of threads, to one server. `asked` hears the method of each, streams aside."""

    def __init__(self, access: Access, asked: Callable[[str], None] | None = None) -> None:
        self._access, self._asked = access, asked
        self._prefix = urlsplit(access.server).path.rstrip("/")
        self._lock = threading.Lock()
        self._made: Connections | None = None

    def close(self) -> None:
        """Closes idle connections; those that still carry something end by themselves."""
        if self._made is not None:
            self._made.close()

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any = None, kind: str = "application/json"
    ) -> Object:
        """The object in the answer to one request."""
        if self._asked is not None:
            self._asked(method)
        connection, answer = self._ask(method, path, query, body, kind)
        with self._told(connection, f"{method} {path}"):
            text = answer.read()
        self._keep(connection, answer)
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise failures.refusal(answer.status, text, self._access.where, f"{method} {path}")
        return found

    def stream(
        self,
        path: str,
        query: Mapping[str, str],
        what: str,
        until: float = math.inf,
        patient: bool = False,
        begun: Begun | None = None,
    ) -> Iterator[bytes]:
        """The answer as it comes. `until`: ends then; `patient`: nothing may come for hours."""
        connection, answer = self._ask("GET", path, query)
        whole = False
        try:
            if begun is not None:
                begun(connection.cut)
            while True:
                if answer.isclosed():
                    pass  # all of it has come, and its socket may be closed
                elif patient:
                    connection.wire.settimeout(None)
                elif until != math.inf:
                    connection.wire.settimeout(max(0.001, until - time.monotonic()))
                try:
                    with self._told(connection, what):
                        chunk = answer.read1(_CHUNK)
                except failures.ServerUnreachable:
                    if time.monotonic() >= until - 0.05:  # it was this that ended it; clocks round
                        return
                    raise
                if not chunk:
                    whole = True
                    return
                yield chunk
        finally:
            if whole and begun is None:
                self._keep(connection, answer)
            else:  # the rest of the answer is on its way, or will be some day; or somebody may still cut it
                answer.close()
                connection.close()

    def _ask(
        self, method: str, path: str, query: Mapping[str, str], body: Any = None, kind: str = "application/json"
    ) -> tuple[Connection, HTTPResponse]:
        """A good answer whose body is still to be read; all attempts are made here."""
        text = None if body is None else json.dumps(body).encode()
        target = self._prefix + path + (f"?{urlencode(query)}" if query else "")
        deadline = time.monotonic() + PATIENCE
        renewed = False
        while True:
            headers = [*self._headers(), *([("Content-Type", kind)] if text is not None else [])]
            connection, answer = self._attempt(method, target, headers, text)
            log.debug("%s %s: %d", method, target, answer.status)
            if answer.status < 300:
                return connection, answer
            with self._told(connection, f"{method} {path}"):
                refused = answer.read()
            self._keep(connection, answer)
            if answer.status == 401 and not renewed and self._access.credentials.renew():
                renewed = True
                self.close()  # those connections have presented the old certificate
                continue
            pause = _pause(answer)
            if pause is not None and time.monotonic() + pause < deadline:
                time.sleep(pause)
                continue
            raise failures.refusal(answer.status, refused, self._access.where, f"{method} {path}")

    def _attempt(
        self, method: str, target: str, headers: list[Header], body: bytes | None
    ) -> tuple[Connection, HTTPResponse]:
        """The head of the answer; a second attempt where the first met a connection that was closed meanwhile."""
        from petctl.kube.connection import CLOSED

        connection = self._connections.take()
        while True:
            sent = False
            try:
                connection.putrequest(method, target, skip_accept_encoding=True)
                for name, value in headers:
                    connection.putheader(name, value)
                if body is not None:
                    connection.putheader("Content-Length", str(len(body)))
                with contextlib.suppress(*CLOSED):  # it may have refused before it read everything: the answer says why
                    connection.endheaders(body)
                    sent = True
                return connection, connection.getresponse()
            except CLOSED as error:
                connection.close()
                if sent and method == "POST":
                    reason, advice = failures.reason_of(error), "it may have been done: check, then try again"
                    raise failures.cut_off(self._access.where, f"{method} {target}", reason, advice) from None
                if not connection.used:
                    raise self._explained(error, f"{method} {target}") from None
                connection = self._connections.new()
            except BaseException as error:
                connection.close()
                raise self._explained(error, f"{method} {target}") from None

    def websocket(self, path: str, query: list[tuple[str, str]], protocols: Sequence[str]) -> WebSocket:
        """A connection of its own, upgraded."""
        from petctl.kube.websocket import NotUpgraded, upgrade

        target = f"{self._prefix}{path}?{urlencode(query)}"
        host = urlsplit(self._access.server).netloc
        for attempt in ("first", "renewed"):
            connection = self._connections.new()
            try:
                return upgrade(connection.sock, host, target, self._headers(), protocols)
            except NotUpgraded as error:
                connection.close()
                if error.status == 401 and attempt == "first" and self._access.credentials.renew():
                    continue
                raise failures.refusal(error.status, error.body, self._access.where, f"GET {path}") from None
            except BaseException as error:
                connection.close()
                raise self._explained(error, f"GET {path}") from None
        raise AssertionError("the second attempt ends it")

    def _headers(self) -> list[Header]:
        agent = ("User-Agent", f"petctl/{petctl.__version__}")
        kinds = ("Accept", "application/json, */*")  # logs are plain text
        proofs = self._access.credentials.headers() if self._access.server.startswith("https://") else []
        return [agent, kinds, *proofs]

    def _keep(self, connection: Connection, answer: HTTPResponse) -> None:
        """The answer has been read: the connection serves the next request, unless the server closes it."""
        if answer.will_close or connection.sock is None:
            connection.close()
            return
        connection.listen_again()
        self._connections.give_back(connection)

    @contextlib.contextmanager
    def _told(self, connection: Connection, what: str) -> Iterator[None]:
        """What goes wrong while an answer is read, as an error for people; the connection is then of no use."""
        try:
            yield
        except BaseException as error:
            connection.close()
            raise self._explained(error, what) from None

    def _explained(self, error: BaseException, what: str) -> BaseException:
        from http.client import HTTPException

        if isinstance(error, (OSError, HTTPException)):
            return failures.cut_off(self._access.where, what.partition("?")[0], failures.reason_of(error))
        return error

    @property
    def _connections(self) -> Connections:
        with self._lock:
            if self._made is None:
                from petctl.kube.connection import Connections

                self._made = Connections(self._access)
            return self._made


def _pause(answer: HTTPResponse) -> float | None:
    """How long a busy server asks to be left alone; None: it does not."""
    asked = answer.getheader("Retry-After", "")
    return max(1.0, float(asked)) if answer.status in (429, 503) and asked.isdigit() else None
