"""What reaches a terminal of petctl's own words: text, and the colours that petctl gives it; nothing that steers it.

Names of jobs, files and objects, and what others say of an error, may hold anything. On a terminal an escape sequence
could clear the screen, rename the window or write into the clipboard, and some marks turn the order of letters round.
So such characters are spelt out. What goes into a file or a pipe stays as it is, and so does what workers print.
"""

from __future__ import annotations

import re
from typing import Any, TextIO

_STEERING = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]|\r(?!\n)"
_ANY = re.compile(_STEERING)
_OWN_COLOUR = r"\x1b\[(?:0|1|2|22|3[0-79]|4[0-79]|9[0-7])?(?:;(?:0|1|2|3[0-7]|9[0-7]))*m"
_NOT_OWN = re.compile(f"({_OWN_COLOUR})|{_STEERING}")


def shown(text: str) -> str:
    """A text with all that would steer a terminal spelt out."""
    return _ANY.sub(lambda found: _spelt(found[0]), text)


class OwnWords:
    """A text stream to a terminal, on which only petctl's colours pass; `raw` is the stream itself."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        """Writes it, spelt out where that is needed."""
        self.raw.write(_NOT_OWN.sub(lambda found: found[1] or _spelt(found[0]), text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def guarded(stream: TextIO) -> TextIO:
    """The stream as petctl's words should go there."""
    return OwnWords(stream) if stream.isatty() else stream  # type: ignore[return-value]


def raw(stream: TextIO) -> TextIO:
    """The stream itself, for who draws on the terminal and spells out what is not its own."""
    return stream.raw if isinstance(stream, OwnWords) else stream


def _spelt(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
