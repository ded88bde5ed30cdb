"""Bytes on their way to a store: in memory, or a slice of a file that never comes into memory as a whole."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
from typing import Any, Protocol

from petctl.errors import Damaged

_CHUNK = 1 << 20


class Body(Protocol):
    """What a request carries."""

    length: int

    def md5(self) -> bytes:
        """Its MD5, which the store checks what it received against."""
        ...

    def send(self, connection: socket.socket) -> None:
        """Writes all of it to a connection."""
        ...

    def read(self) -> Any:
        """All of it in memory."""
        ...


class Held:
    """A body in memory."""

    def __init__(self, data: Any) -> None:
        self._data = memoryview(data).cast("B")
        self.length = len(self._data)

    def md5(self) -> bytes:
        return hashlib.md5(self._data, usedforsecurity=False).digest()

    def send(self, connection: socket.socket) -> None:
        if self.length:
            connection.sendall(self._data)

    def read(self) -> Any:
        return self._data


class FileSlice:
    """A part of an open file; the kernel moves it to the socket."""

    def __init__(self, descriptor: int, offset: int, length: int, name: str) -> None:
        self._descriptor, self._offset, self._name = descriptor, offset, name
        self.length = length

    def md5(self) -> bytes:
        digest = hashlib.md5(usedforsecurity=False)
        offset, left = self._offset, self.length
        buffer = memoryview(bytearray(min(_CHUNK, max(left, 1))))
        while left:
            count = os.preadv(self._descriptor, [buffer[: min(left, _CHUNK)]], offset)
            if not count:
                raise self._shorter()
            digest.update(buffer[:count])
            offset, left = offset + count, left - count
        return digest.digest()

    def send(self, connection: socket.socket) -> None:
        if not self.length:
            return
        with open(self._descriptor, "rb", closefd=False) as file:
            file.seek(self._offset)
            sent = connection.sendfile(file, self._offset, self.length)
        if sent != self.length:
            raise self._shorter()

    def read(self) -> Any:
        data = os.pread(self._descriptor, self.length, self._offset)
        if len(data) != self.length:
            raise self._shorter()
        return data

    def _shorter(self) -> Damaged:
        return Damaged(f"{self._name} became shorter while it was sent; run the same command again")


def base64_text(digest: bytes) -> str:
    """A digest as HTTP headers carry it."""
    return base64.b64encode(digest).decode()
