"""Bytes on their way to a store: in memory, or a slice of a file that never comes into memory as a whole.

What goes wrong with a file is a PetctlError here, so that nobody takes a full disk for a broken connection.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import threading
from typing import Any, Callable, Iterator, Optional, Protocol

from petctl.errors import Damaged, NoRoom, PetctlError, is_no_room
from petctl.storage.core.checksums import Kinds, Running, Sum

PIECE = 1 << 19
"""What is read, summed and written at a time: it stays in the processor's cache in between."""
_AT_ONCE = 8 << 20  # bytes that the kernel moves before anybody hears of it
_SMALL = 1 << 16
_BY_HAND = (errno.EINVAL, errno.ENOSYS, errno.EIO, errno.EOPNOTSUPP)  # of files that the kernel cannot send by itself
_threads = threading.local()


def unheard(count: int) -> None:
    """For whoever does not count."""


class Body(Protocol):
    """What a request carries."""

    length: int

    def pieces(self) -> Iterator[memoryview]:
        """All of it; each is good only until the next one is asked for."""
        ...

    def sums(self, kinds: Kinds) -> Sum:
        """Its checksums, which the store checks what it received against."""
        ...

    def send(self, head: bytes, connection: socket.socket, moved: Callable[[int], None]) -> None:
        """Writes the request's head and all of it to a connection; `moved` hears of its bytes as they go."""
        ...

    def read(self) -> Any:
        """All of it in memory."""
        ...


class Held:
    """A body in memory."""

    def __init__(self, data: Any) -> None:
        self._data = memoryview(data).cast("B")
        self.length = len(self._data)

    def pieces(self) -> Iterator[memoryview]:
        if self.length:
            yield self._data

    def sums(self, kinds: Kinds) -> Sum:
        running = Running(kinds)
        running.update(self._data)
        return running.sum()

    def send(self, head: bytes, connection: socket.socket, moved: Callable[[int], None]) -> None:
        if self.length <= _SMALL:
            connection.sendall(b"".join((head, self._data)))  # one packet, one look of the server
        else:
            connection.sendall(head)
            connection.sendall(self._data)
        moved(self.length)

    def read(self) -> Any:
        return self._data


NOTHING = Held(b"")


class FileSlice:
    """A part of an open file; the kernel moves it to the socket. Can be sent again and again."""

    def __init__(self, descriptor: int, offset: int, length: int, name: str) -> None:
        self._descriptor, self._offset, self._name = descriptor, offset, name
        self.length = length

    def part(self, start: int, length: int) -> FileSlice:
        """A part of this one."""
        return FileSlice(self._descriptor, self._offset + start, length, self._name)

    def pieces(self, start: int = 0) -> Iterator[memoryview]:
        """All of it, or what is behind `start`."""
        while start < self.length:
            piece = own_buffer()[: self.length - start]
            try:
                count = os.preadv(self._descriptor, [piece], self._offset + start)
            except OSError as error:
                raise local_error(error, self._name) from None
            if not count:
                raise self._shorter()
            yield piece[:count]
            start += count

    def sums(self, kinds: Kinds) -> Sum:
        running = Running(kinds)
        for piece in self.pieces():
            running.update(piece)
        return running.sum()

    def send(self, head: bytes, connection: socket.socket, moved: Callable[[int], None]) -> None:
        connection.sendall(head)
        done, by_hand = 0, isinstance(connection, ssl.SSLSocket)
        while done < self.length and not by_hand:
            at_once = min(self.length - done, _AT_ONCE)
            try:
                count = os.sendfile(connection.fileno(), self._descriptor, self._offset + done, at_once)
            except OSError as error:
                if error.errno not in _BY_HAND:
                    raise
                by_hand = True
                continue
            if not count:
                raise self._shorter()
            moved(count)
            done += count
        for piece in self.pieces(done):
            connection.sendall(piece)
            moved(len(piece))

    def read(self) -> Any:
        data = os.pread(self._descriptor, self.length, self._offset)
        if len(data) != self.length:
            raise self._shorter()
        return data

    def _shorter(self) -> Damaged:
        return Damaged(f"{self._name} became shorter while it was uploaded; run the same command again")


@contextlib.contextmanager
def opened(path: str, length: int) -> Iterator[FileSlice]:
    """The first `length` bytes of a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise local_error(error, path) from None
    try:
        yield FileSlice(descriptor, 0, length, path)
    finally:
        os.close(descriptor)


def local_error(error: OSError, name: str) -> PetctlError:
    """What a file system said, for people."""
    if isinstance(error, PetctlError):
        return error
    if is_no_room(error):
        return NoRoom(f"the disk is full: no space for {name}")
    return PetctlError(f"{name}: {error.strerror or error}")


def own_buffer() -> memoryview:
    """This thread's buffer of one piece, the same each time: fresh memory costs more than the bytes in it."""
    found: Optional[memoryview] = getattr(_threads, "buffer", None)
    if found is None:
        found = _threads.buffer = memoryview(bytearray(PIECE))
    return found
