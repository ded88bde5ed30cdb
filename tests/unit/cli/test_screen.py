"""What reaches the terminal or the pipes: bytes as they were, prefixes where they help, one status line."""

from __future__ import annotations

import io
import sys

import pytest

from petctl.clusters.base import LogLine as Line
from petctl.console.screen import Screen


class Pipe(io.BytesIO):
    """Keeps what is written; counts the writes."""

    terminal = False

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.writes += 1
        return super().write(data)

    def isatty(self) -> bool:
        return self.terminal


class Terminal(Pipe):
    terminal = True


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch):
    def arrange(kind: type[Pipe]) -> tuple[Pipe, Pipe]:
        out, err = kind(), kind()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, write_through=True))
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(err, write_through=True))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        return out, err

    return arrange


def test_one_workers_bytes_pass_untouched(streams) -> None:
    out, err = streams(Pipe)
    screen = Screen(prefix=False)
    screen.lines([Line(1, 0, "out", b"a\xff\n"), Line(1, 0, "err", b"warning\n"), Line(1, 0, "out", b"no end")])
    screen.close()
    assert out.getvalue() == b"a\xff\nno end"
    assert err.getvalue() == b"warning\n"


def test_tasks_of_roles_go_by_their_names(streams) -> None:
    out, _ = streams(Pipe)
    screen = Screen(prefix=True, names=["ps 0", "worker 0"])
    screen.lines([Line(1, 0, "out", b"a\n"), Line(1, 1, "out", b"b\n"), Line(1, 2, "out", b"c\n")])
    assert out.getvalue() == b"[ps 0] a\n[worker 0] b\n[2] c\n"


def test_several_workers_lines_carry_their_rank(streams) -> None:
    out, err = streams(Pipe)
    screen = Screen(prefix=True)
    screen.lines([Line(1, 0, "out", b"a\n"), Line(1, 11, "out", b"b\n"), Line(1, 1, "err", b"c\n")])
    assert out.getvalue() == b"[0] a\n[11] b\n"
    assert err.getvalue() == b"[1] c\n"


def test_two_workers_never_share_a_line(streams) -> None:
    out, _ = streams(Pipe)
    screen = Screen(prefix=True)
    screen.lines([Line(1, 0, "out", b"10%"), Line(1, 0, "out", b" 20%")])
    screen.lines([Line(1, 1, "out", b"other\n"), Line(1, 0, "out", b"30%\n")])
    assert out.getvalue() == b"[0] 10% 20%\n[1] other\n[0] 30%\n"


def test_a_text_of_many_lines_is_prefixed_line_by_line(streams) -> None:
    out, _ = streams(Pipe)
    screen = Screen(prefix=True)
    screen.lines([Line(1, 2, "out", b"a\n\nb\nc"), Line(1, 2, "out", b"d\ne\n")])
    assert out.getvalue() == b"[2] a\n[2] \n[2] b\n[2] cd\n[2] e\n"


def test_a_line_that_is_written_over_keeps_its_rank(streams) -> None:
    out, _ = streams(Pipe)
    screen = Screen(prefix=True)
    screen.lines([Line(1, 0, "out", b"\r  0%"), Line(1, 0, "out", b"\r 50%"), Line(1, 1, "out", b"\r  0%\r")])
    screen.lines([Line(1, 1, "out", b" 50%"), Line(1, 0, "out", b"\r100%\n"), Line(1, 0, "out", b"\r")])
    screen.lines([Line(1, 1, "out", b"done\r\nbye\r\n")])
    assert out.getvalue() == (b"[0]   0%\r[0]  50%\n[1]   0%\r[1]  50%\n[0] 100%\n[1] done\r\n[1] bye\r\n")


def test_a_batch_leaves_in_one_write(streams) -> None:
    out, _ = streams(Pipe)
    Screen(prefix=True).lines([Line(1, k % 4, "out", b"line\n") for k in range(1000)])
    assert out.writes == 1
    assert out.getvalue().count(b"\n") == 1000


def test_petctls_own_words_go_to_stderr_only_and_quiet_means_none(streams) -> None:
    out, err = streams(Pipe)
    screen = Screen(prefix=False)
    screen.say("round 2: node 1 was lost")
    screen.status("never shown on a pipe")
    assert (out.getvalue(), err.getvalue()) == (b"", b"petctl: round 2: node 1 was lost\n")
    Screen(prefix=False, quiet=True).say("nothing")
    assert err.getvalue().count(b"\n") == 1


def test_the_status_line_makes_way_for_lines_and_comes_back(streams) -> None:
    _, err = streams(Terminal)
    screen = Screen(prefix=False)
    screen.status("running")
    screen.lines([Line(1, 0, "err", b"text\n")])
    screen.close()
    plain = err.getvalue().replace(b"\x1b[2mrunning\x1b[0m", b"<status>").replace(b"\r\x1b[2K", b"<erase>")
    assert plain == b"<status><erase>text\n<status><erase>"


def test_the_status_line_never_overwrites_an_unfinished_line(streams) -> None:
    _, err = streams(Terminal)
    screen = Screen(prefix=False)
    screen.lines([Line(1, 0, "err", b"name? ")])
    screen.status("running")
    assert err.getvalue() == b"name? "
    screen.say("cancelling")
    assert err.getvalue().startswith(b"name? \n\x1b[2mpetctl: cancelling")


def test_colours_only_where_they_are_wanted(streams, monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = streams(Terminal)
    Screen(prefix=True).lines([Line(1, 0, "out", b"a\n")])
    assert out.getvalue() == b"\x1b[36m[0] \x1b[0ma\n"
    out, _ = streams(Terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    Screen(prefix=True).lines([Line(1, 0, "out", b"a\n")])
    assert out.getvalue() == b"[0] a\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_colours_where_none_are_wanted(streams, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    out, err = streams(Terminal)
    monkeypatch.setenv(name, value)
    screen = Screen(prefix=True)
    screen.say("node 0 joined")
    screen.lines([Line(1, 0, "out", b"a\n")])
    screen.status("running")
    screen.close()
    assert b"\x1b[" not in (out.getvalue() + err.getvalue()).replace(b"\x1b[2K", b"")


STEERING = "a\x1b[2J\x1b]0;gotcha\x07b"
SPELT = b"a\\x1b[2J\\x1b]0;gotcha\\x07b"


def test_names_and_sentences_do_not_steer_the_terminal(streams) -> None:
    out, err = streams(Terminal)
    screen = Screen(prefix=True, names=[STEERING])
    screen.lines([Line(1, 0, "out", b"\x1b[1mthe worker's own\n"), Line(1, 0, "err", b"x\n")])
    screen.say(f"job {STEERING} runs")
    screen.complain(f"node {STEERING} was lost")
    screen.status(f"{STEERING} 1/2")
    screen.close()
    assert out.getvalue().count(SPELT) == 1 and b"\x1b[1mthe worker's own\n" in out.getvalue()
    assert err.getvalue().count(SPELT) == 4
    assert b"\x07" not in out.getvalue() + err.getvalue() and b"\x1b[2J" not in out.getvalue() + err.getvalue()


def test_a_pipe_gets_names_as_they_are(streams) -> None:
    out, err = streams(Pipe)
    screen = Screen(prefix=True, names=[STEERING])
    screen.lines([Line(1, 0, "out", b"x\n")])
    screen.say(STEERING)
    screen.close()
    assert out.getvalue() == f"[{STEERING}] x\n".encode() and err.getvalue() == f"petctl: {STEERING}\n".encode()
