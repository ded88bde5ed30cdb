"""Errors leave petctl as a sentence on stderr and the right exit code, never as a traceback."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from petctl.cli.failures import run_to_exit_code
from petctl.cli.main import main
from petctl.errors import InternalError, NotFound, PetctlError, Unreachable


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch):
    """Makes the verb `list` raise what it is given."""
    from petctl.cli.jobs.list import command as verb

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
        (["cancel"], "no job given"),
        (["rm"], "--finished"),
        (["wait"], "no job given"),
        (["exec", "x"], "nothing to run"),
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
    from petctl.cli.jobs.list import command as verb

    monkeypatch.setattr(verb, "callback", lambda **options: 37)
    assert run_to_exit_code(["list"]) == 37


@pytest.mark.parametrize("kept", ["file", "file/home"])
def test_a_home_that_cannot_be_used_is_not_petctls_fault(
    kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / kept))
    assert run_to_exit_code(["list"]) == 2
    told = capfd.readouterr().err
    assert told == (
        f"petctl: cannot write to {tmp_path / kept}: {tmp_path / 'file'} is not a directory; "
        "name another directory with PETCTL_HOME\n"
    )


def test_a_home_that_is_read_only_is_not_petctls_fault(
    failing, home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # whoever runs the tests may write everywhere
    failing(OSError(errno.EROFS, "Read-only file system", str(home)))
    assert run_to_exit_code(["list"]) == 2
    assert f"no permission to write to {home}; name another" in capfd.readouterr().err


def test_the_report_of_a_fault_is_in_petctls_home(
    failing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PETCTL_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    failing(ValueError("surprise"))
    assert run_to_exit_code(["list"]) == 70
    (report,) = (tmp_path / "state/petctl").glob("crash-*.log")
    assert str(report) in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["run", "--lr", "0.1", "train.py"],
            "no such option '--lr'. Options for your script go after it: petctl run COMMAND --lr",
        ),
        (
            ["submit", "--node", "3", "train.py"],
            "no such option '--node'. Did you mean --nodes? Options for your script",
        ),
        (["list", "--foo"], "no such option '--foo'."),
    ],
)
def test_options_of_the_script_stand_behind_it(words: list[str], told: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_to_exit_code(words) == 2
    assert capfd.readouterr().err.startswith(f"petctl: {told}")


def test_where_help_is_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_to_exit_code(["frobnicate"]) == 2
    assert capfd.readouterr().err.count("--help") == 1


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("petctl", ["completion", "bash"]),
        ("petctl", ["list", "-o", "json"]),
        ("petctl", ["--help"]),
        ("petctl", ["--version"]),
        ("petctl.compat.batchai.cli.batchai", ["--help"]),
        ("petctl.agent", ["--help"]),
        ("petctl.agent", ["version"]),
    ],
)
def test_a_full_disk_under_the_output_is_not_petctls_fault(program: str, words: list[str], home: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", program, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    (told,) = done.stderr.splitlines()
    assert "cannot write the output: no space left on" in told.lower()
    assert done.returncode == 1
    assert not list(home.glob("crash-*"))


def test_words_that_cannot_be_said_leave_the_code(home: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "petctl", "status", "nope"], stderr=full, timeout=60)
    assert done.returncode == 2
