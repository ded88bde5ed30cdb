"""The folders of a job: every way of writing them, back to the same text, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from petctl.errors import SpecError
from petctl.job.file.read import job_from_dict, read_job
from petctl.job.file.write import job_to_dict
from petctl.job.spec import Job
from petctl.job.spec.folders import Folder, parse_folder_option


@pytest.mark.parametrize(
    ("written", "held", "plain"),
    [
        (None, "all", None),
        ([], "all", None),
        ("none", "none", "none"),
        (["data", "./data/voc20/"], {"data": Folder(), "data/voc20": Folder()}, ["data", "data/voc20"]),
        ({"data": "s3://b/x", "own": None}, {"data": Folder(location="s3://b/x"), "own": Folder()}, ...),
        ({"out": {"location": "s3://b/x", "mode": "rw"}}, {"out": Folder(location="s3://b/x", mode="rw")}, ...),
        ({"out": {"mode": "sync"}}, {"out": Folder(mode="sync")}, {"out": {"mode": "sync"}}),
    ],
)
def test_folders_are_read_and_written(written: Any, held: Any, plain: Any) -> None:
    job = Job(script="a.py", folders=written)
    assert job.folders == held
    data = job_to_dict(job)
    if plain is not ...:
        assert data.get("folders") == plain
    assert job_from_dict(data) == job


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("folders: some", r"job.yaml:2:10: folders: expected a list of folders"),
        ("folders: [data, ../up]", r"job.yaml:2:17: folders\[1\]: the name of a folder is a path"),
        ("folders: {data: {mode: all}}", r"folders.data.mode: expected ro or rw or sync"),
        ("folders: {data: {plac: s3://b}}", r"unknown field; did you mean 'location'|unknown field"),
        ("folders: [data, data/]", r"'data' is named twice"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "job.yaml").write_text(f"script: a.py\n{text}\n")
    with pytest.raises(SpecError, match=sentence):
        read_job(tmp_path / "job.yaml")


def test_the_option_of_the_command_line() -> None:
    assert parse_folder_option("data/voc20") == ("data/voc20", Folder())
    assert parse_folder_option("data=s3://b/x") == ("data", Folder(location="s3://b/x"))
    assert parse_folder_option("out=s3://b/x,rw") == ("out", Folder(location="s3://b/x", mode="rw"))
    assert parse_folder_option("out=s3://b/a,b") == ("out", Folder(location="s3://b/a,b"))
    for text in ("data=", "=s3://b", "../x=s3://b", "data=,rw"):
        with pytest.raises(SpecError):
            parse_folder_option(text)
