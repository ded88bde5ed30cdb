"""Connections to one API server: TLS as the kubeconfig wants it, proxies, deadlines, silent deaths noticed.

Importing this imports ssl, so `api.py` does it when it first connects. It knows no paths and no objects.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import select
import socket
import ssl
import tempfile
import threading
from urllib.parse import urlsplit

from petctl.errors import UsageError
from petctl.http_proxy import proxy_headers
from petctl.kube import failures
from petctl.kube.credentials import Access

CONNECT_WITHIN = 15.0
KEPT = 8  # idle connections; more threads than that at once are rare


CLOSED = (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""What a request meets on a connection that the server has closed."""


class Connection(http.client.HTTPConnection):
    """One connection, with or without TLS, through a proxy or not."""

    used = False  # whether it has carried a request: only then may the server have closed it meanwhile

    wire: socket.socket  # still there while the last answer is read, when http.client has let go of it

    def __init__(self, access: Access, context: ssl.SSLContext | None) -> None:
        target = urlsplit(access.server)
        host, port = target.hostname or "", target.port or (443 if context else 80)
        self._context, self._answer_within = context, access.answer_within
        self._server_name = access.server_name or host
        within = min(CONNECT_WITHIN, access.answer_within)
        if access.proxy:
            proxy = urlsplit(access.proxy)
            super().__init__(proxy.hostname or "", proxy.port or 80, timeout=within)
            self.set_tunnel(host, port, headers=proxy_headers(access.proxy))
        else:
            super().__init__(host, port, timeout=within)

    def connect(self) -> None:
        """Connects, and begins TLS."""
        super().connect()
        _notice_silence(self.sock)
        if self._context is not None:
            self.sock = self._context.wrap_socket(self.sock, server_hostname=self._server_name)
        self.listen_again()
        self.wire = self.sock

    def listen_again(self) -> None:
        """For the next answer, whatever was right for the last one."""
        self.sock.settimeout(self._answer_within)

    def cut(self) -> None:
        """Ends whatever it carries, from any thread: whoever reads finds the end."""
        with contextlib.suppress(OSError):  # it has ended already
            socket.socket.shutdown(self.wire, socket.SHUT_RDWR)  # below TLS, whose state belongs to the reader

    @property
    def stale(self) -> bool:
        """Whether the server has closed it: nothing else makes an idle connection readable."""
        if self.sock is None:
            return True
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(0))


class Connections:
    """Those to one server; each is used by one thread at a time, and kept when its answer has been read."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._context: ssl.SSLContext | None = None
        self._presented: tuple[str, str] | None = None

    def take(self) -> Connection:
        """A kept connection that still lives, or a new one."""
        while True:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            if kept is None:
                return self.new()
            if not kept.stale:
                return kept
            kept.close()

    def new(self) -> Connection:
        """A new connection, connected; ServerUnreachable with the reason."""
        connection = Connection(self._access, self._tls())
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            through = f" (through the proxy {_shown(self._access.proxy)})" if self._access.proxy else ""
            raise failures.unreachable(self._access.where + through, failures.reason_of(error)) from None
        return connection

    def give_back(self, connection: Connection) -> None:
        """Its answer has been read to the end: keep it for the next request."""
        connection.used = True
        with self._lock:
            if len(self._idle) < KEPT:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Closes those that are kept."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _tls(self) -> ssl.SSLContext | None:
        """The TLS settings; made anew, and old connections dropped, when the client certificate is another one."""
        if not self._access.server.startswith("https://"):
            return None
        certificate = self._access.credentials.client_certificate()
        with self._lock:
            if self._context is not None and certificate == self._presented:
                return self._context
            self._context, self._presented = _context(self._access, certificate), certificate
            old, self._idle = self._idle, []
            context = self._context
        for connection in old:
            connection.close()
        return context


def _context(access: Access, certificate: tuple[str, str] | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=access.authority or None)
    except ssl.SSLError as error:
        raise UsageError(
            f"{access.source}: the certificate-authority of context {access.context} is no certificate ({error.reason})"
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # many clusters' own authorities lack an extension that it wants
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        try:
            _present(context, *certificate)
        except ssl.SSLError as error:
            raise UsageError(
                f"{access.source}: client certificate and key of context {access.context} cannot be used "
                f"({error.reason}); they must be PEM, match each other and have no password"
            ) from None
    return context


def _present(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """ssl takes certificates from files only: one that nobody else can read is there for the moment of loading."""
    descriptor, path = tempfile.mkstemp(prefix="petctl-", suffix=".pem")  # 0600
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(f"{certificate.rstrip()}\n{key}")
        context.load_cert_chain(path, password="")
    finally:
        os.unlink(path)  # noqa: PTH108


def _notice_silence(sock: socket.socket) -> None:
    """A server that vanished without a word is noticed after a minute, also by those who only listen."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _shown(proxy: str) -> str:
    """The proxy without its password."""
    parts = urlsplit(proxy)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
