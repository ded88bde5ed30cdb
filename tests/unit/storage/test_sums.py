"""Checksums of parts tell those of the whole."""

from __future__ import annotations

import hashlib
import random
import zlib

import pytest

from petctl.storage.core.checksums import (
    CRC32,
    MD5,
    Kinds,
    Known,
    Running,
    Sum,
    crc32_text,
    parse_crc32,
    whole_crc32,
    whole_md5,
)


def parts(seed: int) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(chance.choice((1, 2, 255, 4096, 5000))) for _ in range(chance.randrange(1, 9))]


@pytest.mark.parametrize("seed", range(20))
def test_the_crc_of_the_whole_comes_from_those_of_its_parts(seed: int) -> None:
    pieces = parts(seed)
    sums = [Sum(crc32=zlib.crc32(piece)) for piece in pieces]
    assert whole_crc32(sums, map(len, pieces)) == zlib.crc32(b"".join(pieces))


def test_what_was_asked_for_is_summed() -> None:
    for kinds in (MD5, CRC32, Kinds(), Kinds(md5=True, crc32=True)):
        running = Running(kinds)
        running.update(b"some ")
        running.update(memoryview(b"bytes"))
        whole = b"some bytes"
        expected = Sum(hashlib.md5(whole).digest() if kinds.md5 else b"", zlib.crc32(whole) if kinds.crc32 else None)
        assert running.sum() == expected


def test_what_a_store_says_is_held_against_what_arrived() -> None:
    pieces = parts(3)
    lengths = [len(piece) for piece in pieces]
    sums = [Sum(hashlib.md5(piece).digest(), zlib.crc32(piece)) for piece in pieces]
    right, wrong = Known(whole_md5(sums), whole_crc32(sums, lengths)), Known(f"{'0' * 32}-{len(pieces)}")
    assert right.kinds == CRC32  # the cheaper one is enough
    assert wrong.kinds == MD5
    assert not right.contradicts(sums, lengths)
    assert wrong.contradicts(sums, lengths)
    assert Known(crc32=5).contradicts(sums, lengths)
    assert not Known().contradicts(sums, lengths)
    assert Known(right.md5, 5).contradicts(sums, lengths)


def test_crcs_as_headers_carry_them() -> None:
    assert crc32_text(zlib.crc32(b"x" * 1000)) == "O0HJ5g=="
    assert parse_crc32("O0HJ5g==") == zlib.crc32(b"x" * 1000)
    for text in ("", "-", "O0HJ5g==-3", "abcd", "ü"):
        assert parse_crc32(text) is None
