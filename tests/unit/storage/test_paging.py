"""Listings are streams: pages are read as they are wanted, and none of them is kept."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from petctl.errors import Refused
from petctl.storage.stores.endpoint import Entry
from petctl.storage.stores.paging import page_children, page_entries

S3_ITEM = (
    "<Contents><Key>{name}</Key><LastModified>2026-11-15T12:00:00.000Z</LastModified>"
    "<ETag>&quot;0123&quot;</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
)
AZURE_ITEM = (
    "<Blob><Name>{name}</Name><Properties><Last-Modified>Sun, 15 Nov 2026 12:00:00 GMT</Last-Modified>"
    "<Etag>0123</Etag><Content-Length>{size}</Content-Length></Properties></Blob>"
)
NOON = 1794744000.0


class Store:
    """Answers a request for a page as a store of so many objects does."""

    def __init__(self, kind: str, count: int, page: int = 1000, name: str = "x/{:07d}") -> None:
        self.kind, self.count, self.page, self.name = kind, count, page, name
        self.asked: list[str] = []
        self.refuse_after = count
        self.lock = threading.Lock()

    def call(self, method: str, path: str, query: Mapping[str, str]) -> Any:
        marker = query.get("continuation-token" if self.kind == "s3" else "marker", "0")
        with self.lock:
            self.asked.append(marker)
        begin, end = int(marker), min(int(marker) + self.page, self.count)
        if begin >= self.refuse_after:
            raise Refused("no more")
        item = S3_ITEM if self.kind == "s3" else AZURE_ITEM
        text = "".join(item.format(name=self.name.format(number), size=number) for number in range(begin, end))
        mark = "NextContinuationToken" if self.kind == "s3" else "NextMarker"
        more = f"<{mark}>{end}</{mark}>" if end < self.count else f"<{mark}/>"
        answer = f'<?xml version="1.0"?><Result xmlns="http://example.org/">{text}{more}</Result>'
        return SimpleNamespace(body=answer.encode())


@pytest.mark.parametrize("kind", ["s3", "az"])
def test_pages_are_put_together(kind: str) -> None:
    store: Any = Store(kind, 2500)
    found = list(page_entries(store, kind, "x/"))
    assert found == [Entry(f"{number:07d}", number, NOON, '"0123"') for number in range(2500)]
    assert store.asked == ["0", "1000", "2000"]
    assert list(page_children(store, kind, "x/")) == found


@pytest.mark.parametrize("kind", ["s3", "az"])
def test_names_that_xml_writes_otherwise(kind: str) -> None:
    store: Any = Store(kind, 3, name="x/&amp; &lt;{}&gt;")
    assert [entry.path for entry in page_entries(store, kind, "x/")] == ["& <0>", "& <1>", "& <2>"]


def test_blobs_that_stand_for_folders_are_no_files() -> None:
    items = [AZURE_ITEM.format(name=f"x/{name}", size=0) for name in ("a", "b", "b/c")]
    items[1] = items[1].replace("</Blob>", "<Metadata><Hdi_isfolder>true</Hdi_isfolder></Metadata></Blob>")
    items[2] = items[2].replace("</Blob>", "<Metadata><other>hdi_isfolder</other></Metadata></Blob>")
    asked: list[Mapping[str, str]] = []

    def call(method: str, path: str, query: Mapping[str, str]) -> Any:
        asked.append(query)
        return SimpleNamespace(body=f'<Result xmlns="x">{"".join(items)}<NextMarker/></Result>'.encode())

    store: Any = SimpleNamespace(call=call)
    assert [(entry.path, entry.folder) for entry in page_entries(store, "az", "x/")] == [
        ("a", False),
        ("b", True),
        ("b/c", False),
    ]
    assert [entry.path for entry in page_children(store, "az", "x/")] == ["a", "b/c"]
    assert [query["include"] for query in asked] == ["metadata", "metadata"]


def test_only_the_page_after_the_one_that_is_read_is_asked_for() -> None:
    store: Any = Store("s3", 100_000)
    stream = page_entries(store, "s3", "x/")
    for _ in range(1500):
        next(stream)
    assert len(store.asked) <= 3
    assert next(page_entries(store, "s3", "x/", most=2)).size == 0


def test_an_error_on_a_later_page_reaches_the_reader() -> None:
    store: Any = Store("s3", 5000)
    store.refuse_after = 2000
    found = []
    with pytest.raises(Refused):
        for entry in page_entries(store, "s3", "x/"):
            found.append(entry)  # noqa: PERF402
    assert len(found) == 2000


def test_memory_does_not_grow_with_the_number_of_objects() -> None:
    store: Any = Store("s3", 40_000)
    held = []
    tracemalloc.start()
    try:
        for entry in page_entries(store, "s3", "x/"):
            if entry.size in (5_500, 35_500):
                held.append(tracemalloc.get_traced_memory()[0])  # noqa: PERF401
    finally:
        tracemalloc.stop()
    assert held[1] - held[0] < 2 << 20, "30,000 more objects cost more than the one page that may be under way"
