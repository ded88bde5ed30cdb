"""How long a job may take, in every way that Batch AI's files and tools write it; and back, as its service reports it.

    "7 days, 0:00:00"   "1.02:00:00"   "12:30:00"   "P7D"   "PT1H30M"   3600   and petctl's own "90m"

Seconds in between.
"""

from __future__ import annotations

import re
from datetime import timedelta

from petctl.job.spec.problems import FieldError, shown, wrong
from petctl.job.spec.quantities import parse_duration

_CLOCK = re.compile(
    r"(?:(?P<days>[0-9]{1,6})(?:\s*days?,?\s*|\.))?(?P<hours>[0-9]{1,4}):(?P<minutes>[0-5]?[0-9])"
    r"(?::(?P<seconds>[0-5]?[0-9](?:\.[0-9]{1,7})?))?",
    re.ASCII,
)
_ISO = re.compile(
    r"P(?=.)(?:(?P<weeks>[0-9]{1,6})W)?(?:(?P<days>[0-9]{1,6})D)?"
    r"(?:T(?=.)(?:(?P<hours>[0-9]{1,6})H)?(?:(?P<minutes>[0-9]{1,6})M)?(?:(?P<seconds>[0-9]{1,9}(?:\.[0-9]{1,9})?)S)?)?",
    re.ASCII,
)
_DAYS = re.compile(r"(?P<days>[0-9]{1,6})\s*days?", re.ASCII)


def wall_clock(value: object) -> float:
    """Seconds, above zero."""
    text = value.strip() if isinstance(value, str) else ""
    for form in (_CLOCK, _ISO, _DAYS):
        match = form.fullmatch(text)
        if match:
            parts = {name: float(part) for name, part in match.groupdict().items() if part}
            written: object = timedelta(**parts).total_seconds()
            break
    else:
        written = value
    try:
        seconds = parse_duration(written)
    except FieldError:
        raise wrong(
            f'expected a time such as "7 days, 0:00:00", "12:30:00", "PT2H" or seconds, at most 100 years, '
            f"got {shown(value)}"
        ) from None
    if seconds <= 0:
        raise wrong(f"must be above zero, got {shown(value)}")
    return seconds


def as_wall_clock(seconds: float) -> str:
    """As the service writes it: "7 days, 0:00:00"."""
    return str(timedelta(seconds=seconds))
