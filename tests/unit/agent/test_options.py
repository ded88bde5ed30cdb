"""The words of the agent's command line."""

from __future__ import annotations

import pytest

from petctl.agent.node.cli import main
from petctl.agent.node.options import parse_join
from petctl.errors import UsageError


def test_all_options_in_both_spellings() -> None:
    words = ["--file=F", "--node", "a", "--address=10.0.0.1", "--state-dir", "/s", "--gpus", "0,1", "--stream"]
    options = parse_join(words)
    assert options[:2] == ("F", "a") and options[3:] == ("10.0.0.1", "/s", "0,1", None, True, False, None, "", False)
    assert parse_join(["--file", "F", "--nominal-gpus", "4"]).nominal_gpus == 4
    assert parse_join(["--file", "F", "-v"]).verbose and parse_join(["--file", "F", "--verbose"]).verbose
    options = parse_join(["--file=F", "--stream", "--tagged", "--replacement=2+1", "--leave-code", "91"])
    assert (options.stream, options.tagged, options.leave_code) == (True, True, 91)
    assert options.incarnation.startswith("00000003-")


def test_every_start_is_a_new_incarnation_with_a_readable_name() -> None:
    first, second = (parse_join(["--file", "F"], host=lambda: "My Host!.example.org") for _ in range(2))
    assert first.node.startswith("My-Host-") and first.node != second.node
    assert first.incarnation != second.incarnation


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "--file"),
        (["--file"], "needs a value"),
        (["--fiel", "F"], "'--fiel'"),
        (["--file", "F", "--node", "a/b"], "a/b"),
        (["--file", "F", "--nominal-gpus", "x"], "not a number"),
        (["--file", "F", "--gpus", "0", "--nominal-gpus", "1"], "not both"),
        (["--file", "F", "--stream=1"], "no value"),
        (["--file", "F", "--tagged"], "--stream"),
        (["--file", "F", "--replacement", "1-2"], "1-2"),
        (["--file", "F", "--leave-code", "256"], "0 to 255"),
        (["F"], "'F'"),
    ],
)
def test_wrong_words_are_named(words: list[str], part: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_join(words)
    assert part in str(error.value)


def test_help_has_an_example_and_errors_have_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0 and main(["join", "--help"]) == 0
    assert "petctl-agent.pyz join --file" in capsys.readouterr().out
    assert main([]) == 2
    capsys.readouterr()
    assert main(["jion"]) == 2
    assert capsys.readouterr().err == "petctl-agent: unknown command 'jion'; use join, version or --help\n"
