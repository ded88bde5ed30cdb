"""How many nodes a job may have: N, MIN:MAX or MIN:INITIAL:MAX."""

from __future__ import annotations

import re

import msgspec

from petctl.job.spec.problems import shown, wrong

_FORM = re.compile(r"[0-9]{1,7}(?::[0-9]{1,7}){0,2}", re.ASCII)
_EXPECTED = "expected a number of nodes: N, MIN:MAX or MIN:INITIAL:MAX"


class Size(msgspec.Struct, frozen=True):
    """A range of nodes and where in it the job starts."""

    min: int
    initial: int
    max: int

    def __post_init__(self) -> None:
        if any(isinstance(n, bool) or not isinstance(n, int) for n in (self.min, self.initial, self.max)):
            raise wrong(f"{_EXPECTED}, got {self.min!r}:{self.initial!r}:{self.max!r}")
        if self.min < 1:
            raise wrong(f"the minimum number of nodes must be 1 or more, got {self.min}")
        if self.max < self.min:
            raise wrong(f"maximum ({self.max}) is less than minimum ({self.min})")
        if not self.min <= self.initial <= self.max:
            raise wrong(f"the initial number of nodes ({self.initial}) must be between {self.min} and {self.max}")

    def __str__(self) -> str:
        if self.min == self.max:
            return str(self.min)
        if self.initial == self.max:
            return f"{self.min}:{self.max}"
        return f"{self.min}:{self.initial}:{self.max}"


def parse_size(value: object) -> Size:
    """A size from words or a number; N means exactly N, and MIN:MAX starts with MAX."""
    if isinstance(value, Size):
        return value
    text = value.strip() if isinstance(value, str) else str(value) if _is_whole(value) else ""
    if not _FORM.fullmatch(text):
        raise wrong(f"{_EXPECTED}, got {shown(value)}")
    numbers = [int(part) for part in text.split(":")]
    initial = numbers[1] if len(numbers) == 3 else numbers[-1]
    return Size(numbers[0], initial, numbers[-1])


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
