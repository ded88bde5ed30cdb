"""A traceback that comes again, word for word, is shown once."""

from __future__ import annotations

from petctl.cli.repeats import Repeats

FIRST = b'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: x\n'


def test_the_same_failure_in_later_rounds_is_not_shown_again() -> None:
    repeats = Repeats()
    assert repeats.filter(1, b"warning\n" + FIRST) == b"warning\n" + FIRST
    for number in (2, 3):
        half = len(FIRST) // 2
        assert repeats.filter(number, b"hello\n") == b"hello\n"
        assert repeats.filter(number, FIRST[:half]) == b"" and repeats.filter(number, FIRST[half:]) == b""
    assert repeats.has_shown(FIRST.decode().strip()) and not repeats.has_shown("KeyError: y")


def test_another_failure_is_shown_as_a_whole() -> None:
    repeats = Repeats()
    repeats.filter(1, FIRST)
    other = FIRST.replace(b"ValueError: x", b"KeyError: y")
    assert repeats.filter(2, other[:40]) == b""
    assert repeats.filter(2, other[40:]) == other
    assert repeats.filter(3, other) == b""


def test_what_goes_on_behind_the_same_is_shown() -> None:
    repeats = Repeats()
    repeats.filter(1, FIRST)
    assert repeats.filter(2, FIRST + b"more\n") == b"more\n"


def test_half_of_the_same_is_shown_when_its_round_is_over() -> None:
    repeats = Repeats()
    repeats.filter(1, FIRST)
    assert repeats.filter(2, FIRST[:50]) == b""
    assert repeats.filter(3, b"next\n") == FIRST[:50] + b"next\n"


def test_the_same_twice_in_one_round_is_the_scripts_own_affair() -> None:
    assert Repeats().filter(1, FIRST + FIRST) == FIRST + FIRST
