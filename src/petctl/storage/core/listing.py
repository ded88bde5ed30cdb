"""Listings of S3 and Azure: what is asked for a page, and what is read from it. Pure."""

from __future__ import annotations

from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Dict, Iterator, Tuple
from xml.etree.ElementTree import Element

from petctl.storage.core.answers import BadAnswer

COLUMNS = {
    "s3": ("Key", "Size", "LastModified", "ETag"),
    "az": ("Name", "Content-Length", "Last-Modified", "Etag"),
}
MARKER = {"s3": "NextContinuationToken", "az": "NextMarker"}
"""What a page calls the beginning of the next one."""
FOLDER_MARK = "hdi_isfolder"
"""What is noted of an empty blob that only stands for a folder, as blobfuse and others make them, named as the folder
is. Taken for a file it would be in the way of the folder itself, wherever that is copied to."""


def stands_for_folder(blob: Element) -> bool:
    """Whether a blob of a listing is such a one; the listing must have been asked for metadata."""
    return any(one.tag.lower() == FOLDER_MARK and one.text == "true" for one in blob.iterfind("Metadata/*"))


def page_query(kind: str, prefix: str, size: int, after: str = "") -> Dict[str, str]:
    """The query for at most `size` objects with this prefix, behind a marker."""
    if kind == "s3":
        query, most, mark = {"list-type": "2", "prefix": prefix}, "max-keys", "continuation-token"
    else:
        query = {"restype": "container", "comp": "list", "include": "metadata", "prefix": prefix}
        most, mark = "maxresults", "marker"
    return {**query, most: str(size), **({mark: after} if after else {})}


def page_rows(root: Element, kind: str) -> Iterator[Tuple[str, ...]]:
    """Name, size, time and tag of each object of a page, and the mark of one that only stands for a folder."""
    if kind == "s3":
        for item in root.iter("Contents"):
            yield (*(item.findtext(column) or "" for column in COLUMNS["s3"]), "")
    else:
        for item in root.iter("Blob"):
            rest = (item.findtext(f"Properties/{column}") or "" for column in COLUMNS["az"][1:])
            yield (item.findtext("Name") or "", *rest, FOLDER_MARK if stands_for_folder(item) else "")


def page_time(text: str, kind: str) -> float:
    """Seconds since 1970, as a page tells them."""
    return _iso_time(text) if kind == "s3" else mail_time(text)


@lru_cache(maxsize=1024)
def _iso_time(text: str) -> float:
    try:
        return datetime.fromisoformat(f"{text[:19]}+00:00").timestamp() + float(f"0{text[19:].rstrip('Z')}")
    except (ValueError, OverflowError):
        raise BadAnswer(f"the store's answer has the time {text[:40]!r}") from None


@lru_cache(maxsize=1024)
def mail_time(text: str) -> float:
    """Seconds since 1970, from a time as HTTP's headers carry it."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        raise BadAnswer(f"the store's answer has the time {text[:40]!r}") from None
