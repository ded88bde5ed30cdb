"""Very many small requests from one thread, over as many connections as keep it busy.

With a thread for each request, handing over from thread to thread costs more than the small file does. Here goes what
goes well. Whatever does not (a refusal, a cut connection, an answer of an unusual form) is given back to be done by
those who can wait, repeat and explain: `signed_requests.py`. Knows nothing of stores and signatures.
"""

from __future__ import annotations

import re
import selectors
import socket
import ssl
import threading
from collections import deque
from functools import partial
from typing import Callable

from petctl.storage.core.http_client import ConnectionCut, Head

LARGEST = 1 << 18
"""Bytes of a body for which this is worth it."""
_AT_ONCE = 64
_MOST = 128
_LONG = 0.02
"""Seconds without any answer after which more requests at the same time will help: the other end is far away."""
_SILENCE = 60.0
_ROOM = 1 << 16
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

Done = Callable[[Head, memoryview], None]
Undone = Callable[[], None]


class Lanes:
    """Connections to one server, all driven by whoever calls: not for several threads at once."""

    def __init__(self, dial: Callable[[], socket.socket]) -> None:
        """`dial` connects, in a thread of its own."""
        self._dial = dial
        self._selector = selectors.DefaultSelector()
        self._free: list[_Lane] = []
        self._busy: set[_Lane] = set()
        self._ready: deque[tuple[selectors.SelectorKey, int]] = deque()
        self._answers: deque[Callable[[], None]] = deque()
        self._dialled: deque[socket.socket | None] = deque()  # None: nobody answered
        self._bell, self._ringer = socket.socketpair()
        self._selector.register(self._bell, selectors.EVENT_READ, self._take_in)
        self._count = self._coming = 0

    def hand(self, request: bytes, done: Done, undone: Undone) -> None:
        """Sends a request as soon as a connection is free; `done` or `undone` follows, from this or a later call."""
        if not self._free and self._count < _AT_ONCE:
            self._open(1)
        while not self._free and (self._busy or self._coming):
            self._turn(growing=self._count < _MOST)
        if self._free:
            lane = self._free.pop()
            self._busy.add(lane)
            lane.begin(request, done, undone)
        else:
            undone()
        self._deliver()  # only now: the server has something to do meanwhile

    def settle(self) -> None:
        """Waits for the answers to everything that was handed in."""
        while self._busy:
            self._turn(growing=False)
            self._deliver()

    def close(self) -> None:
        """Lets go of all connections."""
        for lane in (*self._free, *self._busy):
            lane.close()
        self._ringer.close()
        self._bell.close()
        self._selector.close()
        while self._dialled:  # they came too late; later ones find nobody to ring for
            connection = self._dialled.popleft()
            if connection is not None:
                connection.close()

    def _turn(self, growing: bool) -> None:
        """Looks at one connection that has something; where none has for long, more of them, or the end of all."""
        if not self._ready:
            self._ready.extend(self._selector.select(_LONG if growing else _SILENCE))
        if self._ready:
            key, mask = self._ready.popleft()
            key.data(mask)
        elif growing:
            self._open(min(max(self._count // 2, 1), _MOST - self._count))
        else:
            for lane in tuple(self._busy):
                lane.give_up()

    def _deliver(self) -> None:
        while self._answers:
            self._answers.popleft()()

    def _open(self, count: int) -> None:
        for _ in range(count):
            self._count += 1
            self._coming += 1
            threading.Thread(target=self._dial_one, name="dial", daemon=True).start()

    def _dial_one(self) -> None:
        try:
            connection: socket.socket | None = self._dial()
        except OSError:
            connection = None
        self._dialled.append(connection)
        try:
            self._ringer.send(b"!")
        except OSError:  # nobody wants it any more
            if connection is not None:
                connection.close()

    def _take_in(self, mask: int) -> None:
        self._bell.recv(_ROOM)
        while self._dialled:
            connection = self._dialled.popleft()
            self._coming -= 1
            if connection is None:
                self._count -= 1
                continue
            self._free.append(_Lane(connection, self._selector, self._ended))

    def _ended(self, lane: _Lane, usable: bool, then: Callable[[], None] | None) -> None:
        """An answer is complete, or a connection gone; what follows from that comes after the next request."""
        self._busy.discard(lane)
        if then is not None:
            self._answers.append(then)
        if usable:
            self._free.append(lane)
            return
        if lane in self._free:
            self._free.remove(lane)
        self._count -= 1
        lane.close()


class _Lane:
    """One connection with at most one request on it."""

    def __init__(
        self,
        connection: socket.socket,
        selector: selectors.BaseSelector,
        ended: Callable[[_Lane, bool, Callable[[], None] | None], None],
    ) -> None:
        connection.setblocking(False)
        self._socket, self._selector, self._ended = connection, selector, ended
        self._request: tuple[Done, Undone] | None = None
        self._unsent = memoryview(b"")
        self._writing = False
        self._received: bytes | bytearray = b""
        self._head: Head | None = None
        self._begin = self._end = 0  # of the answer's body, in what was received
        selector.register(connection, selectors.EVENT_READ, self._ready)

    def begin(self, request: bytes, done: Done, undone: Undone) -> None:
        """Sends what can be sent at once."""
        self._request = done, undone
        self._unsent = memoryview(request)
        self._send()

    def give_up(self) -> None:
        """No answer, or none that can be used here."""
        request, self._request = self._request, None
        self._ended(self, False, request[1] if request else None)

    def close(self) -> None:
        """Lets go of the connection."""
        self._selector.unregister(self._socket)
        self._socket.close()

    def _ready(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._send()
        if mask & selectors.EVENT_READ:
            self._receive()

    def _send(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except _NOT_NOW:
            sent = 0
        except OSError:
            sent = len(self._unsent)  # reading will tell what became of it
        self._unsent = self._unsent[sent:]
        writing = bool(self._unsent)
        if writing != self._writing:
            self._writing = writing
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0)
            self._selector.modify(self._socket, wanted, self._ready)

    def _receive(self) -> None:
        while True:
            try:
                data = self._socket.recv(_ROOM)
            except _NOT_NOW:
                return
            except OSError:
                data = b""
            if isinstance(self._received, bytes) and self._received:
                self._received = bytearray(self._received)  # an answer in many pieces grows in place
            self._received += data  # nothing is copied where all of it comes at once
            if not data or self._request is None or not self._understood():
                self.give_up()
                return
            if self._head is not None and len(self._received) >= self._end:
                self._finish(self._head, self._request[0])
                return

    def _understood(self) -> bool:
        """Whether what has come so far is, or may become, an answer as it should be."""
        if self._head is None:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return len(self._received) < _ROOM
            try:
                self._head = Head(self._received[:end].decode("latin-1"))
            except ConnectionCut:
                return False
            length = self._head.get("content-length")
            if self._head.status >= 300 or not re.fullmatch("[0-9]{1,18}", length) or int(length) > LARGEST:
                return False
            self._begin = end + 4
            self._end = self._begin + int(length)
        return True

    def _finish(self, head: Head, done: Done) -> None:
        body = memoryview(self._received)[self._begin : self._end]
        tidy = len(self._received) == self._end and not self._unsent and head.get("connection").lower() != "close"
        self._request = self._head = None
        self._received = b""
        self._ended(self, tidy, partial(done, head, body))
