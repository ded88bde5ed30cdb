"""What a store answers may be anything: it becomes an error of the store's, at once, without taking the memory."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from petctl.depot.answers import LARGEST, BadAnswer, parse_xml, whole_number
from petctl.depot.exchange import Exchange
from petctl.errors import StoreError
from petctl.store.credentials import Access
from petctl.store.location import parse_location
from petctl.store.paging import page_children, page_entries
from petctl.store.rest import Rest


@contextmanager
def answering(*parts: bytes) -> Iterator[str]:
    """A server that says the same to everybody."""
    listener = socket.create_server(("127.0.0.1", 0))

    def talk(connection: socket.socket) -> None:
        with connection:
            try:
                while connection.recv(65536):
                    for part in parts:
                        connection.sendall(part)
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


def store(endpoint: str) -> Rest:
    return Rest(parse_location("s3://bucket"), Access("s3", endpoint, key_id="id", key="key"))


def answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def page(inside: str) -> bytes:
    return answer(f'<?xml version="1.0"?><R xmlns="http://x/">{inside}</R>'.encode())


ITEM = "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>0</ETag><Size>{}</Size></Contents>"
NOON = "2026-11-15T12:00:00.000Z"
LAUGHS = '<!DOCTYPE a [<!ENTITY b "ha"><!ENTITY c "&b;&b;">]><a>&c;</a>'
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
HOSTILE = {
    "a size of many digits": page(ITEM.format("a", NOON, "9" * 5000)),
    "a size below zero": page(ITEM.format("a", NOON, "-5")),
    "a size that is a word": page(ITEM.format("a", NOON, "big")),
    "a time that is none": page(ITEM.format("a", "yesterday", "5")),
    "not XML": answer(b"<html><br></html>&nbsp;<Contents>"),
    "no text": answer(b"\xff\xfe\xfa<Contents>"),
    "definitions": answer(LAUGHS.encode()),
    "definitions in UTF-16": answer(LAUGHS.encode("utf-16")),
    "a listing without an end": page("<NextContinuationToken>same</NextContinuationToken>"),
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
    with answering(HOSTILE[what]) as endpoint, pytest.raises(StoreError, match="no store that petctl knows"):
        list(listing(store(endpoint), "s3", ""))


@pytest.mark.timeout(30)
def test_an_answer_in_endless_chunks_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("petctl.store.wire.LARGEST", 1 << 20)
    chunks = [b"10000\r\n" + bytes(1 << 16) + b"\r\n"] * 100
    with answering(CHUNKED, *chunks) as endpoint, pytest.raises(StoreError, match="longer than 1 MiB"):
        list(page_entries(store(endpoint), "s3", ""))


@pytest.mark.timeout(30)
def test_nodes_do_not_keep_an_answer_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("petctl.depot.exchange.LARGEST", 1 << 20)
    long = answer(bytes(3_000_000))
    with answering(long) as endpoint, pytest.raises(BadAnswer, match="longer than 1 MiB"):
        Exchange().once("GET", endpoint)


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
