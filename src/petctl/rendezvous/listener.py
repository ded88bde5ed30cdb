"""The coordinator's door: accepts connections, has each prove that it knows the token, and hands on whole messages.

Whoever stands outside is cheap: unproven peers get a few seconds, short frames and a bounded number of places, of which
the oldest is given up for a newcomer. Bytes that make no sense end their connection, are counted, and cost at most one
log line a second. A peer that does not read what it is sent is dropped before it fills the memory.

This module knows frames and proofs, but nothing of nodes, rounds or the machine: that is `coordinator.py`.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import select
import socket
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Set, Tuple

from petctl.errors import InternalError, ProtocolError
from petctl.rendezvous.locator import is_loopback
from petctl.rendezvous.wire import PEER_LIMIT, PLAIN, UNPROVEN_LIMIT, CoordinatorProof, FrameReader, encode_frame

if TYPE_CHECKING:
    import ssl

PROOF_WITHIN = 5.0  # seconds from the accept to a proof that holds
UNPROVEN_AT_ONCE = 2048  # more than a large job's agents, all connecting at the same moment
WRITE_LIMIT = 4 << 20  # bytes a peer may leave unread

_BACKLOG = 4096
_ACCEPT_BATCH = 64  # per turn of the loop, so that a flood of connections does not starve those that are open
_REST = 0.1  # seconds without accepting when the process has no descriptor left

log = logging.getLogger("petctl.coordinator")


def allow_many_connections() -> None:
    """Lifts this process's limit on open files as far as it may: each agent of a job is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Connection(asyncio.Protocol):
    """One peer. `role` is empty until it has proved itself; `key` belongs to whoever serves the connection."""

    def __init__(self, listener: Listener, peer: str, accepted: socket.socket) -> None:
        self.role = ""
        self.key: Any = None
        self.peer = peer
        self.accepted: Optional[socket.socket] = accepted  # ours to close until the loop has it
        self.admission: Optional[asyncio.Task[None]] = None
        self._listener = listener
        self._reader = FrameReader(UNPROVEN_LIMIT)
        self._proof = CoordinatorProof(listener.token, listener.binding)
        self._transport: Optional[asyncio.Transport] = None
        self._over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._over:
            transport.abort()
            return
        transport.write(encode_frame(self._proof.greeting()))

    def data_received(self, data: bytes) -> None:
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

    def send(self, frame: bytes) -> None:
        """Never waits. A peer that leaves too much unread is dropped."""
        if self._over or self._transport is None:
            return
        self._transport.write(frame)
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
            self.accepted.close()

    def _introduced(self, hello: Dict[str, Any]) -> None:
        try:
            role, answer = self._proof.check(hello)
        except ProtocolError:
            self.send(encode_frame({"error": "the proof does not hold"}))
            raise
        self.role = role
        self._reader.limit = PEER_LIMIT
        self._listener.proven(self, answer)


class Listener:
    """Listens on one port. What proven peers say goes to `received`, their end to `closed`.

    `welcome(connection)` is what a peer gets with the coordinator's own proof.
    """

    def __init__(
        self,
        token: str,
        binding: str,
        tls: Optional[ssl.SSLContext],
        welcome: Callable[[Connection], Optional[Dict[str, Any]]],
        received: Callable[[Connection, Dict[str, Any]], None],
        closed: Callable[[Connection], None],
    ) -> None:
        self.token, self.binding = token, binding
        self.received = received
        self.dropped = 0  # connections ended because of what came over them
        self._tls, self._welcome, self._closed = tls, welcome, closed
        self._unproven: Dict[Connection, float] = {}  # -> when its time is up; oldest first
        self._proven: Set[Connection] = set()
        self._places = UNPROVEN_AT_ONCE
        self._socket: Optional[socket.socket] = None
        self._sweep: Optional[asyncio.TimerHandle] = None
        self._told: Optional[asyncio.TimerHandle] = None  # a log line about hostile peers was written this second
        self._untold = 0

    async def listen(self, host: str, port: int) -> Tuple[str, int]:
        """Opens the port and says which it is. Plain TCP is for loopback alone."""
        self._loop = asyncio.get_running_loop()
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        if self._tls is None and not is_loopback(str(address[0])):
            raise InternalError(f"a coordinator on {host} needs a certificate: plain TCP is for loopback alone")
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
        for timer in (self._sweep, self._told):
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
            try:
                peer, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(error)
                return
            if len(self._unproven) >= self._places:
                self.hostile(next(iter(self._unproven)), "too many peers that have proved nothing")
            peer.setblocking(False)
            connection = Connection(self, f"{address[0]}:{address[1]}", peer)
            self._unproven[connection] = self._loop.time() + PROOF_WITHIN
            if self._sweep is None:
                self._sweep = self._loop.call_later(PROOF_WITHIN, self._give_up_on_the_slow)
            connection.admission = self._loop.create_task(self._admit(connection))

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
            self._unproven.pop(connection, None)
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
            self.hostile(next(iter(self._unproven)), "its place is needed")
        self._loop.remove_reader(self._socket.fileno())
        self._loop.call_later(_REST, self._resume)

    def _resume(self) -> None:
        if self._socket is not None:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _give_up_on_the_slow(self) -> None:
        now, self._sweep = self._loop.time(), None
        for connection, until in list(self._unproven.items()):
            if until > now:
                self._sweep = self._loop.call_at(until, self._give_up_on_the_slow)
                return
            self.hostile(connection, f"no proof within {PROOF_WITHIN:.0f} s")

    # -- called by connections -----------------------------------------------------------------------------------------

    def proven(self, connection: Connection, answer: str) -> None:
        """The peer knows the token: it is let in, and told that so do we."""
        self._unproven.pop(connection, None)
        self._proven.add(connection)
        welcome = self._welcome(connection)
        message: Dict[str, Any] = {"proof": answer}
        if welcome is not None:
            message["welcome"] = welcome
        connection.send(encode_frame(message))

    def gone(self, connection: Connection) -> None:
        """The connection is over, whoever ended it."""
        self._unproven.pop(connection, None)
        if connection in self._proven:
            self._proven.discard(connection)
            self._closed(connection)

    def hostile(self, connection: Connection, why: str) -> None:
        """Ends a connection because of what came over it, or did not."""
        self._unproven.pop(connection, None)
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
            self._complain(f"{untold} more connections were dropped within a second")
