"""Node counts: the three forms, their shortest text, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petctl.errors import SpecError
from petctl.job.spec import Size, parse_size


@pytest.mark.parametrize(
    ("written", "size", "shortest"),
    [
        ("3", Size(3, 3, 3), "3"),
        (3, Size(3, 3, 3), "3"),
        ("1:3", Size(1, 3, 3), "1:3"),
        ("1:2:3", Size(1, 2, 3), "1:2:3"),
        ("1:1:3", Size(1, 1, 3), "1:1:3"),
        ("1:3:3", Size(1, 3, 3), "1:3"),
        ("2:2", Size(2, 2, 2), "2"),
        (" 1:3 ", Size(1, 3, 3), "1:3"),
    ],
)
def test_forms(written: object, size: Size, shortest: str) -> None:
    assert parse_size(written) == size
    assert str(size) == shortest
    assert parse_size(size) is size


@pytest.mark.parametrize(
    "written", ["", "x", "1:", ":3", "1:2:3:4", "1-3", "1.5", -1, "-1", 1.0, True, None, [], "9" * 9, "²"]
)
def test_junk(written: object) -> None:
    with pytest.raises(SpecError, match="N, MIN:MAX or MIN:INITIAL:MAX"):
        parse_size(written)


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("0", "must be 1 or more"),
        (0, "must be 1 or more"),
        ("0:3", "must be 1 or more"),
        ("3:1", r"maximum \(1\) is less than minimum \(3\)"),
        ("2:1:3", r"initial number of nodes \(1\) must be between 2 and 3"),
        ("1:4:3", r"initial number of nodes \(4\) must be between 1 and 3"),
    ],
)
def test_impossible(written: object, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        parse_size(written)


@settings(deadline=None)  # a busy machine is not a failure
@given(st.lists(st.integers(1, 10**6), min_size=3, max_size=3).map(sorted))
def test_text_and_back(numbers: list[int]) -> None:
    size = Size(*numbers)
    assert parse_size(str(size)) == size
