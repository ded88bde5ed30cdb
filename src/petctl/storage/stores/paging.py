"""What is in a folder of a bucket, page by page, with names exactly as the store has them.

The next page is asked for while the last one is read. obstore would tidy names (`a//b` becomes `a/b`), and gathers all
of a folder before it shows the first of it, however much that is.
"""

from __future__ import annotations

import queue
import re
import threading
from itertools import repeat
from typing import Callable, Iterator, Mapping

from petctl.storage.core.answers import BadAnswer, Course, Markers, parse_xml, whole_number
from petctl.storage.core.listing import COLUMNS, FOLDER_MARK, MARKER, page_query, page_rows, page_time
from petctl.storage.stores.endpoint import Entry
from petctl.storage.stores.signed_requests import Rest

PAGE = {"s3": 1000, "az": 5000}
"""As many as the stores give at a time."""
_FIRST = 100
"""The first page is shorter: what is on it can be worked on while the store collects the next."""


def page_entries(rest: Rest, kind: str, prefix: str, most: int = 0) -> Iterator[Entry]:
    """Every object with this prefix, names without it; with `most`, only the first so many."""
    course = Course()
    for page in _pages(rest, kind, prefix, {}, most):
        rows = list(_rows(page, kind))
        course.check([row[0] for row in rows])
        for name, size, modified, tag, mark in rows:
            if len(name) > len(prefix):
                yield Entry(
                    name[len(prefix) :], whole_number(size or "0"), page_time(modified, kind), _quoted(tag), bool(mark)
                )
        if most:
            return


def page_children(rest: Rest, kind: str, prefix: str) -> Iterator[Entry]:
    """Objects and folders with this prefix and no slash after it, names without the prefix."""
    common, path = ("CommonPrefixes", "Prefix") if kind == "s3" else ("BlobPrefix", "Name")
    course = Course(with_folders=True)
    for page in _pages(rest, kind, prefix, {"delimiter": "/"}):
        root = parse_xml(page)
        folders, rows = [item.findtext(path) or "" for item in root.iter(common)], list(page_rows(root, kind))
        course.check([*(row[0] for row in rows), *folders])
        for folder in folders:
            yield Entry(folder[len(prefix) : -1], 0, 0.0, folder=True)
        for name, size, modified, tag, mark in rows:
            if len(name) > len(prefix) and not mark:
                yield Entry(name[len(prefix) :], whole_number(size or "0"), page_time(modified, kind), _quoted(tag))


def _pages(rest: Rest, kind: str, prefix: str, more: Mapping[str, str], most: int = 0) -> Iterator[bytes]:
    """The store's answers, each asked for when the one before it is handed out."""
    marked = re.compile(f"<{MARKER[kind]}>([^<]+)<".encode())
    page = rest.call("GET", "", {**page_query(kind, prefix, most or _FIRST), **more}).body
    markers = Markers()
    while (found := marked.search(page)) and not most:
        marker = markers.check(parse_xml(b"<a>" + found[1] + b"</a>").text or "")
        query = {**page_query(kind, prefix, PAGE[kind], marker), **more}
        next_page = _begun(lambda query=query: rest.call("GET", "", query).body)  # type: ignore[misc]
        yield page
        page = next_page()
    yield page


def _begun(work: Callable[[], bytes]) -> Callable[[], bytes]:
    """Starts work in a thread that keeps nothing alive; what is returned waits for its result."""
    done: queue.SimpleQueue[tuple[bytes, Exception | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((work(), None))
        except Exception as error:
            done.put((b"", error))

    threading.Thread(target=run, name="listing", daemon=True).start()

    def result() -> bytes:
        found, error = done.get()
        if error is not None:
            raise error
        return found

    return result


def _rows(page: bytes, kind: str) -> Iterator[tuple[str, ...]]:
    """Name, size, time and tag of each object, and whether it only stands for a folder. Column by column, which is
    quick, where every object has them all and none is such a mark."""
    try:
        text = page.decode()
    except UnicodeDecodeError:
        raise BadAnswer("the store's answer is not text") from None
    found = [re.findall(f"<{column}>([^<]*)</{column}>", text) for column in COLUMNS[kind]]
    items = text.count("<Contents>" if kind == "s3" else "<Blob>")
    plain = "&" not in "".join(found[0]) and FOLDER_MARK not in text.lower()
    if items and plain and all(len(column) == items for column in found):
        return iter(zip(*found, repeat("")))
    return page_rows(parse_xml(page), kind)


def _quoted(tag: str) -> str:
    """As HTTP's own headers carry it."""
    return '"' + tag.replace("&quot;", "").replace("&#34;", "").strip('"') + '"' if tag else ""
