"""The words of `coordinate`, and that the archive's command line has them beside the agent's."""

from __future__ import annotations

from pathlib import Path

import pytest

from petctl.controller.cli import main
from petctl.controller.options import parse_coordinate
from petctl.errors import UsageError

WORDS = ["--job=/j", "--state", "s", "--replacement", "2", "--listen", "0.0.0.0", "--port=7700", "--message", "/m"]


def test_all_options() -> None:
    state = Path("s").absolute()
    assert parse_coordinate(WORDS) == (Path("/j"), state, 2, "0.0.0.0", 7700, Path("/m"), False)
    assert parse_coordinate([*WORDS, "--nobody"]).nobody


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("1+2", 3), ("4+", 4), ("+", 0), (" 1 + 1 ", 2)])
def test_counters_are_added_up(text: str, number: int) -> None:
    assert parse_coordinate([*WORDS, "--replacement", text]).replacement == number


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--port", "0"], "not a port"),
        (["--port", "70000"], "not a port"),
        (["--replacement", "one"], "'one' is not a number"),
        (["--replacement", "$(A)+1"], "not a number"),
        (["--message", ""], "needs --message"),
        (["--join", "x"], "coordinate has no option '--join'"),
        (["--job"], "needs a value"),
        (["--nobody=yes"], "--nobody takes no value"),
    ],
)
def test_wrong_words_are_named(words: list[str], part: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_coordinate([*WORDS, *words])
    assert part in str(error.value)


def test_help_of_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["coordinate", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: petctl-agent coordinate")
    assert main(["join", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: petctl-agent join")
    assert main(["jion"]) == 2
    assert "use join, coordinate, " in capsys.readouterr().err
    assert main(["coordinate"]) == 2
    assert "coordinate needs --job" in capsys.readouterr().err
