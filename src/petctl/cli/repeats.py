"""Tracebacks that a job's only worker writes again in a later round: shown once, since an event tells of each failure.

Text is held back only while it is word for word what was shown before, from the beginning of a traceback on.
"""

from __future__ import annotations

_BEGIN = b"Traceback (most recent call last):"
_MOST = 1 << 16  # bytes that are remembered


class Repeats:
    """What one worker wrote to stderr, round after round."""

    def __init__(self) -> None:
        self._round = 0
        self._shown = b""  # the end of what was shown, in all rounds
        self._traceback = b""  # the newest one, with all that came behind it
        self._held = b""  # the beginning of the same once more

    def filter(self, round_: int, text: bytes) -> bytes:
        """What is to be shown of this text."""
        if round_ != self._round:
            before, self._round = self._release(), round_
            return before + self.filter(round_, text)
        start = 0 if self._held else text.find(_BEGIN)
        if start < 0 or not self._traceback:
            return self._show(text)
        held = self._held + text[start:]
        if self._traceback.startswith(held):
            self._held = held
            return self._show(text[:start])
        self._held = b""
        if held.startswith(self._traceback):
            rest, self._traceback = held[len(self._traceback) :], b""
            return self._show(text[:start]) + self._show(rest)
        self._traceback = b""
        return self._show(text[:start]) + self._show(held)

    def has_shown(self, words: str) -> bool:
        """Were these lines shown as they are?"""
        return words.encode() in self._shown

    def _show(self, text: bytes) -> bytes:
        self._shown = (self._shown + text)[-_MOST:]
        return text

    def _release(self) -> bytes:
        """At the end of a round: what was held is shown, unless it was all of the same."""
        held, self._held = self._held, b""
        if held and held == self._traceback:
            return b""
        start = self._shown.rfind(_BEGIN)
        self._traceback = self._shown[start:] if start >= 0 and not held else self._traceback
        return self._show(held)
