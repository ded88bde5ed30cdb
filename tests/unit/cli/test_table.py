"""A table on a terminal keeps its columns, however narrow that is."""

from __future__ import annotations

import io
import sys

import click
import pytest

from petctl.cli.terminal.table import print_table

HEADER = ["ID", "STATE", "NODES", "COMMAND"]
ROW = ["mnist-3f9k", "running", "2/2", "train.py --learning-rate 0.1 --data /srv/data"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch):
    """What a terminal of so many columns shows."""

    def show(columns: int, row: list[str] = ROW) -> list[list[str]]:
        monkeypatch.setattr(sys, "stdout", out := Terminal())
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        print_table(HEADER, [row])
        return [line.rstrip().split(maxsplit=3) for line in click.unstyle(out.getvalue()).splitlines()]

    return show


def test_the_widest_column_is_cut(printed) -> None:
    header, row = printed(60)
    assert header == HEADER
    assert row[:3] == ROW[:3] and row[3].startswith("train.py --learning-rate") and row[3].endswith("…")


def test_a_long_id_is_never_cut(printed) -> None:
    row = ["a-very-long-name-of-a-job-that-nobody-shortened-3f9k", "running", "2/2", "train.py --lr 0.1"]
    _, shown = printed(60, row)
    assert shown == [*row[:3], "train.py …"]


def test_no_column_is_lost_on_a_narrow_terminal(printed) -> None:
    header, row = printed(20)
    assert header == HEADER
    assert row == [*ROW[:3], "train.py …"]


def test_a_wide_terminal_shows_everything(printed) -> None:
    assert printed(200) == [HEADER, ROW]


def test_names_do_not_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", out := Terminal())
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_table(HEADER, [["a\x1b[2J", "running", "\x1b]0;gotcha\x07", "gpj\u202e.exe"]])
    seen = out.getvalue()
    assert all(word in seen for word in ("a\\x1b[2J", "\\x1b]0;gotcha\\x07", "gpj\\u202e.exe"))
    assert "\x1b[2J" not in seen and "\x07" not in seen and "\u202e" not in seen
