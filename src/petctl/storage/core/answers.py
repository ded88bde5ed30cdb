"""What a store answers, taken apart without trusting it: whatever makes no sense is the store's error, not petctl's.

A wrong endpoint answers with web pages, a broken gateway with half of an answer, and a hostile one with anything.
"""

from __future__ import annotations

import re
from typing import Sequence
from xml.etree import ElementTree

from petctl.errors import StoreError

LARGEST = 64 << 20
"""Bytes of an answer that is read whole; a page of a listing takes a few."""
MOST_WITHOUT = 10_000
"""Pages in a row without a name; a store that leaves out what was deleted gives one for each 1,000 objects or more."""


class BadAnswer(StoreError):
    """What answers is not the object store that it should be."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}: the server is not a store that petctl knows; check the endpoint")


class Markers:
    """Checks that the pages of a listing lead on: a marker that comes again would make it endless.

    It keeps one marker, and takes a later one at 1, 2, 4, 8, ... pages (Brent's way to find a circle): however many
    pages there are, memory does not grow, and a circle is found within three times its length.
    """

    def __init__(self) -> None:
        self._kept, self._pages, self._next = "", 0, 1

    def check(self, marker: str) -> str:
        """The marker, if it may lead to another page."""
        if marker == self._kept:
            raise BadAnswer("the store's listing has no end")
        self._pages += 1
        if self._pages == self._next:
            self._kept, self._next = marker, 2 * self._next
        return marker


class Course:
    """Checks that a listing gets on, however new its markers are: by the first name of each page.

    A store may give pages without names, where much was deleted: many in a row, but not without end. No object is on
    two pages. A folder (`with_folders`) may be, where one page ends in it and the next begins with it.
    """

    def __init__(self, with_folders: bool = False) -> None:
        self._with_folders = with_folders
        self._firsts, self._last, self._without = Markers(), "", 0

    def check(self, names: Sequence[str]) -> None:
        """Takes in a page; BadAnswer where it has been there before, or no name has come for too long."""
        new = names[1:] if self._with_folders and names and names[0] == self._last else names
        if new:
            self._firsts.check(new[0])
            self._last, self._without = new[-1], 0
            return
        self._without += 1
        if self._without > MOST_WITHOUT:
            raise BadAnswer(f"the store's listing has no end, and no name on {MOST_WITHOUT} pages")


def parse_xml(data: bytes) -> ElementTree.Element:
    """A store's answer without its namespaces; BadAnswer where it is no XML, or defines words of its own."""
    text = re.sub(rb'\sxmlns="[^"]*"', b"", data, count=1).lstrip(b"\xef\xbb\xbf")
    # A few definitions could stand for gigabytes; in UTF-16 they would not be seen, and no store writes that.
    if b"<!DOCTYPE" in text or b"\0" in text[:8]:
        raise BadAnswer("the store's answer has an unexpected part")
    try:
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError, LookupError) as error:  # an encoding that nobody knows
        raise BadAnswer(f"the store's answer is not XML ({error})") from None


def whole_number(text: str, what: str = "size") -> int:
    """A number that the store tells; BadAnswer where it is none that a thing can have."""
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise BadAnswer(f"the store's answer has the {what} {text[:40]!r}")
    return int(text)
