"""docs/job-file.md names every field, and its examples are true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from petctl.job.file.read import FILE_FIELDS, job_from_dict, read_job
from petctl.job.file.yaml_text import parse_yaml
from petctl.job.spec import Job, Rendezvous, format_duration
from petctl.job.spec.document import Builder

PAGE = (Path(__file__).parents[3] / "docs" / "job-file.md").read_text()
LINES = [line for line in PAGE.splitlines() if line.startswith("| `")]
ROWS = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in LINES]
ROW_NAMES = [row[0].strip("`") for row in ROWS]
ONLY_WITH = {"roles": "plain", "processes": "mpi", "mpi_options": "mpi"}  # fields that one launcher has


def test_every_field_is_on_the_page() -> None:
    top = {name.partition(".")[0] for name in ROW_NAMES}
    assert top == set(FILE_FIELDS)
    assert {name.partition(".")[2] for name in ROW_NAMES if name.startswith("rendezvous.")} == set(
        Rendezvous.__struct_fields__
    )
    for name in Job.__struct_fields__:
        assert f"`{name}`" in PAGE or f"`{name}." in PAGE or f"`{name}=" in PAGE, name


@pytest.mark.parametrize("row", ROWS, ids=ROW_NAMES)
def test_the_example_of_each_field_parses(row: list[str]) -> None:
    example = row[-2].strip("`").replace(r"\|", "|")
    name = row[0].strip("`").partition(".")[0]
    assert example.startswith(f"{name}: ")
    data = parse_yaml(example, Builder("example")).root
    assert isinstance(data, dict)
    needed = {} if {"script", "module", "program", "shell"} & set(data) else {"script": "a.py"}
    launcher = {"launcher": ONLY_WITH[name]} if name in ONLY_WITH else {}
    job = job_from_dict({**needed, **launcher, **data})
    assert job != job_from_dict({"script": "a.py", **launcher}) or name == "cluster"


@pytest.mark.parametrize("name", Rendezvous.__struct_fields__)
def test_the_defaults_of_the_rendezvous_are_true(name: str) -> None:
    written = ROWS[ROW_NAMES.index(f"rendezvous.{name}")][1].strip("`")
    assert getattr(job_from_dict({"script": "a", "rendezvous": {name: written}}).rendezvous, name) == getattr(
        Rendezvous(), name
    ), format_duration(getattr(Rendezvous(), name))


@pytest.mark.parametrize("name", ["nodes", "procs", "launcher", "listen", "restarts", "grace", "priority"])
def test_the_defaults_are_true(name: str) -> None:
    written = ROWS[ROW_NAMES.index(name)][2].strip("`")
    assert getattr(job_from_dict({"script": "a", name: written}), name) == getattr(Job(script="a"), name)


def test_the_examples_of_whole_files_parse(tmp_path: Path) -> None:
    files = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert len(files) == 2
    for number, text in enumerate(files):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        read_job(path, {"LR": "0.1"} if "${LR}" in text else {})
    assert read_job(tmp_path / "0.yaml").command.words == ["train.py", "--epochs", "20", "--lr", "0.10"]
