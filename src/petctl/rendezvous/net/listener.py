"""The coordinator's door: accepts connections, has each prove that it knows the token, and hands on whole messages.

Whoever stands outside is cheap: unproven peers get a few seconds, short frames and a bounded number of places. When all
are taken nobody else is accepted for a moment: in a herd of agents the oldest is nearest to its proof, so only a peer
that has said nothing for a while loses its place to a newcomer. TLS begins with the peer's first byte. Bytes that make
no sense end their connection, are counted, and cost at most one log line a second. A peer that does not read what it is
sent is dropped before it fills the memory.

This module knows frames and proofs, but nothing of nodes, rounds or the machine: that is `server.py`.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import select
import socket
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Set, Tuple

from petctl.errors import InternalError, ProtocolError
from petctl.rendezvous.net.frames import (
    PEER_LIMIT,
    PLAIN,
    UNPROVEN_LIMIT,
    CoordinatorProof,
    FrameReader,
    Seal,
    encode_payload,
    frame,
    plain_binding,
    tokens_of,
)
from petctl.rendezvous.net.locator import is_loopback

if TYPE_CHECKING:
    import ssl

PROOF_WITHIN = 5.0  # seconds from the accept to a proof that holds
UNPROVEN_AT_ONCE = 2048  # more than a large job's agents, all connecting at the same moment
SILENT = 2.0  # seconds without a byte after which a peer may lose its place to a newcomer
WRITE_LIMIT = 4 << 20  # bytes a peer may leave unread

_BACKLOG = 4096
_ACCEPT_BATCH = 64  # per turn of the loop, so that a flood of connections does not starve those that are open
_REST = 0.1  # seconds without accepting when the process has no descriptor left
_LATE = 0.25  # seconds: a loop that is later than that first reads what has come meanwhile
_HANDSHAKE = b"\x16"  # what a TLS connection begins with

log = logging.getLogger(__name__)


def allow_many_connections() -> None:
    """Lifts this process's limit on open files as far as it may: each agent of a job is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Connection(asyncio.Protocol):
    """One peer. `role` is empty until it has proved itself; `key`, `report` and `order` are for whoever serves it."""

    def __init__(self, listener: Listener, accepted: socket.socket, address: Tuple[Any, ...]) -> None:
        self.role = ""
        self.key: Any = None
        self.report: Any = None  # the last that came over it ...
        self.order: Any = None  # ... and the last that went
        self.peer = f"{address[0]}:{address[1]}"
        self.accepted: Optional[socket.socket] = accepted  # ours to close until the loop has it
        self.admission: Optional[asyncio.Task[None]] = None
        self._listener = listener
        self._reader = FrameReader(UNPROVEN_LIMIT)
        binding = listener.binding if listener.binding != PLAIN else plain_binding(address, accepted.getsockname())
        self._proof = CoordinatorProof(listener.tokens, binding)
        self._seal: Optional[Seal] = None
        self._unsent = b""
        self._transport: Optional[asyncio.Transport] = None
        self._over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._over:
            transport.abort()
            return
        self.send(encode_payload(self._proof.greeting()))

    def data_received(self, data: bytes) -> None:
        if not self.role:
            self._listener.heard(self)
        try:
            for message in self._reader.feed(data):
                if self._over:
                    return
                if self.role:
                    self._listener.received(self, message)
                else:
                    self._introduced(message)
        except ProtocolError as error:
            self._listener.hostile(self, str(error))

    def connection_lost(self, error: Optional[Exception]) -> None:
        self._over = True
        self._listener.gone(self)

    def send(self, payload: bytes, more: bool = False) -> None:
        """Never waits. A peer that leaves too much unread is dropped. `more`: it goes together with the next one."""
        if self._over or self._transport is None:
            return
        self._unsent += frame(payload, self._seal)
        if more:
            return
        self._transport.write(self._unsent)
        self._unsent = b""
        unread = self._transport.get_write_buffer_size()
        if unread > WRITE_LIMIT:
            self._listener.hostile(self, f"a peer that left {unread} bytes unread")

    def close(self) -> None:
        """Ends the connection after what was sent."""
        self._over = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Ends the connection now."""
        self._over = True
        if self._transport is not None:
            self._transport.abort()
        elif self.admission is not None:
            self.admission.cancel()
        if self.accepted is not None:
            self._listener.release(self.accepted)
            self.accepted.close()

    def _introduced(self, hello: Dict[str, Any]) -> None:
        try:
            role, answer = self._proof.check(hello)
        except ProtocolError:
            self.send(encode_payload({"error": "the proof is invalid"}))
            raise
        self.send(encode_payload({"proof": answer}), more=True)
        self._seal, self._reader.seal = self._proof.seals()
        self.role = role
        self._reader.limit = PEER_LIMIT
        self._listener.proven(self)


class Listener:
    """Listens on one port. What proven peers say goes to `received`, their end to `closed`.

    `welcome(connection)` is what a peer gets after the coordinator's own proof.
    """

    def __init__(
        self,
        token: str,
        binding: str,
        tls: Optional[ssl.SSLContext],
        welcome: Callable[[Connection], Dict[str, Any]],
        received: Callable[[Connection, Dict[str, Any]], None],
        closed: Callable[[Connection], None],
    ) -> None:
        self.tokens, self.binding = tokens_of(token), binding
        self.received = received
        self.dropped = 0  # connections ended because of what came over them
        self._tls, self._welcome, self._closed = tls, welcome, closed
        self._unproven: Dict[Connection, float] = {}  # -> when its time is up; oldest first
        self._silent: Dict[Connection, float] = {}  # -> since when; oldest first, of those that have said nothing yet
        self._proven: Set[Connection] = set()
        self._places = UNPROVEN_AT_ONCE
        self._socket: Optional[socket.socket] = None
        self._full: Optional[asyncio.TimerHandle] = None  # no place is free: when to look again
        self._sweep: Optional[asyncio.TimerHandle] = None
        self._told: Optional[asyncio.TimerHandle] = None  # a log line about hostile peers was written this second
        self._untold = 0

    async def listen(self, host: str, port: int) -> Tuple[str, int]:
        """Opens the port and says which it is. Plain TCP is for loopback alone."""
        self._loop = asyncio.get_running_loop()
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        if self._tls is None and not is_loopback(str(address[0])):
            raise InternalError(f"a coordinator on {host} needs a certificate: plain TCP is only for loopback")
        if (self._tls is None) != (self.binding == PLAIN):
            raise InternalError("the binding of a coordinator is the digest of its certificate, or plain without one")
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.setblocking(False)
            opened.bind(address)
            opened.listen(_BACKLOG)
        except OSError:
            opened.close()
            raise
        self._socket = opened
        if self._tls is not None:
            from petctl.rendezvous.net.tls import use_small_buffers

            use_small_buffers()
        # Strangers never get more than half of the descriptors: the job's own files must still open.
        self._places = min(UNPROVEN_AT_ONCE, max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
        self._loop.add_reader(self._socket.fileno(), self._accept)
        bound = self._socket.getsockname()
        return str(bound[0]), int(bound[1])

    def close(self) -> None:
        """Stops listening; open connections end after what was sent to them."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        for timer in (self._sweep, self._told, self._full):
            if timer is not None:
                timer.cancel()
        for connection in list(self._unproven):
            connection.abort()
        for connection in list(self._proven):
            connection.close()

    # -- newcomers -----------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        assert self._socket is not None
        for _ in range(_ACCEPT_BATCH):
            if len(self._unproven) >= self._places and not self._make_room():
                return
            try:
                peer, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(error)
                return
            peer.setblocking(False)
            connection = Connection(self, peer, address)
            now = self._loop.time()
            self._unproven[connection], self._silent[connection] = now + PROOF_WITHIN, now
            if self._sweep is None:
                self._sweep = self._loop.call_later(PROOF_WITHIN, self._give_up_on_the_slow)
            if self._tls is not None:
                self._loop.add_reader(peer.fileno(), self._knocked, connection)
            else:
                connection.admission = self._loop.create_task(self._admit(connection))

    def _make_room(self) -> bool:
        """A place of a peer that has said nothing for long; False: nobody is accepted until a place is free."""
        assert self._socket is not None
        now = self._loop.time()
        oldest, since = next(iter(self._silent.items()), (None, now))
        if oldest is not None and since + SILENT <= now:
            self.hostile(oldest, "silent, and its slot is needed")
            return True
        self._loop.remove_reader(self._socket.fileno())
        self._full = self._loop.call_at(since + SILENT if oldest is not None else now + _REST, self._free)
        return False

    def _free(self) -> None:
        """A place may be free again."""
        if self._full is not None:
            self._full.cancel()
            self._full = None
            self._resume()

    def _knocked(self, connection: Connection) -> None:
        """The first byte of a peer, or its end: what is no TLS costs no handshake."""
        assert connection.accepted is not None
        self.release(connection.accepted)
        try:
            first = connection.accepted.recv(1, socket.MSG_PEEK)
        except OSError:
            first = b""
        if first == _HANDSHAKE:
            self.heard(connection)
            connection.admission = self._loop.create_task(self._admit(connection))
        else:
            self.hostile(connection, "no TLS handshake")

    async def _admit(self, connection: Connection) -> None:
        peer, connection.accepted = connection.accepted, None
        assert peer is not None
        try:
            within = PROOF_WITHIN if self._tls is not None else None
            await self._loop.connect_accepted_socket(
                lambda: connection, peer, ssl=self._tls, ssl_handshake_timeout=within
            )
        except OSError as error:  # TLS that makes no sense is one, and so is one that takes too long
            self.hostile(connection, f"no TLS handshake: {error}")
        except asyncio.CancelledError:
            self._leave(connection)
        finally:
            connection.admission = None

    def _rest(self, error: OSError) -> None:
        """The process has no descriptor left: makes room among the strangers and tries again in a moment."""
        assert self._socket is not None
        pending = select.poll()
        pending.register(self._socket, select.POLLIN)
        if not pending.poll(0):
            return  # nobody waits; accepting would just not have had a descriptor for it
        self._complain(f"cannot accept a connection: {error.strerror}")
        if self._unproven:
            self.hostile(next(iter(self._unproven)), "its slot is needed")
        self._loop.remove_reader(self._socket.fileno())
        self._loop.call_later(_REST, self._resume)

    def _resume(self) -> None:
        if self._socket is not None:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _give_up_on_the_slow(self) -> None:
        now, due = self._loop.time(), self._sweep.when() if self._sweep is not None else 0.0
        if due and now > due + _LATE:
            self._sweep = self._loop.call_at(now, self._give_up_on_the_slow)
            return
        self._sweep = None
        for connection, until in list(self._unproven.items()):
            if until > now:
                self._sweep = self._loop.call_at(until, self._give_up_on_the_slow)
                return
            self.hostile(connection, f"no proof within {PROOF_WITHIN:.0f} s")

    # -- called by connections -----------------------------------------------------------------------------------------

    def proven(self, connection: Connection) -> None:
        """The peer knows the token and was told that so does the coordinator: it is let in."""
        self._leave(connection)
        self._proven.add(connection)
        connection.send(encode_payload({"welcome": self._welcome(connection)}))

    def heard(self, connection: Connection) -> None:
        """The peer has said something: its place is its own until its time is up."""
        self._silent.pop(connection, None)

    def release(self, accepted: socket.socket) -> None:
        """Stops waiting for the first byte."""
        if self._tls is not None:
            self._loop.remove_reader(accepted.fileno())

    def _leave(self, connection: Connection) -> None:
        self._silent.pop(connection, None)
        if self._unproven.pop(connection, None) is not None:
            self._free()

    def gone(self, connection: Connection) -> None:
        """The connection is over, whoever ended it."""
        self._leave(connection)
        if connection in self._proven:
            self._proven.discard(connection)
            self._closed(connection)

    def hostile(self, connection: Connection, why: str) -> None:
        """Ends a connection because of what came over it, or did not."""
        self._leave(connection)
        connection.abort()
        self.dropped += 1
        self._complain(f"dropped a connection from {connection.peer}: {why}")

    def _complain(self, what: str) -> None:
        """Says the first at once, and the rest of that second in one line."""
        if self._told is not None:
            self._untold += 1
            return
        log.warning("%s", what)
        self._told = self._loop.call_later(1.0, self._sum_up)

    def _sum_up(self) -> None:
        self._told = None
        if self._untold:
            untold, self._untold = self._untold, 0
            self._complain(f"dropped {untold} more connections within a second")
