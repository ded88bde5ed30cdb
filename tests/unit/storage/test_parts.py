"""Which checksums the parts of an object are sent with: those that the store says it knows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from petctl.errors import Damaged, NoSuchPlace, StoreError
from petctl.storage.core.body import Held
from petctl.storage.core.checksums import CRC32, MD5, Kinds, crc32_text, whole_crc32
from petctl.storage.core.parts import MIB, Records, S3Parts, whole_headers

PARTS = [bytes(8 * MIB), b"end"]
SIZE = sum(map(len, PARTS))


class Store:
    """S3's calls for parts: one that knows CRC-32, one that ignores it, or one that refuses it."""

    def __init__(self, temper: str, own_headers: bool = True) -> None:
        self.temper, self.own_headers = temper, own_headers
        self.joined = ""
        self.seen: list[Mapping[str, str]] = []

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> Any:
        said = dict(headers or {})
        if "uploads" in query:
            assert self.own_headers or not said
            asked = {name: value for name, value in said.items() if name.startswith("x-amz-checksum")}
            if asked and self.temper == "refuses":
                raise StoreError("the store refused (400 InvalidArgument)")
            if asked and self.temper == "missing":
                raise NoSuchPlace("no such bucket")
            return answer("<R><UploadId>u</UploadId></R>", asked if self.temper == "knows" else {})
        if method == "PUT":
            self.seen.append(said)
            return answer("", {"etag": f'"{body.sums(MD5).md5.hex()}"'})
        return answer(f"<R><ChecksumCRC32>{self.joined}</ChecksumCRC32></R>", {})


def answer(text: str, headers: Mapping[str, str]) -> Any:
    return SimpleNamespace(body=text.encode(), headers=headers)


@pytest.mark.parametrize(("kind", "meta"), [("s3", "x-amz-meta"), ("az", "x-ms-meta")])
def test_both_checksums_of_a_small_object_are_noted_and_one_that_all_know_is_checked(kind: str, meta: str) -> None:
    headers = whole_headers(kind, Held(b"123456789"))
    noted = {name: value for name, value in headers.items() if name.startswith(meta)}
    assert noted == {f"{meta}-petctlmd5": "25f9e794323b453885f5181f1b624d0b", f"{meta}-petctlcrc32": "y/Q5Jg=="}
    assert headers["content-md5"] == "JfnnlDI7RTiF9RgfG2JNCw=="
    assert not any(name.startswith("x-amz-checksum") for name in headers)  # not every store that speaks S3 bears it


@pytest.mark.parametrize(("temper", "kinds"), [("knows", CRC32), ("ignores", MD5), ("refuses", MD5)])
def test_parts_go_with_what_the_store_knows(tmp_path: Path, temper: str, kinds: Kinds) -> None:
    store: Any = Store(temper)
    parts = S3Parts(store, Records(tmp_path, "s3://b"))
    upload, there, _ = parts.begin("x", SIZE, "source")
    assert (upload.kinds, there) == (kinds, {})
    sums = [Held(part).sums(kinds) for part in PARTS]
    for number, part in enumerate(PARTS):
        parts.send(upload, number, Held(part), sums[number])
    header = "x-amz-checksum-crc32" if kinds.crc32 else "content-md5"
    assert all(list(seen) == [header] for seen in store.seen)
    parts.finish(upload, sums)
    assert list(tmp_path.iterdir()) == []


def test_a_whole_that_the_store_joined_otherwise_is_an_error(tmp_path: Path) -> None:
    store: Any = Store("knows")
    parts = S3Parts(store, Records(tmp_path, "s3://b"))
    upload, _, _ = parts.begin("x", SIZE, "source")
    sums = [Held(part).sums(CRC32) for part in PARTS]
    for number, part in enumerate(PARTS):
        parts.send(upload, number, Held(part), sums[number])
    store.joined = crc32_text(whole_crc32(sums, map(len, PARTS)))
    parts.finish(upload, sums)
    store.joined = crc32_text(5)
    with pytest.raises(Damaged, match="combined other parts"):
        parts.finish(upload, sums)


def test_another_refusal_is_not_taken_for_a_dislike_of_checksums(tmp_path: Path) -> None:
    store: Any = Store("missing")
    with pytest.raises(NoSuchPlace):
        S3Parts(store, Records(tmp_path, "s3://b")).begin("x", SIZE, "source")


def test_a_node_sends_no_header_that_its_url_is_not_signed_for() -> None:
    store: Any = Store("refuses", own_headers=False)
    upload, there, _ = S3Parts(store, Records(None, "")).begin("x", SIZE, "")
    assert (upload.kinds, there) == (MD5, {})
