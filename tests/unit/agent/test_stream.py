"""Lines with a tag, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petctl.agent.logs.log_files import LogName
from petctl.agent.logs.log_follow import Chunk
from petctl.agent.logs.stream import LineTagger, parse_tagged

NAMES = st.builds(LogName, st.integers(0, 9999), st.integers(0, 9999), st.sampled_from(["out", "err"]))


def test_the_form() -> None:
    tagger = LineTagger()
    shown = [
        tagger.prefix(Chunk(LogName(1, 3, "out"), b"a\nb\n")),
        tagger.prefix(Chunk(LogName(12, 0, "err"), b"50%")),
        tagger.prefix(Chunk(LogName(12, 0, "err"), b"\n")),
    ]
    assert b"".join(shown) == b"[3.1] a\n[3.1] b\n[0.12!] 50%\n[0.12!] \n"


@given(st.lists(st.tuples(NAMES, st.binary(max_size=30)), max_size=5))
def test_every_line_comes_back_with_its_rank_round_and_stream(chunks: list[tuple[LogName, bytes]]) -> None:
    tagger = LineTagger()
    shown = b"".join(tagger.prefix(Chunk(name, data)) for name, data in chunks)
    assert not shown or shown.endswith(b"\n")
    found = [parse_tagged(line + b"\n") for line in shown.split(b"\n")[:-1]]
    wanted = [Chunk(name, line + b"\n") for name, data in chunks for line in data.removesuffix(b"\n").split(b"\n")]
    assert found == wanted


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"03:14:15 0: leaves",
        b"[petctl: 7 lines dropped, the reader is slow]",
        b"[1]: text",
        b"[1.2]text",
        b"[-1.2] x",
    ],
)
def test_other_lines_are_nobodys(line: bytes) -> None:
    assert parse_tagged(line) is None
