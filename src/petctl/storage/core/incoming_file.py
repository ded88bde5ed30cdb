"""A file on its way in: written piece by piece, and checked against what the store says of its checksum."""

from __future__ import annotations

import re
from typing import BinaryIO, List, Mapping, Tuple

from petctl.errors import Damaged
from petctl.storage.core.body import local_error
from petctl.storage.core.checksums import MD5, Running, Sum, whole_md5
from petctl.storage.core.http_client import Head
from petctl.storage.core.parts import CHECKSUM_NAME, PART_SIZE_NAME

_MD5 = re.compile(r"[0-9a-f]{32}")
_MD5_OF_PARTS = re.compile(r"[0-9a-f]{32}-\d+")


class Incoming:
    """A file on its way in. What the store says of its checksum is compared with what was written."""

    def __init__(self, file: BinaryIO, size: int, name: str) -> None:
        self._file, self._size, self._name = file, size, name
        self._restart()

    def _restart(self) -> None:
        self.received = 0
        self._expected = ""
        self._part = 0  # bytes; where the checksum is one of parts
        self._running = Running(MD5)
        self._parts: List[Sum] = []

    def take(self, head: Head, block: memoryview) -> None:
        """A piece of an answer; the first one, which is empty, of the whole or (206) of the rest."""
        if block:
            self.write(block)
            return
        if head.status != 206 and self.received:
            self._file.seek(0)
            self._file.truncate()
            self._restart()
        if not self.received:
            self._expected, self._part = _told(head.headers)

    def write(self, block: memoryview) -> None:
        """Appends a piece."""
        if self.received + len(block) > self._size:
            raise Damaged(f"{self._name} changed while it was read: it became longer")
        try:
            self._file.write(block)
        except OSError as error:
            raise local_error(error, self._name) from None
        while self._part and self.received % self._part + len(block) >= self._part:
            cut = self._part - self.received % self._part
            self._running.update(block[:cut])
            self._parts.append(self._running.sum())
            self._running = Running(MD5)
            self.received += cut
            block = block[cut:]
        self._running.update(block)
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
            last = [self._running.sum()] if self.received % self._part or not self._parts else []
            found = whole_md5([*self._parts, *last])
        else:
            found = self._running.sum().md5.hex()
        if found != self._expected:
            raise Damaged(f"{where}: the received data does not match its checksum {self._expected}")


def _told(headers: Mapping[str, str]) -> Tuple[str, int]:
    """Checksum and size of its parts (0: of the whole), from an answer's headers; empty where the store tells none."""
    noted = headers.get(f"x-ms-meta-{CHECKSUM_NAME}") or headers.get(f"x-amz-meta-{CHECKSUM_NAME}") or ""
    size = headers.get(f"x-ms-meta-{PART_SIZE_NAME}") or headers.get(f"x-amz-meta-{PART_SIZE_NAME}") or ""
    # Where S3 encrypts with keys of its key service, ETags are no checksums; Azure's never are.
    encryption = headers.get("x-amz-server-side-encryption", "AES256")
    if not noted and "x-ms-request-id" not in headers and encryption == "AES256":
        noted = headers.get("etag", "").strip('"')
    if _MD5.fullmatch(noted):
        return noted, 0
    return (noted, int(size)) if _MD5_OF_PARTS.fullmatch(noted) and size.isdigit() and int(size) > 0 else ("", 0)
