"""Outputs of a job: how people may write them, and which ids there cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from petctl.agent.workers.environment import output_variable
from petctl.cli.job_options import build_job
from petctl.cli.jobs.run import command as run
from petctl.errors import SpecError, UsageError
from petctl.job.file.read import job_from_dict
from petctl.job.file.write import job_to_dict
from petctl.job.spec import Job
from petctl.job.spec.folders import variable_of


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (["model", "a-b_C"], {"model": "", "a-b_C": ""}),
        ("model samples", {"model": "", "samples": ""}),
        ({"model": "s3://b/x", "samples": None}, {"model": "s3://b/x", "samples": ""}),
        ([], {}),
    ],
)
def test_ways_of_writing(written: Any, meant: dict[str, str]) -> None:
    job = Job(script="a.py", outputs=written)
    assert job.outputs == meant
    assert job_from_dict(job_to_dict(job)) == job


@pytest.mark.parametrize(
    "wrong", [["a/b"], [""], ["ä"], ["a b"], ["x" * 65], {"../x": ""}, 7, ["a", "a"], ["a-b", "A_b"]]
)
def test_bad_ids_are_named(wrong: Any) -> None:
    with pytest.raises(SpecError, match="outputs"):
        Job(script="a.py", outputs=wrong)


def test_the_variable_is_the_same_on_both_sides() -> None:
    for name in ("model", "a-b_C", "7"):
        assert variable_of(name) == output_variable(name)
    assert output_variable("a-b") == "PETCTL_OUTPUT_A_B"


def job_of(*words: str) -> Job:
    with run.make_context("run", list(words)) as ctx:
        return build_job(ctx.params)


def test_on_the_command_line(tmp_path: Any) -> None:
    job = job_of("--store", "s3://b/runs", "--out", "model", "--out", "logs=az://a/c/x=y", "train.py")
    assert job.store == "s3://b/runs" and job.outputs == {"model": "", "logs": "az://a/c/x=y"}
    file = tmp_path / "job.yaml"
    file.write_text("script: a.py\nstore: s3://file/x\noutputs: [one]\n")
    job = job_of("--out", "two", str(file))
    assert job.store == "s3://file/x" and list(job.outputs) == ["one", "two"]
    for wrong in ("=x", "model="):
        with pytest.raises(UsageError, match="ID=LOCATION"):
            job_of("--out", wrong, "train.py")
