"""The other end of the connection: `AgentLink` for an agent's event loop, `ControlLink` for the command line.

Both resolve the join file's locator, connect, check the certificate's pin, and have both sides prove that they know the
token, before they say anything else. Both raise `Unreachable` when nobody answers (try again: the coordinator may be
being replaced) and `AuthError` when somebody answers who is not this job's coordinator, or refuses this token. Where a
file names the address, that is `Unreachable` too: somebody else has the port of a coordinator that is being replaced.

`ControlLink` blocks and never imports asyncio, because the command line must be quick. Neither knows what messages
mean, nor tries again by itself.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Tuple

from petctl.errors import AuthError, PetctlError, ProtocolError, Unreachable
from petctl.rendezvous.core.messages import changes
from petctl.rendezvous.net.frames import (
    AGENT,
    CONTROL,
    COORDINATOR_LIMIT,
    NODE,
    UNPROVEN_LIMIT,
    FrameReader,
    PeerProof,
    Seal,
    encode_frame,
    plain_binding,
    welcome_of,
)
from petctl.rendezvous.net.join_file import JoinFile
from petctl.rendezvous.net.locator import blocks, is_loopback, join_address, resolve

if TYPE_CHECKING:
    import asyncio
    import ssl

CONNECT_WITHIN = 5.0  # seconds until the proof of both sides stands
UNSENT_LIMIT = 1 << 20  # bytes; a connection that takes no more than this is as good as dead


class AgentLink:
    """An agent's connection. After `connect` fails or `receive` raises, `connect` may be called again."""

    def __init__(self, join: JoinFile) -> None:
        self._join = join
        self._wire: Optional[_Wire] = None
        self._report: Dict[str, Any] = {}  # the last that went over this connection ...
        self._order: Dict[str, Any] = {}  # ... and the last that came

    async def connect(self, patience: float = CONNECT_WITHIN, within: Optional[float] = None) -> Dict[str, Any]:
        """Connects anew and answers with the coordinator's welcome.

        `patience`: seconds for its machine to answer; `within`: for all of it, longer where many connect at once.
        """
        import asyncio

        within = within or CONNECT_WITHIN
        self.close()
        self._report, self._order = {}, {}
        try:
            return await asyncio.wait_for(self._connect(patience), within)
        except (asyncio.TimeoutError, TimeoutError):
            self.close()
            raise Unreachable(f"no coordinator of {self._join.job} answered within {within:.0f} s") from None
        except BaseException as error:
            self.close()
            raise _as_met(self._join, error) from None

    def send(self, message: Mapping[str, Any]) -> None:
        """Never waits. Lost when there is no connection: `receive` says so. Of a report goes what has changed."""
        if self._wire is None:
            return
        if "report" in message:
            before, self._report = self._report, message["report"]
            message = {"changed": changes(self._report, before)} if before else message
        self._wire.send(message)

    async def receive(self) -> Dict[str, Any]:
        """The next message; Unreachable when the connection has ended."""
        if self._wire is None:
            raise Unreachable(f"not connected to the coordinator of {self._join.job}")
        message = await self._wire.receive()
        if isinstance(message.get("changed"), dict):
            message = {"order": {**self._order, **message["changed"]}}
        if isinstance(message.get("order"), dict):
            self._order = message["order"]
        return message

    def close(self) -> None:
        """Ends the connection after what was sent."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    async def _connect(self, patience: float) -> Dict[str, Any]:
        import asyncio

        loop = asyncio.get_running_loop()
        join, context = self._join, _context(self._join)
        if blocks(join.locator):
            host, port = await loop.run_in_executor(None, resolve, join.locator, CONNECT_WITHIN)
        else:
            host, port = resolve(join.locator, CONNECT_WITHIN)
        where = join_address(host, port)
        wire = self._wire = _Wire(where, loop)
        protocol: Any = lambda: wire  # noqa: E731  a protocol by its methods, not by its base class
        try:
            reached = await _reach(loop, host, port, patience)
            transport, _ = await loop.create_connection(
                protocol, sock=reached, ssl=context, server_hostname="" if context is not None else None
            )
        except (OSError, ValueError) as error:
            raise Unreachable(f"no coordinator at {where}: {_reason(error)}") from None
        peer = transport.get_extra_info("peername")
        if peer is None:  # whoever listened there died before the connection could be looked at
            raise Unreachable(f"the coordinator at {where} closed the connection")
        encrypted = transport.get_extra_info("ssl_object")
        presented = encrypted.getpeercert(binary_form=True) if encrypted is not None else None
        _check_end(join, presented, peer)
        proof = PeerProof(join.node_token, AGENT, join.pin or plain_binding(transport.get_extra_info("sockname"), peer))
        wire.send(proof.hello(await wire.receive()))
        wire.seal(*proof.check(await wire.receive()))
        return welcome_of(await wire.receive())


async def _reach(loop: asyncio.AbstractEventLoop, host: str, port: int, patience: float) -> socket.socket:
    """A TCP connection to the first of the host's addresses that takes one in time."""
    import asyncio

    failure = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        reached = socket.socket(family, kind, protocol)
        reached.setblocking(False)
        try:
            await asyncio.wait_for(loop.sock_connect(reached, address), patience)
            return reached
        except asyncio.TimeoutError:
            failure = OSError(f"no answer within {patience:g} s")
        except OSError as error:
            failure = OSError(error.errno, os.strerror(error.errno)) if error.errno else error  # asyncio's is no reason
        except BaseException:
            reached.close()
            raise
        reached.close()
    raise failure


class _Wire:
    """An asyncio protocol by its methods alone, so that this file can be read without asyncio."""

    def __init__(self, where: str, loop: asyncio.AbstractEventLoop) -> None:
        self._where, self._loop = where, loop
        self._reader = FrameReader(UNPROVEN_LIMIT)
        self._seal: Optional[Seal] = None
        self._waiter: Optional[asyncio.Future[None]] = None
        self._transport: Any = None
        self._error: Optional[PetctlError] = None
        self._closing = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        if self._closing:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        self._wake()

    def eof_received(self) -> None:
        self._end(Unreachable(f"the coordinator at {self._where} closed the connection"))

    def connection_lost(self, error: Optional[Exception]) -> None:
        self._end(Unreachable(f"lost the connection to the coordinator at {self._where}"))

    def pause_writing(self) -> None:
        """Nothing waits for the coordinator to read: `send` bounds what may be left over."""

    def resume_writing(self) -> None:
        """See pause_writing."""

    def seal(self, mine: Seal, theirs: Seal) -> None:
        self._seal, self._reader.seal, self._reader.limit = mine, theirs, COORDINATOR_LIMIT

    def send(self, message: Mapping[str, Any]) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(encode_frame(message, self._seal))
        if self._transport.get_write_buffer_size() > UNSENT_LIMIT:
            self._end(Unreachable(f"the coordinator at {self._where} accepts no more messages"))
            self._transport.abort()

    async def receive(self) -> Dict[str, Any]:
        while True:
            try:
                message = self._reader.next()
            except ProtocolError as error:
                self._end(Unreachable(f"the server at {self._where} is not a coordinator: {error}"))
                self._transport.abort()
                message = None
            if message is not None:
                return message
            if self._error is not None:
                raise self._error
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def close(self) -> None:
        self._closing = True
        self._end(Unreachable("the connection to the coordinator was closed"))
        if self._transport is not None:
            self._transport.close()

    def _end(self, error: PetctlError) -> None:
        self._error = self._error or error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class ControlLink:
    """The command line's connection, blocking: `with ControlLink(join) as link: link.call("scale", wanted=3)`.

    With a node's join file it is a node's, for the questions that nodes have.
    """

    def __init__(self, join: JoinFile, dial: Optional[Callable[[], socket.socket]] = None) -> None:
        """`dial`: another way to the coordinator than the join file's; then its certificate must be pinned."""
        self._join, self._dial = join, dial
        self._socket: Optional[socket.socket] = None
        self._reader = FrameReader(UNPROVEN_LIMIT)
        self._seal: Optional[Seal] = None
        self._where = ""
        self._number = 0

    def __enter__(self) -> ControlLink:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def connect(self, timeout: float = CONNECT_WITHIN) -> None:
        """Connects and has both sides prove themselves. The first `call` does it where nobody else did."""
        self.close()
        join, context = self._join, _context(self._join)
        try:
            self._socket = self._dialled(timeout)
            presented = None
            if context is not None:
                encrypted = context.wrap_socket(self._socket)
                self._socket, presented = encrypted, encrypted.getpeercert(binary_form=True)
            peer = self._socket.getpeername()
            _check_end(join, presented, peer)
            role = CONTROL if join.control else NODE
            proof = PeerProof(join.token, role, join.pin or plain_binding(self._socket.getsockname(), peer))
            self._socket.sendall(encode_frame(proof.hello(self._receive())))
            self._seal, self._reader.seal = proof.check(self._receive())
            self._reader.limit = COORDINATOR_LIMIT
            self._receive()  # its welcome, sealed
        except OSError as error:
            self.close()
            raise Unreachable(f"no coordinator of {join.job} at {self._where}: {_reason(error)}") from None
        except BaseException as error:
            self.close()
            raise _as_met(join, error) from None

    def _dialled(self, timeout: float) -> socket.socket:
        if self._dial is not None:
            self._where = "the end of a tunnel"
            dialled = self._dial()
            dialled.settimeout(timeout)
            return dialled
        host, port = resolve(self._join.locator, timeout)
        self._where = join_address(host, port)
        connected = socket.create_connection((host, port), timeout)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected

    def call(self, name: str, patience: float = 30.0, **params: Any) -> Any:
        """What the coordinator answers; a refusal is raised as it was meant for the user, with its exit code."""
        if self._socket is None:
            self.connect()
        assert self._socket is not None
        self._number += 1
        try:
            self._socket.settimeout(patience)
            self._socket.sendall(encode_frame({**params, "id": self._number, "call": name}, self._seal))
            answer = self._receive()
            while answer.get("id") != self._number:  # the late answer of a call that was given up
                answer = self._receive()
        except OSError as error:
            self.close()
            raise Unreachable(f"the coordinator of {self._join.job} did not answer: {_reason(error)}") from None
        except BaseException:
            self.close()  # half an answer may still be on its way
            raise
        if "error" in answer:
            refusal = PetctlError(str(answer["error"]))
            refusal.code = answer["code"] if isinstance(answer.get("code"), int) else 1
            raise refusal
        return answer.get("ok")

    def close(self) -> None:
        """Ends the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._reader, self._seal = None, FrameReader(UNPROVEN_LIMIT), None

    def _receive(self) -> Dict[str, Any]:
        assert self._socket is not None
        while True:
            try:
                message = self._reader.next()
            except ProtocolError as error:
                raise Unreachable(f"the server at {self._where} is not a coordinator: {error}") from None
            if message is not None:
                return message
            data = self._socket.recv(1 << 16)
            if not data:
                raise Unreachable(f"the coordinator of {self._join.job} at {self._where} closed the connection")
            self._reader.feed(data)


def _context(join: JoinFile) -> Optional[ssl.SSLContext]:
    if not join.pin:
        return None
    from petctl.rendezvous.net.tls import client_context

    return client_context()


def _check_end(join: JoinFile, presented: Optional[bytes], peer: Tuple[Any, ...]) -> None:
    """Before the first word of ours: is this the pinned coordinator, or at least this very machine?"""
    if join.pin:
        from petctl.rendezvous.net.tls import check_pin

        check_pin(presented, join.pin)
    elif not is_loopback(str(peer[0])):
        raise AuthError(f"the join file of {join.job} has no certificate pin, but {peer[0]} is another machine")


def _as_met(join: JoinFile, error: BaseException) -> BaseException:
    """A file may name the port of a dead coordinator that somebody else has taken since: it will name another."""
    return Unreachable(str(error)) if isinstance(error, ProtocolError) and "file" in join.locator else error


def _reason(error: Exception) -> str:
    if isinstance(error, socket.timeout):
        return "no answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
