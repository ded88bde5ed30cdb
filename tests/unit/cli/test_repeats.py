"""A traceback that comes again, word for word, is shown once."""

from __future__ import annotations

from petctl.console.screen import Repeats

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


def _named(rank: int) -> str:
    return f"rank {rank}"


def test_of_several_workers_each_later_traceback_is_one_line() -> None:
    repeats = Repeats(_named)
    assert repeats.filter(1, FIRST, 1) == FIRST
    assert repeats.filter(1, b"hello\n" + FIRST, 0) == b"hello\nthe same error as rank 1\n"
    assert repeats.filter(2, FIRST, 1) == b"the same error as in round 1\n"
    assert repeats.filter(2, FIRST + b"more\n", 0) == b"the same error as rank 1 in round 1\nmore\n"
    other = FIRST.replace(b"ValueError: x", b"KeyError: y")
    assert repeats.filter(3, other, 0) == other
    assert repeats.filter(3, other, 1) == b"the same error as rank 0\n"


def test_the_one_line_begins_a_line() -> None:
    repeats = Repeats(_named)
    repeats.filter(1, FIRST, 0)
    assert repeats.filter(1, b"\r 50%", 1) == b"\r 50%"
    assert repeats.filter(1, FIRST, 1) == b"\nthe same error as rank 0\n"


def test_torchs_rank_prefix_makes_no_other_traceback_of_it() -> None:
    first, second = (FIRST.replace(b"\n", b"\n[rank%d]: " % rank, 2) for rank in (0, 1))
    repeats = Repeats(_named)
    assert repeats.filter(1, b"[rank0]: " + first, 0) == b"[rank0]: " + first
    assert repeats.filter(1, b"[rank1]: " + second, 1) == b"the same error as rank 0\n"
    assert repeats.has_shown(FIRST.decode().strip())


def test_lines_behind_an_exception_belong_to_it_while_they_are_the_same() -> None:
    repeats, more = Repeats(_named), b"\tmissing key a\n\nDuring handling of the above exception:\n\n" + FIRST
    repeats.filter(1, FIRST + more, 0)
    assert repeats.filter(2, FIRST + more, 0) == b"the same error as in round 1\n"
    assert repeats.filter(3, FIRST + more[:30] + b"\n", 0) == b"the same error as in round 1\n" + more[16:30] + b"\n"


def test_what_is_held_at_the_end_is_not_lost() -> None:
    repeats = Repeats(_named)
    repeats.filter(1, FIRST, 0)
    assert repeats.filter(2, FIRST[:50], 1) == b""
    assert list(repeats.rest()) == [(1, FIRST[:50])]


def test_a_traceback_is_known_as_shown_after_much_other_text() -> None:
    repeats = Repeats(_named)
    repeats.filter(1, FIRST, 0)
    for number in range(100):
        repeats.filter(2, b"%d " % number + b"x" * 1000 + b"\n", 0)
    assert repeats.has_shown(FIRST.decode().strip())
    assert not repeats.has_shown("KeyError: y")


def test_without_notices_another_workers_traceback_is_shown() -> None:
    repeats = Repeats()
    assert repeats.filter(1, FIRST, 0) == FIRST
    assert repeats.filter(1, FIRST, 1) == FIRST


CANNOT_COMPILE = b'  File "a.py", line 3\n    x =\n       ^\nSyntaxError: invalid syntax\n'


def test_a_script_that_cannot_be_compiled_is_shown_once() -> None:
    repeats = Repeats(_named)
    assert repeats.filter(1, CANNOT_COMPILE, 1) == CANNOT_COMPILE
    assert repeats.filter(1, CANNOT_COMPILE, 0) == b"the same error as rank 1\n"
    assert repeats.filter(2, CANNOT_COMPILE, 0) == b"the same error as rank 1 in round 1\n"
    other = CANNOT_COMPILE.replace(b"line 3", b"line 4")
    assert repeats.filter(2, other, 1) == other


def test_another_traceback_that_ends_in_the_same_place_is_shown_as_a_whole() -> None:
    repeats = Repeats(_named)
    head = b'Traceback (most recent call last):\n  File "b.py", line 1, in <module>\n    import a\n'
    other = head.replace(b"b.py", b"c.py")
    assert repeats.filter(1, head + CANNOT_COMPILE, 1) == head + CANNOT_COMPILE
    assert repeats.filter(1, other + CANNOT_COMPILE, 0) == other + CANNOT_COMPILE
