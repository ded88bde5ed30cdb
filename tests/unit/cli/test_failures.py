"""Errors leave petctl as a sentence on stderr and the right exit code, never as a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from petctl.cli.failures import run_to_exit_code
from petctl.cli.main import main
from petctl.errors import InternalError, NotFound, PetctlError, Unreachable


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch):
    """Makes the verb `list` raise what it is given."""
    from petctl.cli.list import command as verb

    def arrange(error: BaseException) -> None:
        def fail(**options: object) -> None:
            raise error

        monkeypatch.setattr(verb, "callback", fail)

    return arrange


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PetctlError("it broke"), 1),
        (NotFound("no job x"), 2),
        (Unreachable("no answer"), 1),
        (InternalError("our fault"), 70),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (BrokenPipeError(), 141),
    ],
)
def test_exit_codes(failing, error: BaseException, code: int, capfd: pytest.CaptureFixture[str]) -> None:
    failing(error)
    assert run_to_exit_code(["list"]) == code
    told = capfd.readouterr().err
    assert "Traceback" not in told
    if isinstance(error, PetctlError):
        assert told == f"petctl: {error}\n"


def test_an_unexpected_error_is_petctls_fault_and_keeps_its_traceback(
    failing, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    failing(ValueError("surprise"))
    assert run_to_exit_code(["list"]) == 70
    told = capfd.readouterr().err
    (report,) = home.glob("crash-*.log")
    assert str(report) in told and "Traceback" not in told
    assert "ValueError: surprise" in report.read_text()


def test_errors_follow_the_output_option(failing, capfd: pytest.CaptureFixture[str]) -> None:
    failing(NotFound("no job x"))
    assert run_to_exit_code(["list", "-o", "json"]) == 2
    captured = capfd.readouterr()
    assert json.loads(captured.err) == {"error": "no job x", "code": 2}
    assert captured.out == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["statsu"], "Did you mean status?"),
        (["lgos"], "Did you mean logs?"),
        (["train.py"], "petctl run train.py"),
        (["zzzzz"], "petctl --help"),
        (["status", "--wacth", "x"], "--watch"),
        (["run", "--node", "2", "x.py"], "--nodes"),
        (["status"], "JOB"),
        (["scale", "x", "many"], "many"),
        (["scale", "x", "0"], "0"),
        (["list", "--state", "runing"], "runing"),
        (["--nonsense"], "--nonsense"),
        (["cancel"], "which job"),
        (["rm"], "--finished"),
        (["wait"], "which job"),
        (["exec", "x"], "what is to be run"),
    ],
)
def test_wrong_words_exit_with_2_and_name_the_right_ones(
    words: list[str], told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_to_exit_code(words) == 2
    captured = capfd.readouterr()
    assert told in captured.err and captured.out == ""


@pytest.mark.parametrize("verb", ["sweep", "data", "secret", "cluster"])
def test_a_verb_that_needs_another_shows_its_help(verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_to_exit_code([verb]) == 2
    captured = capfd.readouterr()
    assert captured.err.startswith(f"Usage: petctl {verb} ") and captured.out == ""


@pytest.mark.parametrize("words", [["--version"], ["--help"], [], ["run", "-h"], ["secret", "--help"]])
def test_help_and_version_succeed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 0
    captured = capsys.readouterr()
    assert "petctl" in captured.out + captured.err


def test_a_verbs_exit_code_is_petctls(monkeypatch: pytest.MonkeyPatch) -> None:
    from petctl.cli.list import command as verb

    monkeypatch.setattr(verb, "callback", lambda **options: 37)
    assert run_to_exit_code(["list"]) == 37
