"""Which files are taken as being there already, how large parts are, and what refusals are called."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from petctl.errors import Damaged, NoSuchPlace, Refused, StoreError, StoreUnreachable
from petctl.storage.core.parts import MIB, MOST_PARTS, part_size
from petctl.storage.stores.endpoint import Entry
from petctl.storage.stores.entry_index import Index
from petctl.storage.stores.folder import LocalFolder
from petctl.storage.stores.location import parse_location
from petctl.storage.stores.store_errors import explain, refusal
from petctl.storage.transfer.plan import Pair, already_there
from petctl.storage.transfer.transfer_pool import TransferPool

S3 = parse_location("s3://bucket/x")


def xml(code: str) -> str:
    return f"<Error><Code>{code}</Code><Message>signed secret</Message></Error>"


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (404, xml("NoSuchBucket"), NoSuchPlace, "the bucket s3://bucket does not exist"),
        (404, xml("NoSuchKey"), NoSuchPlace, "s3://bucket/x does not exist"),
        (403, xml("SignatureDoesNotMatch"), Refused, "secret key does not match"),
        (403, xml("InvalidAccessKeyId"), Refused, "does not know the access key id"),
        (400, xml("ExpiredToken"), Refused, "has expired"),
        (403, xml("AccessDenied"), Refused, "do not permit"),
        (403, xml("RequestTimeTooSkewed"), Refused, "clock"),
        (400, xml("BadDigest"), Damaged, "different bytes"),
        (503, "", StoreUnreachable, "keeps answering"),
        (400, xml("Strange"), StoreError, "400 Strange"),
    ],
)
def test_each_refusal_has_its_sentence(status: int, body: str, kind: type[StoreError], words: str) -> None:
    error = refusal(status, body, S3)
    assert isinstance(error, kind)
    assert error.code == kind.code
    assert words in str(error)
    assert "signed secret" not in str(error)


def test_the_kinds_have_codes_of_their_own() -> None:
    codes = [kind.code for kind in (StoreError, NoSuchPlace, Refused, StoreUnreachable, Damaged)]
    assert len(set(codes)) == len(codes)


def test_an_unknown_error_shows_no_signed_url() -> None:
    text = "Generic S3 error: error sending request for url http://h/b?X-Amz-Signature=abc: connection refused"
    error = explain(RuntimeError(text), S3)
    assert isinstance(error, StoreUnreachable)
    assert "abc" not in str(error)
    assert "connection refused" in str(error)


def test_parts_stay_within_what_stores_take() -> None:
    assert part_size(1) == part_size(80_000 * MIB) == 8 * MIB
    for size in (80_000 * MIB + 1, 5 << 40):
        part = part_size(size)
        assert part % MIB == 0
        assert -(-size // part) <= MOST_PARTS


class Elsewhere(LocalFolder):
    """Local files that pretend to be in a store."""

    def __init__(self) -> None:
        super().__init__()
        self.location = S3


@pytest.mark.parametrize(
    ("target", "delay", "same", "expected"),
    [
        ("local", 0.0, True, "same size and time"),
        ("local", 5.0, True, "same checksum"),
        ("local", 5.0, False, ""),
        ("store", 10.0, False, "same size, unchanged since"),
        ("store", 1.0, False, ""),
        ("store", 1.0, True, "same checksum"),
        ("store", -50.0, True, "same checksum"),
        ("store", -50.0, False, ""),
    ],
)
def test_when_a_file_is_there_already(tmp_path: Path, target: str, delay: float, same: bool, expected: str) -> None:
    paths = tmp_path / "a", tmp_path / "b"
    paths[0].write_bytes(b"content")
    paths[1].write_bytes(b"content" if same else b"CONTENT")
    pair = Pair(Entry(str(paths[0]), 7, 1000.0), str(paths[1]), "a", Entry(str(paths[1]), 7, 1000.0 + delay), True)
    assert already_there(pair, LocalFolder(), LocalFolder() if target == "local" else Elsewhere()) == expected


def test_an_index_holds_what_it_was_given() -> None:
    entries = [Entry(f"{number:05d}", number, float(number), "t") for number in range(12_000)]
    index = Index()
    assert list(index.add(entries)) == entries
    assert (index.count, index.bytes) == (12_000, sum(range(12_000)))
    assert index.get("00017") == entries[17]
    assert index.get("x") is None
    assert list(index) == entries
    index.close()


def test_a_crew_keeps_within_its_bounds() -> None:
    lock = threading.Lock()
    now = {"bytes": 0, "most": 0, "done": 0}

    def work() -> None:
        with lock:
            now["bytes"] += 10
            now["most"] = max(now["most"], now["bytes"])
        with lock:
            now["bytes"] -= 10
            now["done"] += 1

    crew = TransferPool(lambda error: True, workers=8, in_flight=30)
    for _ in range(200):
        crew.hand(10, work)
    crew.finish()
    assert now["done"] == 200
    assert now["most"] <= 30


def test_a_crew_ends_with_the_first_final_error() -> None:
    def fail() -> None:
        raise Refused("no")

    crew = TransferPool(lambda error: isinstance(error, Refused), workers=2)
    with pytest.raises(Refused):
        for _ in range(10_000):
            crew.hand(1, fail)
    crew.stop(Refused("no"))
