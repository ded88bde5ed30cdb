"""Bytes on their way to a store: in memory, or a slice of a file that never comes into memory as a whole."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from typing import Any, Protocol

from petctl.errors import Damaged
from petctl.storage.transfer.checksums import Kinds, Running, Sum

PIECE = 1 << 19
"""What is read, summed and written at a time: it stays in the processor's cache in between."""
_SMALL = 1 << 16
_threads = threading.local()


class Body(Protocol):
    """What a request carries."""

    length: int

    def sums(self, kinds: Kinds) -> Sum:
        """Its checksums, which the store checks what it received against."""
        ...

    def send(self, head: bytes, connection: socket.socket) -> None:
        """Writes the request's head and all of it to a connection."""
        ...

    def read(self) -> Any:
        """All of it in memory."""
        ...


class Held:
    """A body in memory."""

    def __init__(self, data: Any) -> None:
        self._data = memoryview(data).cast("B")
        self.length = len(self._data)

    def sums(self, kinds: Kinds) -> Sum:
        running = Running(kinds)
        running.update(self._data)
        return running.sum()

    def send(self, head: bytes, connection: socket.socket) -> None:
        if self.length <= _SMALL:
            connection.sendall(b"".join((head, self._data)))  # one packet, one look of the server
        else:
            connection.sendall(head)
            connection.sendall(self._data)

    def read(self) -> Any:
        return self._data


class FileSlice:
    """A part of an open file; the kernel moves it to the socket."""

    def __init__(self, descriptor: int, offset: int, length: int, name: str) -> None:
        self._descriptor, self._offset, self._name = descriptor, offset, name
        self.length = length

    def sums(self, kinds: Kinds) -> Sum:
        running = Running(kinds)
        offset, left = self._offset, self.length
        buffer = own_buffer()
        while left:
            count = os.preadv(self._descriptor, [buffer[: min(left, PIECE)]], offset)
            if not count:
                raise self._shorter()
            running.update(buffer[:count])
            offset, left = offset + count, left - count
        return running.sum()

    def send(self, head: bytes, connection: socket.socket) -> None:
        connection.sendall(head)
        offset, end = self._offset, self._offset + self.length
        encrypted = isinstance(connection, ssl.SSLSocket)
        while offset < end:
            if encrypted:
                count = os.preadv(self._descriptor, [own_buffer()[: end - offset]], offset)
                connection.sendall(own_buffer()[:count])
            else:
                count = os.sendfile(connection.fileno(), self._descriptor, offset, end - offset)
            if not count:
                raise self._shorter()
            offset += count

    def read(self) -> Any:
        data = os.pread(self._descriptor, self.length, self._offset)
        if len(data) != self.length:
            raise self._shorter()
        return data

    def _shorter(self) -> Damaged:
        return Damaged(f"{self._name} became shorter while it was uploaded; run the same command again")


def own_buffer() -> memoryview:
    """This thread's buffer of one piece, the same each time: fresh memory costs more than the bytes in it."""
    found: memoryview | None = getattr(_threads, "buffer", None)
    if found is None:
        found = _threads.buffer = memoryview(bytearray(PIECE))
    return found
