"""Bytes between a file of this machine and a store: read in blocks on the way out, checked on the way in.

Errors of the file are PetctlErrors here, so that nobody takes a full disk for a broken connection.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from typing import BinaryIO, Iterator, List, Mapping, Sequence, Tuple, Union

from petctl.errors import Damaged, NoRoom, PetctlError, is_no_room
from petctl.storage.core.exchange import BLOCK

CHECKSUM, PART_SIZE = "petctlmd5", "petctlpart"  # what petctl notes beside objects; `petctl data` has the same names
_MD5 = re.compile(r"[0-9a-f]{32}")
_MD5_OF_PARTS = re.compile(r"[0-9a-f]{32}-\d+")


class Slice:
    """A stretch of an open file; can be read again and again."""

    def __init__(self, descriptor: int, offset: int, length: int, name: str) -> None:
        self._descriptor, self._offset, self._name = descriptor, offset, name
        self.length = length

    def __iter__(self) -> Iterator[bytes]:
        offset, left = self._offset, self.length
        while left:
            try:
                block = os.pread(self._descriptor, min(left, BLOCK), offset)
            except OSError as error:
                raise local_error(error, self._name) from None
            if not block:
                raise Damaged(f"{self._name} became shorter while it was uploaded")
            yield block
            offset, left = offset + len(block), left - len(block)

    def part(self, start: int, length: int) -> Slice:
        """A stretch of this one."""
        return Slice(self._descriptor, self._offset + start, length, self._name)

    def md5(self) -> bytes:
        digest = hashlib.md5(usedforsecurity=False)
        for block in self:
            digest.update(block)
        return digest.digest()


class Held:
    """Bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.length = len(data)

    def __iter__(self) -> Iterator[bytes]:
        if self._data:
            yield self._data

    def md5(self) -> bytes:
        return hashlib.md5(self._data, usedforsecurity=False).digest()


Body = Union[Slice, Held]


@contextlib.contextmanager
def opened(path: str, length: int) -> Iterator[Slice]:
    """The first `length` bytes of a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise local_error(error, path) from None
    try:
        yield Slice(descriptor, 0, length, path)
    finally:
        os.close(descriptor)


class Incoming:
    """A file on its way in. What the store says of its checksum is compared with what was written."""

    def __init__(self, file: BinaryIO, size: int, name: str) -> None:
        self._file, self._size, self._name = file, size, name
        self._restart()

    def _restart(self) -> None:
        self.received = 0
        self._expected = ""
        self._part = 0  # bytes; where the checksum is one of parts
        self._digest = hashlib.md5(usedforsecurity=False)
        self._parts: List[bytes] = []

    def take(self, status: int, headers: Mapping[str, str], block: bytes) -> None:
        """A block of an answer; the first one, which is empty, of the whole or (206) of the rest."""
        if not block:
            if status != 206 and self.received:
                self._file.seek(0)
                self._file.truncate()
                self._restart()
            if not self.received:
                self._expected, self._part = _told(headers)
            return
        self.write(block)

    def write(self, block: bytes) -> None:
        """Appends a block."""
        if self.received + len(block) > self._size:
            raise Damaged(f"{self._name} changed while it was read: it became longer")
        try:
            self._file.write(block)
        except OSError as error:
            raise local_error(error, self._name) from None
        while self._part and self.received % self._part + len(block) >= self._part:
            cut = self._part - self.received % self._part
            self._digest.update(block[:cut])
            self._parts.append(self._digest.digest())
            self._digest = hashlib.md5(usedforsecurity=False)
            self.received += cut
            block = block[cut:]
        self._digest.update(block)
        self.received += len(block)

    def verify(self, where: str) -> None:
        """Damaged unless all of it came, and came as it was sent."""
        try:
            self._file.flush()
        except OSError as error:
            raise local_error(error, self._name) from None
        if self.received != self._size:
            raise Damaged(f"{where} changed while it was read: got {self.received} bytes instead of {self._size}")
        if not self._expected:
            return
        if self._part:
            last = [self._digest.digest()] if self.received % self._part or not self._parts else []
            found = checksum_of_parts([*self._parts, *last])
        else:
            found = self._digest.hexdigest()
        if found != self._expected:
            raise Damaged(f"{where}: the received data does not match its checksum {self._expected}")


def checksum_of_parts(parts: Sequence[bytes]) -> str:
    """The checksum of an object from its parts' MD5s, as S3 writes it into the ETag."""
    return f"{hashlib.md5(b''.join(parts), usedforsecurity=False).hexdigest()}-{len(parts)}"


def _told(headers: Mapping[str, str]) -> Tuple[str, int]:
    """Checksum and size of its parts (0: of the whole), from an answer's headers; empty where the store tells none."""
    noted = headers.get(f"x-ms-meta-{CHECKSUM}") or headers.get(f"x-amz-meta-{CHECKSUM}") or ""
    size = headers.get(f"x-ms-meta-{PART_SIZE}") or headers.get(f"x-amz-meta-{PART_SIZE}") or ""
    # Where S3 encrypts with keys of its key service, ETags are no checksums; Azure's never are.
    encryption = headers.get("x-amz-server-side-encryption", "AES256")
    if not noted and "x-ms-request-id" not in headers and encryption == "AES256":
        noted = headers.get("etag", "").strip('"')
    if _MD5.fullmatch(noted):
        return noted, 0
    return (noted, int(size)) if _MD5_OF_PARTS.fullmatch(noted) and size.isdigit() and int(size) > 0 else ("", 0)


def local_error(error: OSError, name: str) -> PetctlError:
    """What a file system said, for people."""
    if isinstance(error, PetctlError):
        return error
    if is_no_room(error):
        return NoRoom(f"the disk is full: no space for {name}")
    return PetctlError(f"{name}: {error.strerror or error}")
