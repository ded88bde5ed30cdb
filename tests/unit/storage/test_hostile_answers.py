"""What a store answers may be anything: it becomes an error of the store's, at once, without taking the memory."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from petctl.errors import StoreError
from petctl.storage.core.answers import LARGEST, BadAnswer, Course, Markers, parse_xml, whole_number
from petctl.storage.core.http_client import HttpClient
from petctl.storage.core.objects import Objects
from petctl.storage.core.parts import Records, S3Parts, part_size
from petctl.storage.stores.credentials import Access
from petctl.storage.stores.location import parse_location
from petctl.storage.stores.paging import page_children, page_entries
from petctl.storage.stores.signed import SignedBucket
from petctl.storage.stores.signed_requests import Rest


@contextmanager
def answering(*parts: bytes | Callable[[bytes], bytes]) -> Iterator[str]:
    """A server that says the same to everybody, or what a function makes of a request."""
    listener = socket.create_server(("127.0.0.1", 0))

    def talk(connection: socket.socket) -> None:
        with connection:
            try:
                while request := connection.recv(65536):
                    for part in parts:
                        connection.sendall(part(request) if callable(part) else part)
            except OSError:
                pass

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def store(endpoint: str, kind: str = "s3") -> Rest:
    if kind == "s3":
        return Rest(parse_location("s3://bucket"), Access("s3", endpoint, key_id="id", key="key"))
    return Rest(parse_location("az://account/container"), Access("az", endpoint, key_id="account", key="a2V5"))


def answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def page(inside: str) -> bytes:
    return answer(f'<?xml version="1.0"?><R xmlns="http://x/">{inside}</R>'.encode())


ITEM = "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>0</ETag><Size>{}</Size></Contents>"
NOON = "2026-11-15T12:00:00.000Z"
BLOB = (
    "<Blob><Name>{}</Name><Properties><Last-Modified>{}</Last-Modified><Etag>0</Etag>"
    "<Content-Length>{}</Content-Length></Properties></Blob>"
)
MAIL_NOON = "Sun, 15 Nov 2026 12:00:00 GMT"
LAUGHS = '<!DOCTYPE a [<!ENTITY b "ha"><!ENTITY c "&b;&b;">]><a>&c;</a>'
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
HOSTILE: dict[str, bytes | Callable[[bytes], bytes]] = {
    "a size of many digits": page(ITEM.format("a", NOON, "9" * 5000)),
    "a size below zero": page(ITEM.format("a", NOON, "-5")),
    "a size that is a word": page(ITEM.format("a", NOON, "big")),
    "a time that is none": page(ITEM.format("a", "yesterday", "5")),
    "not XML": answer(b"<html><br></html>&nbsp;<Contents>"),
    "no text": answer(b"\xff\xfe\xfa<Contents>"),
    "definitions": answer(LAUGHS.encode()),
    "definitions in UTF-16": answer(LAUGHS.encode("utf-16")),
    "a listing without an end": page("<NextContinuationToken>same</NextContinuationToken>"),
    "a listing that goes round": lambda asked: page(
        f"<NextContinuationToken>{'b' if b'continuation-token=a' in asked else 'a'}</NextContinuationToken>"
    ),
    "a marker that is no text": page("<NextContinuationToken>&what;</NextContinuationToken>"),
    "a length of many digits": b"HTTP/1.1 200 OK\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n",
    "a length beyond all memory": b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999999\r\n\r\n",
    "a length below zero": b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n",
    "a length that is no digit": "HTTP/1.1 200 OK\r\ncontent-length: \u00b2\r\n\r\n".encode("latin-1"),
    "a chunk that is a word": CHUNKED + b"zz\r\n",
    "a chunk below zero": CHUNKED + b"-5\r\nhello\r\n",
    "a chunk beyond all memory": CHUNKED + b"fffffffffff\r\n",
    "a chunk of many digits": CHUNKED + b"f" * 5000 + b"\r\n",
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("listing", [page_entries, page_children])
@pytest.mark.parametrize("what", HOSTILE)
def test_an_answer_that_makes_no_sense_is_the_stores_error(what: str, listing: Callable[..., Iterator[object]]) -> None:
    with answering(HOSTILE[what]) as endpoint, pytest.raises(StoreError, match="not a store that petctl knows"):
        list(listing(store(endpoint), "s3", ""))


HOSTILE_AZURE: dict[str, bytes | Callable[[bytes], bytes]] = {
    "a size of many digits": page(BLOB.format("a", MAIL_NOON, "9" * 5000)),
    "a size that is a word": page(BLOB.format("a", MAIL_NOON, "big")),
    "a time that is none": page(BLOB.format("a", "yesterday", "5")),
    "a listing without an end": page("<NextMarker>same</NextMarker>"),
    "a listing that goes round": lambda asked: page(
        BLOB.format("a", MAIL_NOON, "5") + f"<NextMarker>{'b' if b'&marker=a' in asked else 'a'}</NextMarker>"
    ),
    "definitions": answer(LAUGHS.encode()),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("listing", [page_entries, page_children])
@pytest.mark.parametrize("what", HOSTILE_AZURE)
def test_the_same_holds_for_azure(what: str, listing: Callable[..., Iterator[object]]) -> None:
    with answering(HOSTILE_AZURE[what]) as endpoint, pytest.raises(StoreError, match="not a store that petctl knows"):
        list(listing(store(endpoint, "az"), "az", ""))


HEAD = "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nlast-modified: {}\r\netag: 0\r\n\r\n"


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", ["s3", "az"])
@pytest.mark.parametrize(
    ("length", "modified"),
    [
        ("9" * 5000, MAIL_NOON),
        ("-5", MAIL_NOON),
        ("", MAIL_NOON),
        ("5", "yesterday"),
        ("5", ""),
        ("5", "Sun, 99 Nov 9"),
    ],
)
def test_facts_of_an_object_that_make_no_sense_are_the_stores_error(kind: str, length: str, modified: str) -> None:
    with answering(HEAD.format(length, modified).encode()) as endpoint:
        rest = store(endpoint, kind)
        bucket = SignedBucket(rest._location, rest._access, Records(None, "root"))
        with pytest.raises(StoreError, match="not a store that petctl knows"):
            bucket.find("object")


def ever_new(inside: Callable[[int], str]) -> Callable[[bytes], bytes]:
    """Pages each of which has a marker that no other has."""
    count = itertools.count(1)

    def reply(asked: bytes) -> bytes:
        number = next(count)
        return page(f"{inside(number)}<NextContinuationToken>new-{number}</NextContinuationToken>")

    return reply


ENDLESS = {
    "the same page": lambda number: ITEM.format("a", NOON, 1) + ITEM.format("b", NOON, 1),
    "the same pages": lambda number: ITEM.format(f"a-{number % 7}", NOON, 1),
    "no names": lambda number: "",
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("listing", [page_entries, page_children])
@pytest.mark.parametrize("what", ENDLESS)
def test_a_listing_with_ever_new_markers_ends(
    monkeypatch: pytest.MonkeyPatch, what: str, listing: Callable[..., Iterator[object]]
) -> None:
    monkeypatch.setattr("petctl.storage.core.answers.MOST_WITHOUT", 50)
    with answering(ever_new(ENDLESS[what])) as endpoint, pytest.raises(BadAnswer, match="has no end"):
        list(listing(store(endpoint), "s3", ""))


@pytest.mark.timeout(30)
def test_a_list_of_parts_with_ever_new_markers_ends(tmp_path: Path) -> None:
    count = itertools.count(9000)

    def reply(asked: bytes) -> bytes:
        return page(f"<IsTruncated>true</IsTruncated><NextPartNumberMarker>{next(count)}</NextPartNumberMarker>")

    records = Records(tmp_path, "root")
    records.write("object", UPLOAD)
    with answering(reply) as endpoint, pytest.raises(BadAnswer, match="has no end"):
        S3Parts(store(endpoint), records).begin("object", 20_000_000, "s")


def test_what_a_correct_store_may_do_is_no_endless_listing() -> None:
    objects = Course()
    for number in range(300):
        objects.check([])  # all that would be on it was deleted
        objects.check([f"{number}-a", f"{number}-b"])
    folders = Course(with_folders=True)
    for names in (["a"], ["a"], ["a", "b"], ["b", "c"], ["d"], ["d"], [], ["d", "e"]):
        folders.check(names)  # a page ends in a folder, and the next begins with it
    with pytest.raises(BadAnswer, match="has no end"):
        for names in itertools.repeat(["f", "g"], 100):
            folders.check(names)


UPLOAD = {"id": "u", "size": "20000000", "source": "s"}


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "body",
    [
        "<Part><PartNumber>many</PartNumber></Part>",
        "<Part><PartNumber>" + "9" * 5000 + "</PartNumber></Part>",
        "<IsTruncated>true</IsTruncated><NextPartNumberMarker>1</NextPartNumberMarker>",
        "round",
    ],
)
def test_a_list_of_parts_that_makes_no_sense_is_the_stores_error(tmp_path: Path, body: str) -> None:
    def reply(asked: bytes) -> bytes:
        mark = 2 if b"part-number-marker=1" in asked else 1
        goes_round = f"<IsTruncated>true</IsTruncated><NextPartNumberMarker>{mark}</NextPartNumberMarker>"
        return page(goes_round if body == "round" else body)

    records = Records(tmp_path, "root")
    records.write("object", UPLOAD)
    with answering(reply) as endpoint, pytest.raises(StoreError, match="not a store that petctl knows"):
        S3Parts(store(endpoint), records).begin("object", 20_000_000, "s")


def test_parts_that_the_object_does_not_have_are_left_out(tmp_path: Path) -> None:
    part = part_size(20_000_000)
    beyond = "".join(
        f'<Part><PartNumber>{number}</PartNumber><ETag>"{"0" * 32}"</ETag><Size>{size}</Size></Part>'
        for number, size in ((0, part), (1, part), (9, 20_000_000 - 8 * part))
    )
    records = Records(tmp_path, "root")
    records.write("object", UPLOAD)
    with answering(page(beyond)) as endpoint:
        assert list(S3Parts(store(endpoint), records).begin("object", 20_000_000, "s")[1]) == [0]


@pytest.mark.timeout(30)
def test_an_upload_without_an_id_is_not_begun() -> None:
    with answering(page("")) as endpoint, pytest.raises(StoreError, match="without an id"):
        S3Parts(store(endpoint), Records(None, "root")).begin("object", 20_000_000, "s")


@pytest.mark.timeout(30)
def test_nodes_end_a_listing_that_goes_round() -> None:
    def ask(call: str, words: dict[str, str]) -> dict[str, object]:
        return {"entries": [["a", 1, 0.0, ""]], "after": "b" if words["after"] == "a" else "a"}

    about = {"kind": "s3", "root": "s3://bucket", "prefix": ""}
    with pytest.raises(BadAnswer, match="has no end"):
        list(Objects(ask, "grant", about, HttpClient(), threading.Event()).entries())


@pytest.mark.timeout(30)
def test_nodes_end_a_listing_with_ever_new_markers() -> None:
    count = itertools.count()

    def ask(call: str, words: dict[str, str]) -> dict[str, object]:
        return {"entries": [["a", 1, 0.0, ""]], "after": str(next(count))}

    about = {"kind": "s3", "root": "s3://bucket", "prefix": ""}
    with pytest.raises(BadAnswer, match="has no end"):
        list(Objects(ask, "grant", about, HttpClient(), threading.Event()).entries())


@pytest.mark.parametrize("length", [1, 2, 3, 7, 100])
def test_a_circle_of_markers_is_found_soon_wherever_it_begins(length: int) -> None:
    for begin in (0, 1, 5, 50):
        markers, checked = Markers(), 0
        with pytest.raises(BadAnswer):
            for checked in range(4 * (begin + length) + 4):
                markers.check(str(checked if checked < begin else begin + (checked - begin) % length))
        assert checked < 4 * (begin + length) + 3
    markers = Markers()
    for number in range(5000):
        assert markers.check(str(number)) == str(number)


@pytest.mark.timeout(30)
def test_an_answer_in_endless_chunks_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("petctl.storage.core.http_client.LARGEST", 1 << 20)
    chunks = [b"10000\r\n" + bytes(1 << 16) + b"\r\n"] * 100
    with answering(CHUNKED, *chunks) as endpoint, pytest.raises(StoreError, match="longer than 1 MiB"):
        list(page_entries(store(endpoint), "s3", ""))


@pytest.mark.timeout(30)
def test_nodes_do_not_keep_an_answer_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("petctl.storage.core.http_client.LARGEST", 1 << 20)
    long = answer(bytes(3_000_000))
    with answering(long) as endpoint, pytest.raises(BadAnswer, match="longer than 1 MiB"):
        HttpClient().once("GET", endpoint)


def test_numbers() -> None:
    assert whole_number("0") == 0 and whole_number("123456789012345678") == 123456789012345678
    for wrong in ("", "-1", "+1", " 1", "1e3", "\u0661", "1" * 19):
        with pytest.raises(BadAnswer):
            whole_number(wrong)


def test_xml_as_stores_write_it() -> None:
    assert (
        parse_xml(b'\xef\xbb\xbf<?xml version="1.0"?><A xmlns="http://x/"><B>a &amp; b</B></A>').findtext("B")
        == "a & b"
    )
    assert LARGEST > 5000 * 2048  # a page of the longest names
