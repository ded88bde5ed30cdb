"""JSON to a `Document`. The standard library's reader gives no places and lets a second key win, hence this one.

Strings are read by the standard library; numbers stay as they are written.
"""

from __future__ import annotations

import re
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import NoReturn

from petctl.job.spec.document import Builder, Document, Mark, Value, unquoted

_BLANK = re.compile(r"[ \t\n\r]*")
_WORD = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null", re.ASCII)


def parse_json(text: str, builder: Builder) -> Document:
    """A document from JSON text; raises SpecError with the place of the first error in the syntax."""
    reader = _Reader(text, builder)
    reader.value()
    if reader.at < len(text):
        reader.fail("unexpected text after the end of the job")
    return builder.document()


class _Reader:
    """Walks once through the text; `at` is always at something other than a blank."""

    def __init__(self, text: str, builder: Builder) -> None:
        self.text = text
        self.builder = builder
        self.at = 0
        self._line = 1
        self._line_start = 0
        self._counted = 0
        self._move(0)

    def value(self) -> None:
        """Any value. Recursion is bounded by the builder's limit on depth."""
        mark, first = self.mark(), self.text[self.at : self.at + 1]
        if first in ("{", "["):
            self._container(first == "{", mark)
        elif first == '"':
            self.builder.add(self._string(), mark)
        else:
            match = _WORD.match(self.text, self.at)
            if match is None:
                self.fail("expected a value" if first else "the text ends too early")
            self._move(match.end())
            self.builder.add(None if match[0] == "null" else unquoted(match[0]), mark)

    def _container(self, mapping: bool, mark: Mark) -> None:
        empty: dict[str, Value] | list[Value] = {} if mapping else []
        self.builder.open(empty, mark)
        end = "}" if mapping else "]"
        self._move(self.at + 1)
        while not self._taken(end):
            if mapping:
                if self.text[self.at : self.at + 1] != '"':
                    self.fail('expected a name in quotes (")')
                mark = self.mark()
                self.builder.add(self._string(), mark)
                if not self._taken(":"):
                    self.fail("expected ':' after the name")
            self.value()
            if not self._taken(","):
                if not self._taken(end):
                    self.fail(f"expected ',' or '{end}'")
                break
            if self.text[self.at : self.at + 1] == end:
                self.fail(f"no ',' is allowed before '{end}'")
        self.builder.close()

    def _string(self) -> str:
        try:
            value, end = scanstring(self.text, self.at + 1, True)
        except JSONDecodeError as error:
            self.at = error.pos
            self.fail(error.msg.lower().rstrip(" at"))
        self._move(end)
        return str(value)

    def _taken(self, sign: str) -> bool:
        if self.text[self.at : self.at + 1] != sign:
            return False
        self._move(self.at + 1)
        return True

    def _move(self, to: int) -> None:
        match = _BLANK.match(self.text, to)
        self.at = match.end() if match else to

    def mark(self) -> Mark:
        """The place of `at`; counts each line once."""
        newlines = self.text.count("\n", self._counted, self.at)
        if newlines:
            self._line += newlines
            self._line_start = self.text.rfind("\n", self._counted, self.at) + 1
        self._counted = self.at
        return Mark(self._line, self.at - self._line_start + 1)

    def fail(self, sentence: str) -> NoReturn:
        """Gives up at the present place."""
        self.builder.fail(self.mark(), f"not JSON: {sentence}")
