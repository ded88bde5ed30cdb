"""Checksums of what is moved. MD5 is what every store knows; CRC-32 costs a fifth of it, and S3 checks and keeps it.

A whole object is judged by its parts: their MD5s hashed once more, as S3 writes it into the ETag (`whole_md5`), or
their CRC-32s joined to that of all their bytes (`whole_crc32`). Pure arithmetic: no files, no network.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from dataclasses import dataclass
from typing import Any, Iterable, NamedTuple, Sequence

_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31
"""The polynomial 1: bits are in reverse order, as everywhere with CRC-32."""


class Kinds(NamedTuple):
    """Which checksums are wanted."""

    md5: bool = False
    crc32: bool = False

    def and_also(self, other: Kinds) -> Kinds:
        """Those that either wants."""
        return Kinds(self.md5 or other.md5, self.crc32 or other.crc32)


MD5 = Kinds(md5=True)
CRC32 = Kinds(crc32=True)


class Sum(NamedTuple):
    """The checksums of some bytes, as far as they were wanted."""

    md5: bytes = b""
    crc32: int | None = None


@dataclass(frozen=True)
class Known:
    """What a store says about a whole object: the MD5 of its parts' MD5s (HEX-COUNT), its CRC-32, both or nothing."""

    md5: str = ""
    crc32: int | None = None

    @property
    def kinds(self) -> Kinds:
        """The cheapest that can be compared with this."""
        return CRC32 if self.crc32 is not None else MD5 if self.md5 else Kinds()

    def contradicts(self, parts: Sequence[Sum], lengths: Iterable[int]) -> bool:
        """Whether parts with these checksums cannot be that object."""
        if self.crc32 is not None:
            return self.crc32 != whole_crc32(parts, lengths)
        return bool(self.md5) and self.md5 != whole_md5(parts)


class Running:
    """Takes bytes as they come."""

    def __init__(self, kinds: Kinds) -> None:
        self._md5 = hashlib.md5(usedforsecurity=False) if kinds.md5 else None
        self._crc32 = 0 if kinds.crc32 else None

    def update(self, data: Any) -> None:
        """More bytes."""
        if self._md5 is not None:
            self._md5.update(data)
        if self._crc32 is not None:
            self._crc32 = zlib.crc32(data, self._crc32)

    def sum(self) -> Sum:
        """The checksums of all so far."""
        return Sum(b"" if self._md5 is None else self._md5.digest(), self._crc32)


def whole_md5(parts: Sequence[Sum]) -> str:
    """The checksum of an object from its parts' MD5s, as S3 writes it into the ETag."""
    joined = b"".join(part.md5 for part in parts)
    return f"{hashlib.md5(joined, usedforsecurity=False).hexdigest()}-{len(parts)}"


def whole_crc32(parts: Sequence[Sum], lengths: Iterable[int]) -> int:
    """The CRC-32 of all bytes, from those of the parts."""
    whole = 0
    shifts: dict[int, int] = {}
    for part, length in zip(parts, lengths):
        if length not in shifts:
            shifts[length] = _shift(length)
        assert part.crc32 is not None
        whole = _product(shifts[length], whole) ^ part.crc32
    return whole


def base64_text(digest: bytes) -> str:
    """A digest as HTTP headers carry it."""
    return base64.b64encode(digest).decode()


def crc32_text(value: int) -> str:
    """A CRC-32 as S3's headers carry it."""
    return base64_text(value.to_bytes(4, "big"))


def parse_crc32(text: str) -> int | None:
    """The CRC-32 in S3's header; None for what is none, such as a checksum of checksums (VALUE-COUNT)."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return int.from_bytes(data, "big") if len(data) == 4 else None


def _shift(length: int) -> int:
    """x to the power of 8 * length: what so many more bytes do to a CRC."""
    result, power, left = _ONE, _ONE >> 8, length
    while left:
        if left & 1:
            result = _product(result, power)
        power = _product(power, power)
        left >>= 1
    return result


def _product(a: int, b: int) -> int:
    """Of two polynomials over GF(2), modulo that of the CRC."""
    product, bit = 0, _ONE
    while a and bit:
        if a & bit:
            product ^= b
            a ^= bit
        bit >>= 1
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1
    return product
