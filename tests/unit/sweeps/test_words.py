"""The words of `petctl sweep`: parameters are filled wherever they are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from petctl.cli.job_options import CONTEXT, job_options
from petctl.cli.sweeps.points import jobs_of, points_of, takes_names
from petctl.cli.sweeps.sweep import command
from petctl.errors import NotFound, SpecError, UsageError
from petctl.job.spec import Job


@click.command(context_settings=CONTEXT)
@job_options()
def _options(**options: Any) -> dict[str, Any]:
    return options


WHOLE = {option.name for option in _options.params if option.type is click.INT}
takes_names(_options)


def jobs(*words: str, **point: str) -> list[Job]:
    return jobs_of(_options.main(list(words), standalone_mode=False), [point])


def job(*words: str, **point: str) -> Job:
    return jobs(*words, **point)[0]


@pytest.fixture
def job_file(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(
        "script: train.py\n"
        'args: --lr ${lr} --out "out ${lr}"\n'
        "nodes: ${nodes}\n"
        "env: {RATE: '${lr}', PLAIN: '$${lr}'}\n"
        "prepare: echo ${lr} ${HOME}\n"
        "labels: {who: '${who}'}\n"
    )
    return str(path)


def test_words_and_options_of_the_command_line() -> None:
    made = job("-n", "${n}", "-e", "A=${lr}-${lr}", "--label", "rate=${lr}", "train.py", "--lr=${lr}", lr="0.1", n="2")
    assert made.command.words == ["train.py", "--lr=0.1"]
    assert (made.env, made.labels, str(made.nodes)) == ({"A": "0.1-0.1"}, {"rate": "0.1"}, "2")


def test_options_that_are_whole_numbers() -> None:
    words = ("--restarts", "${n}", "--gpus", "1${n}", "--priority", "-${n}", "--launcher", "mpi", "--processes", "${n}")
    made = job(*words, "train.py", n="2")
    assert (made.restarts, made.resources.gpus, made.priority, made.processes) == (2, 12, -2, 2)
    assert job("--restarts", "3", "train.py", n="2").restarts == 3
    assert not {option.name for option in _options.params if option.type is click.INT} and len(WHOLE) == 4


@pytest.mark.parametrize(
    "value, why",
    [("1.5", r"--restarts: '1.5' is not a whole number"), ("-1", "restarts: expected a whole number of 0")],
)
def test_a_point_whose_value_is_no_whole_number_is_told(value: str, why: str) -> None:
    options = _options.main(["--restarts", "${n}", "train.py"], standalone_mode=False)
    with pytest.raises(SpecError, match=rf"(?s){why}.*in the point n={value}"):
        jobs_of(options, [{"n": "1"}, {"n": value}])


def test_options_of_the_sweep_itself_are_not_filled() -> None:
    for words in (["--restarts", "x"], ["-j", "${n}"], ["--seed", "${n}"]):
        with pytest.raises(click.BadParameter, match="is not a valid integer"):
            command.main(["run", *words, "-p", "n=1", "train.py"], standalone_mode=False)


def test_a_value_stays_one_word_and_is_not_looked_into() -> None:
    assert job("train.py", "${a}", a="x ${b} 'y'").command.words == ["train.py", "x ${b} 'y'"]


def test_in_a_shells_line_other_names_are_the_shells() -> None:
    assert job("--shell", "echo ${lr} ${HOME}", lr="1").command.words == ["echo 1 ${HOME}"]


def test_a_slip_of_the_pen_is_told() -> None:
    with pytest.raises(UsageError, match=r"no parameter 'lrr'.*did you mean 'lr'"):
        job("train.py", "${lrr}", lr="1")
    assert job("train.py", "$${lrr}", lr="1").command.words == ["train.py", "${lrr}"]


def test_every_value_of_a_job_file(job_file: str) -> None:
    made = job("--set", "who=me", job_file, "--more", "${lr}", lr="0.1", nodes="3", unused="x")
    assert made.command.words == ["train.py", "--lr", "0.1", "--out", "out 0.1", "--more", "0.1"]
    assert made.env == {"RATE": "0.1", "PLAIN": "${lr}"}
    assert (made.prepare, made.labels, made.nodes.max) == ("echo 0.1 ${HOME}", {"who": "me"}, 3)


def test_what_a_value_does_to_a_job_is_checked_for_each_point(job_file: str) -> None:
    options = _options.main(["--set", "who=me", job_file], standalone_mode=False)
    with pytest.raises(SpecError, match=r"(?s)job.yaml:3.*in the point lr=1 nodes=many"):
        jobs_of(options, [{"lr": "1", "nodes": "1"}, {"lr": "1", "nodes": "many"}])


def test_a_parameter_has_one_value(job_file: str) -> None:
    with pytest.raises(UsageError, match="lr is a parameter"):
        job("--set", "who=me", "--set", "lr=2", job_file, lr="0.1", nodes="1")


def test_a_batch_ai_file_has_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(
        '{"nodeCount": 1, "customToolkitSettings": {"commandLine": "echo $PARAM_LR"}, "stdOutErrPathPrefix": "/tmp"}'
    )
    assert job(str(path), lr="1").command.kind == "shell"
    path.write_text(path.read_text().replace("$PARAM_LR", "${lr}"))
    with pytest.raises(UsageError, match=r"write \$PARAM_LR"):
        job(str(path), lr="1")


def test_which_points() -> None:
    assert points_of(["a=1,2"], None, None, None) == [{"a": "1"}, {"a": "2"}]
    assert len(points_of(["a=1:9"], 4, None, None)) == 4
    for arguments in (([], None, None, None), (["a=1"], None, 3, None), (["a=1", "A=2"], None, None, None)):
        with pytest.raises(UsageError):
            points_of(*arguments)


def test_points_of_a_file_and_parameters_are_combined(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("a,b\n1,2\n3,4\n")
    points = points_of(["c=x,y"], None, None, str(path))
    assert [tuple(point.values()) for point in points] == [
        ("1", "2", "x"),
        ("1", "2", "y"),
        ("3", "4", "x"),
        ("3", "4", "y"),
    ]
    with pytest.raises(UsageError, match="twice"):
        points_of(["a=1"], None, None, str(path))


def test_words_that_are_no_verb_begin_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path))
    with pytest.raises(NotFound, match="there is no sweep 'tune'"):
        command.main(["status", "tune"], standalone_mode=False)
    for words in (["train.py"], ["-q", "train.py"], ["run", "train.py"], ["-q", "status"]):
        with pytest.raises(UsageError, match="no parameters"):
            command.main(words, standalone_mode=False)
