"""What is directly in a folder of a bucket, page by page: obstore gathers all of it first, however much that is."""

from __future__ import annotations

from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Iterator
from xml.etree import ElementTree

from petctl.store.parts import xml_answer
from petctl.store.place import Entry
from petctl.store.rest import Rest


def page_children(rest: Rest, kind: str, prefix: str) -> Iterator[Entry]:
    """Objects and folders with this prefix and no slash after it, names without the prefix."""
    marker = ""
    while True:
        if kind == "s3":
            query = {"list-type": "2", "delimiter": "/", "prefix": prefix, "max-keys": "1000"}
            if marker:
                query["continuation-token"] = marker
            root = xml_answer(rest.call("GET", "", query).body)
            yield from _s3_page(root, prefix)
            marker = root.findtext("NextContinuationToken") or ""
        else:
            query = {"restype": "container", "comp": "list", "delimiter": "/", "prefix": prefix, "maxresults": "5000"}
            if marker:
                query["marker"] = marker
            root = xml_answer(rest.call("GET", "", query).body)
            yield from _azure_page(root, prefix)
            marker = root.findtext("NextMarker") or ""
        if not marker:
            return


def _s3_page(root: ElementTree.Element, prefix: str) -> Iterator[Entry]:
    for common in root.iter("CommonPrefixes"):
        yield Entry((common.findtext("Prefix") or "")[len(prefix) :].rstrip("/"), 0, 0.0, folder=True)
    for item in root.iter("Contents"):
        name = (item.findtext("Key") or "")[len(prefix) :]
        if name:
            when = datetime.fromisoformat((item.findtext("LastModified") or "").replace("Z", "+00:00"))
            yield Entry(name, int(item.findtext("Size") or 0), when.timestamp(), item.findtext("ETag") or "")


def _azure_page(root: ElementTree.Element, prefix: str) -> Iterator[Entry]:
    for common in root.iter("BlobPrefix"):
        yield Entry((common.findtext("Name") or "")[len(prefix) :].rstrip("/"), 0, 0.0, folder=True)
    for item in root.iter("Blob"):
        name = (item.findtext("Name") or "")[len(prefix) :]
        if name:
            when = parsedate_to_datetime(item.findtext("Properties/Last-Modified") or "")
            size = int(item.findtext("Properties/Content-Length") or 0)
            yield Entry(name, size, when.timestamp(), item.findtext("Properties/Etag") or "")
