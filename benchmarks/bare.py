"""The server's own limit: the same small objects by requests that were signed before the clock started.

No file is read or written, nothing is summed, and no answer is looked at beyond its first line. One thread, so many
connections as petctl begins with: whatever a client does, it cannot be faster than this by much. Whoever fetches a
folder has to be told what is in it, so the server lists it meanwhile.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

from common import Missed
from stores import BUCKET, Stage
from tests.integration.storage.servers import ACCESS_KEY, ACCOUNT, ACCOUNT_KEY, SECRET_KEY

from petctl.storage.core.signing import AwsKey, blob_sas, sigv4_url

CONNECTIONS = 64


@dataclass
class _Line:
    """One connection and how much of an answer is still to come on it."""

    socket: socket.socket
    received: bytearray = field(default_factory=bytearray)
    left: int = -1  # bytes; below zero while the answer's head is incomplete


def bare(at: Stage, keys: list[str], size: int, up: bool) -> float:
    """Seconds in which the server takes in, or gives out, one object of this size for each key."""
    body = os.urandom(size) if up else b""
    heads = [_head(at, key, size if up else 0, up) for key in keys]
    # Not put together here: memory of this process counts as that of every program it starts.
    requests = (head + body for head in heads)
    address = urlsplit(at.url)
    names: list[str] = []
    listing = threading.Thread(target=lambda: names.extend(_names(at, keys[0].partition("/")[0])))
    begin = time.monotonic()
    if not up:
        listing.start()
    with selectors.DefaultSelector() as selector:
        for _ in range(min(CONNECTIONS, len(keys))):
            line = _Line(socket.create_connection((address.hostname or "", address.port or 80)))
            line.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(line.socket, selectors.EVENT_READ, line)
            line.socket.sendall(next(requests))
        while selector.get_map():
            for key, _ in selector.select(60):
                _take(selector, key.data, requests)
    if not up:
        listing.join()
        if len(names) != len(keys):
            raise Missed(f"the server lists {len(names)} of {len(keys)} objects")
    return time.monotonic() - begin


def _names(at: Stage, folder: str) -> Iterator[str]:
    """All that is in a folder, page by page, as long as the server makes them."""
    item, mark, ask = {
        "s3": ("Contents", "NextContinuationToken", f"list-type=2&prefix={folder}/&continuation-token="),
        "az": ("Blob", "NextMarker", f"restype=container&comp=list&prefix={folder}/&marker="),
    }[at.kind]
    marker = ""
    while True:
        query = f"{ask}{quote(marker, safe='')}" if marker else ask.rpartition("&")[0]
        with urllib.request.urlopen(_signed(at, "GET", "", query)) as answer:
            page = ElementTree.fromstring(answer.read())
        yield from (name.rpartition("}")[2] for name in (each.tag for each in page.iter()) if name.endswith(item))
        marker = next((each.text or "" for each in page.iter() if each.tag.endswith(mark)), "")
        if not marker:
            return


def _take(selector: selectors.BaseSelector, line: _Line, requests: Iterator[bytes]) -> None:
    data = line.socket.recv(1 << 16)
    if not data:
        raise Missed("the server hung up on a bare request")
    if line.left < 0:
        line.received += data
        head, end, rest = bytes(line.received).partition(b"\r\n\r\n")
        if not end:
            return
        if not head.startswith(b"HTTP/1.1 20"):
            raise Missed(f"the server refused a bare request: {head[:40]!r}")
        lower = head.lower()
        at = lower.find(b"content-length:")
        line.left = int(lower[at + 15 :].split(b"\r\n", 1)[0]) - len(rest) if at >= 0 else 0
        line.received.clear()
    else:
        line.left -= len(data)
    if line.left:
        return
    line.left = -1
    request = next(requests, None)
    if request is None:
        selector.unregister(line.socket)
        line.socket.close()
    else:
        line.socket.sendall(request)


def _head(at: Stage, key: str, length: int, up: bool) -> bytes:
    method = "PUT" if up else "GET"
    parts = urlsplit(_signed(at, method, f"/{key}"))
    extra = "x-ms-blob-type: BlockBlob\r\n" if up and at.kind == "az" else ""
    head = f"{method} {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n{extra}"
    return f"{head}Content-Length: {length}\r\n\r\n".encode()


def _signed(at: Stage, method: str, path: str, query: str = "") -> str:
    now = datetime.now(timezone.utc)
    if at.kind == "s3":
        url = f"{at.url}/{BUCKET}{path}" + (f"?{query}" if query else "")
        return sigv4_url(method, url, AwsKey(ACCESS_KEY, SECRET_KEY), "us-east-1", now, 3600)
    times = now - timedelta(hours=1), now + timedelta(hours=1)
    sas = blob_sas(ACCOUNT, ACCOUNT_KEY, BUCKET, "", "rcwl", *times, https=False)
    return f"{at.url}/{ACCOUNT}/{BUCKET}{path}?{query}{'&' if query else ''}{sas}"
