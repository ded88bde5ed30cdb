"""One thing is no plural."""

from __future__ import annotations

import pytest

from petctl.text import counted, scaling


@pytest.mark.parametrize(("number", "words"), [(0, "0 files"), (1, "1 file"), (2, "2 files"), (12000, "12,000 files")])
def test_a_number_and_what_it_counts(number: int, words: str) -> None:
    assert counted(number, "file") == words


def test_plurals_of_their_own() -> None:
    assert [counted(number, "copy", "copies") for number in (1, 2)] == ["1 copy", "2 copies"]


def test_sizes() -> None:
    assert scaling(3, 1) == "scaling from 3 to 1 nodes"
    assert (scaling(1, 1), scaling(2, 2)) == ("already at 1 node", "already at 2 nodes")
