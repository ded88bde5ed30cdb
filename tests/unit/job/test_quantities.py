"""Durations and byte sizes: what is accepted, what is refused, and that formatting is exact."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petctl.errors import SpecError
from petctl.job.spec import format_bytes, format_duration, parse_bytes, parse_duration


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("30s", 30.0),
        ("2h", 7200.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        (" 90 ", 90.0),
        ("90", 90.0),
        (90, 90.0),
        (0.5, 0.5),
        ("1.5h", 5400.0),
        ("250ms", 0.25),
        ("1m", 60.0),
        ("2d", 172800.0),
        ("1w", 604800.0),
        ("1e3", 1000.0),
        (0, 0.0),
        ("0", 0.0),
    ],
)
def test_duration(written: object, seconds: float) -> None:
    assert parse_duration(written) == seconds


NO_DURATIONS: list[object] = ["", " ", "s", "30 parsecs", "-1", -1, "1m1h", "1h1h", "1:30", "nan", "inf", "٣s", "1e999"]
NO_DURATIONS += [float("nan"), float("inf"), "1000000w", 10**400, True, None, [], {}]


@pytest.mark.parametrize("written", NO_DURATIONS)
def test_not_a_duration(written: object) -> None:
    with pytest.raises(SpecError, match="expected seconds or a duration such as 30s"):
        parse_duration(written)


@pytest.mark.parametrize(
    ("written", "count"),
    [
        ("1GiB", 1 << 30),
        ("500MB", 500_000_000),
        ("64 MiB", 64 << 20),
        ("1Gi", 1 << 30),
        ("2k", 2000),
        ("10kb", 10_000),
        ("7", 7),
        ("7B", 7),
        (7, 7),
        ("1.5KiB", 1536),
    ],
)
def test_bytes(written: object, count: int) -> None:
    assert parse_bytes(written) == count


@pytest.mark.parametrize(
    "written", ["", "GiB", "1XB", "-1", -1, 0.5, "1.0001KiB", "1iB", True, None, [], "99999PB", 1 << 61]
)
def test_not_bytes(written: object) -> None:
    with pytest.raises(SpecError, match="expected a size such as 500MB"):
        parse_bytes(written)


@pytest.mark.parametrize(("seconds", "words"), [(5400.0, "1h30m"), (0.0, "0s"), (90061.0, "1d1h1m1s"), (0.25, 0.25)])
def test_duration_in_words(seconds: float, words: object) -> None:
    assert format_duration(seconds) == words


@settings(deadline=None)  # a busy machine is not a failure
@given(st.floats(min_value=0, max_value=3e9))
def test_a_formatted_duration_is_the_same_duration(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds
    assert parse_duration(str(format_duration(seconds))) == seconds


@settings(deadline=None)  # a busy machine is not a failure
@given(st.integers(min_value=0, max_value=1 << 52))
def test_a_formatted_size_is_the_same_size(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == count
