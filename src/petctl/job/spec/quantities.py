"""Durations, byte sizes and numbers of nodes as people write them: "30s", 90, "1GiB", "500MB", "1:3"; and back.

Formatting is exact: what `format_duration` and `format_bytes` write, the parsers read as the same number.
"""

from __future__ import annotations

import math
import re

import msgspec

from petctl.job.spec.problems import shown, wrong

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_UNITS = (("w", 604800.0), ("d", 86400.0), ("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 0.001))
_DURATION = re.compile(r"\s*".join(rf"(?:([0-9]+(?:\.[0-9]+)?)\s*{unit})?" for unit, _ in _UNITS), re.ASCII)
_LONGEST = 100 * 365 * 86400.0

_BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgtp]?)(i?)b?)", re.ASCII | re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_MOST = 1 << 60

_DURATION_FORM = "expected seconds or a duration such as 30s, 10m or 1h30m"
_BYTES_FORM = "expected a size such as 500MB, 64MiB or 1GiB"


def parse_duration(value: object) -> float:
    """Seconds from a number or from words such as "1h30m"."""
    seconds = _number(value)
    if seconds is None and isinstance(value, str) and value.strip():
        match = _DURATION.fullmatch(value.strip())
        if match:
            seconds = sum(float(amount) * size for amount, (_, size) in zip(match.groups(), _UNITS) if amount)
    if seconds is None or seconds < 0:
        raise wrong(f"{_DURATION_FORM}, got {shown(value)}")
    if seconds > _LONGEST:
        raise wrong(f"{_DURATION_FORM}, got {shown(value)}, which is over 100 years")
    return seconds


def format_duration(seconds: float) -> str | float:
    """The shortest words for whole seconds ("1h30m"); the number itself for anything finer."""
    if seconds != int(seconds):
        return seconds
    rest, words = int(seconds), ""
    for unit, size in _UNITS[1:5]:
        amount, rest = divmod(rest, int(size))
        words += f"{amount}{unit}" if amount else ""
    return words or "0s"


def parse_bytes(value: object) -> int:
    """Bytes from a number or from words such as "1GiB" (1024s) and "500MB" (1000s)."""
    amount = _number(value)
    if amount is None and isinstance(value, str):
        match = _BYTES.fullmatch(value.strip())
        if match and not (match[3] and not match[2]):
            amount = float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2].lower()]
    if amount is None or not 0 <= amount <= _MOST or amount != int(amount):
        raise wrong(f"{_BYTES_FORM}, got {shown(value)}")
    return int(amount)


def format_bytes(count: int) -> str | int:
    """The shortest words for whole binary multiples ("1GiB"); the number itself for anything else."""
    for power, unit in ((5, "PiB"), (4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count and count % 1024**power == 0:
            return f"{count // 1024**power}{unit}"
    return count


def _number(value: object) -> float | None:
    if isinstance(value, str):
        return float(value) if _NUMBER.fullmatch(value.strip()) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


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
