"""The client's side of RFC 6455, as far as a Kubernetes API server needs it: binary messages, no extensions.

`Frames` is the protocol alone: bytes in, messages out, and bytes that must be sent. `WebSocket` puts it on a socket
that never blocks, for one thread that waits with `poll` on several things at once: TLS sockets must not be read and
written by two threads. Channels and what they mean are `execute.py`'s and `dial.py`'s business.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import select
import socket
import ssl
import time
from collections.abc import Iterable, Sequence
from typing import IO, Any

from petctl.errors import ProtocolError

LARGEST = 16 << 20  # bytes of one message; API servers send 32 KiB at a time
BLOCK = 64 << 10
HIGH_WATER = 256 << 10  # unsent bytes from which on nothing more should be queued
BEAT = 30.0  # seconds of silence after which a ping keeps proxies on the way from closing the connection
_RECORD = 16 << 10  # what TLS sends as one piece: a send that would block is repeated with the same piece
_IDENTITY = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_MORE, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
NORMAL, PROTOCOL_WRONG, TOO_BIG = 1000, 1002, 1009


class NotUpgraded(Exception):
    """The server answered with something else than a websocket."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"the server answered {status}")
        self.status = status
        self.body = body


class Frames:
    """What has come, as messages; what must go, in `unsent`."""

    def __init__(self, largest: int = LARGEST) -> None:
        self.unsent = bytearray()
        self.closing: tuple[int, str] | None = None
        """Code and words of the server's close frame, once it has come."""

        self._largest = largest
        self._buffer = bytearray()
        self._message: bytearray | None = None  # of which the first frames have come
        self._said_goodbye = False

    def send(self, payload: bytes) -> None:
        """Queues one binary message."""
        self._queue(_BINARY, payload)

    def ping(self) -> None:
        """Queues a ping; its answer is dropped."""
        self._queue(_PING, b"")

    def close(self, code: int = NORMAL, words: str = "") -> None:
        """Queues the close frame, once; nothing may be sent after it."""
        if not self._said_goodbye:
            self._queue(_CLOSE, code.to_bytes(2, "big") + words.encode()[:123])
            self._said_goodbye = True

    def mute(self) -> None:
        """Nothing can be sent any more."""
        self.unsent.clear()
        self._said_goodbye = True

    def receive(self, data: bytes) -> list[bytes]:
        """The messages that these bytes complete. ProtocolError: the server does not keep to the rules."""
        self._buffer += data
        messages = []
        while self.closing is None:
            frame = self._next()
            if frame is None:
                break
            message = self._take(*frame)
            if message is not None:
                messages.append(message)
        return messages

    def _next(self) -> tuple[int, bool, bytes] | None:
        """Opcode, whether it is the last of its message, and payload of the next frame, once it is complete."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        if first & 0x70:
            self._fail("it uses an extension that was not requested")
        if second & 0x80:
            self._fail("its frames are masked")
        length, start = second & 0x7F, 2
        if length > 125:
            if first & 0x08:
                self._fail("a control frame is too long")
            start = 4 if length == 126 else 10
            if len(buffer) < start:
                return None
            length = int.from_bytes(buffer[2:start], "big")
        if length + len(self._message or b"") > self._largest:
            self._fail(f"a message is longer than {self._largest} bytes", TOO_BIG)
        if len(buffer) < start + length:
            return None
        payload = bytes(buffer[start : start + length])
        del buffer[: start + length]
        return first & 0x0F, bool(first & 0x80), payload

    def _take(self, opcode: int, last: bool, payload: bytes) -> bytes | None:
        """The message that a frame completes, if it does."""
        if opcode >= _CLOSE:
            if not last:
                self._fail("a control frame is fragmented")
            self._control(opcode, payload)
            return None
        if opcode == _MORE:
            if self._message is None:
                self._fail("a continuation frame without a message")
            assert self._message is not None
            self._message += payload
        elif opcode in (_TEXT, _BINARY):
            if self._message is not None:
                self._fail("a message starts inside another")
            if last:
                return payload
            self._message = bytearray(payload)
        else:
            self._fail(f"unknown frame type {opcode}")
        if not last:
            return None
        assert self._message is not None
        whole, self._message = bytes(self._message), None
        return whole

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == _PING:
            self._queue(_PONG, payload)
        elif opcode == _CLOSE:
            if len(payload) == 1:
                self._fail("a close frame has an incomplete code")
            code = int.from_bytes(payload[:2], "big") if payload else 1005
            self.closing = (code, payload[2:].decode("utf-8", "replace"))
            self.close(NORMAL)
        elif opcode != _PONG:
            self._fail(f"unknown frame type {opcode}")

    def _queue(self, opcode: int, payload: bytes) -> None:
        if self._said_goodbye:
            return
        length = len(payload)
        self.unsent.append(0x80 | opcode)
        if length < 126:
            self.unsent.append(0x80 | length)
        elif length < 1 << 16:
            self.unsent += b"\xfe" + length.to_bytes(2, "big")
        else:
            self.unsent += b"\xff" + length.to_bytes(8, "big")
        key = os.urandom(4)
        self.unsent += key
        self.unsent += masked(payload, key)

    def _fail(self, words: str, code: int = PROTOCOL_WRONG) -> None:
        self.close(code, words)
        raise ProtocolError(f"the server broke the websocket protocol: {words}")


def masked(payload: bytes, key: bytes) -> bytes:
    """Each byte combined with its byte of the key; as one long number, because a loop takes a hundred times longer."""
    length = len(payload)
    repeated = (key * (length // 4 + 1))[:length]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(length, "big")


class WebSocket:
    """A websocket on a connected socket, owned by one thread. Nothing here waits; `poll` on `fileno` for `events`."""

    def __init__(self, sock: socket.socket, protocol: str, largest: int = LARGEST) -> None:
        self.protocol = protocol
        self.ended = False
        """Nothing more will come: the server said goodbye, or the connection is gone."""

        self._socket = sock
        self._frames = Frames(largest)
        self._socket.setblocking(False)

    @property
    def closing(self) -> tuple[int, str] | None:
        """Code and words of the server's goodbye; None: it has not said any."""
        return self._frames.closing

    @property
    def unsent(self) -> int:
        """Bytes that wait to be sent."""
        return len(self._frames.unsent)

    def fileno(self) -> int:
        """For `poll`."""
        return self._socket.fileno()

    def events(self, reading: bool = True) -> int:
        """What to wait for."""
        return (select.POLLIN if reading else 0) | (select.POLLOUT if self.unsent else 0)

    def waiting(self) -> bool:
        """Whether bytes have come that `poll` does not know of, because TLS has read them already."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def send(self, payload: bytes) -> None:
        """Queues a message; `flush` sends it."""
        self._frames.send(payload)

    def ping(self) -> None:
        """Queues a sign of life."""
        self._frames.ping()

    def flush(self) -> None:
        """Sends as much as goes at once; nothing, once the server takes nothing any more."""
        unsent = self._frames.unsent
        while unsent:
            try:
                count = self._socket.send(unsent[:_RECORD])
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return
            except OSError:  # what the server sent before may still be there to read, and reading tells the reason
                self._frames.mute()
                return
            del unsent[:count]

    def receive(self) -> list[bytes]:
        """The messages that have come, at most one block's worth. Sets `ended`. OSError: the connection was cut."""
        try:
            data = self._socket.recv(BLOCK)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return []
        except ssl.SSLEOFError:
            data = b""
        if not data:
            self.ended = True
            return []
        messages = self._frames.receive(data)
        self.ended = self.closing is not None
        return messages

    def close(self, within: float = 2.0) -> None:
        """Says goodbye and waits a little for the answer, so that what was sent before is not lost with a reset."""
        deadline = time.monotonic() + within
        try:
            self._frames.close()
            poll = select.poll()
            self.flush()
            while not self.ended or self.unsent:
                poll.register(self.fileno(), self.events(reading=not self.ended))
                left = deadline - time.monotonic()
                if left <= 0 or not (self.waiting() or poll.poll(left * 1000)):
                    break
                if not self.ended:
                    self.receive()
                self.flush()
        except (OSError, ProtocolError):
            pass
        finally:
            self.abort()

    def abort(self) -> None:
        """Closes the socket at once."""
        self._socket.close()


def upgrade(
    sock: socket.socket, host: str, target: str, headers: Iterable[tuple[str, str]], protocols: Sequence[str]
) -> WebSocket:
    """Asks for a websocket on a connected socket, which it then owns. NotUpgraded: the server answered otherwise."""
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [
        f"GET {target} HTTP/1.1",
        f"Host: {host}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {key}",
        f"Sec-WebSocket-Protocol: {', '.join(protocols)}",
        *(f"{name}: {value}" for name, value in headers),
    ]
    sock.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
    answer = http.client.HTTPResponse(_Unhurried(sock), method="GET")  # type: ignore[arg-type]
    try:
        answer.begin()
        if answer.status != 101:
            raise NotUpgraded(answer.status, answer.read(1 << 20))
    finally:
        answer.close()  # or the socket would stay open when it is closed
    expected = base64.b64encode(hashlib.sha1((key + _IDENTITY).encode(), usedforsecurity=False).digest()).decode()
    if answer.getheader("Sec-WebSocket-Accept", "").strip() != expected:
        raise ProtocolError("the server broke the websocket protocol: it answered another request")
    protocol = answer.getheader("Sec-WebSocket-Protocol", "").strip()
    if protocol not in protocols:
        raise ProtocolError(f"the server chose the protocol {protocol!r}; petctl offered {', '.join(protocols)}")
    return WebSocket(sock, protocol)


class _Unhurried:
    """A socket whose reader takes not one byte more than it is asked for: what follows the headers is not HTTP."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def makefile(self, mode: str) -> IO[Any]:
        """What HTTPResponse reads from."""
        return self._socket.makefile("rb", buffering=1)
