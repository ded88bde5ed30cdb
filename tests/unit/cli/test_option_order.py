"""petctl's options behind a job file are petctl's; behind a script they are the script's, with a hint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from petctl.cli.failures import run_to_exit_code
from petctl.cli.job_options import prepare_job
from petctl.cli.jobs.run import command as run

JOB = "script: train.py\nargs: [--lr, '${LR}']\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "train.py").write_text("parser.add_argument('--name')\nfields = dict(max_time=3)\n")
    return tmp_path


def job_of(*words: str) -> Any:
    above = click.Context(click.Group("petctl"), info_name="petctl")
    with run.make_context("run", list(words), above) as context:
        return prepare_job({"detach": False, **context.params}).job


@pytest.mark.parametrize(
    "words",
    [
        ["job.yaml", "--set", "LR=0.1", "-n", "2"],
        ["job.yaml", "--set=LR=0.1", "-n2"],
        ["--set", "LR=0.1", "job.yaml", "-qn", "2"],
        ["-n", "2", "--set", "LR=0.1", "job.yaml"],
        ["job.yaml", "-n", "2", "--set", "LR=0.1", "--"],
    ],
)
def test_options_count_on_both_sides_of_a_job_file(words: list[str]) -> None:
    job = job_of(*words)
    assert (job.command.words, job.nodes.min) == (["train.py", "--lr", "0.1"], 2)


@pytest.mark.parametrize(
    ("words", "args"),
    [
        (["--", "-n", "5"], ["-n", "5"]),
        (["--epochs", "3", "-n", "5"], ["--epochs", "3", "-n", "5"]),
        (["more", "-n", "5"], ["more", "-n", "5"]),
        (["-"], ["-"]),
    ],
)
def test_what_follows_is_for_the_command(words: list[str], args: list[str]) -> None:
    job = job_of("job.yaml", "--set", "LR=0.1", *words)
    assert job.command.words == ["train.py", "--lr", "0.1", *args] and job.nodes.min == 1


def test_the_code_may_stand_in_front_of_the_job_file(project: Path) -> None:
    job = job_of("./", "job.yaml", "--set", "LR=0.1", "-n", "2")
    assert (job.code, job.nodes.min) == ("./", 2)


def test_behind_a_script_they_are_the_scripts_and_a_hint_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    job = job_of("train.py", "--restarts", "3", "--name", "x", "--max-time=9", "-n", "5")
    assert job.command.words == ["train.py", "--restarts", "3", "--name", "x", "--max-time=9", "-n", "5"]
    told = capfd.readouterr().err.splitlines()
    assert told == [
        f"petctl: {name} after train.py goes to the script; for petctl put it before: petctl run {name} ... train.py"
        for name in ("--restarts", "-n")
    ]


@pytest.mark.parametrize("words", [["-q", "train.py", "-n", "5"], ["train.py", "--", "-n", "5"], ["git", "-n", "5"]])
def test_there_is_no_hint_where_it_is_clear(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    job_of(*words)
    assert capfd.readouterr().err == ""


def test_render_fills_in_values_behind_the_job_file(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_to_exit_code(["render", "job.yaml", "--set", "LR=0.25"]) == 0
    assert "0.25" in capfd.readouterr().out
