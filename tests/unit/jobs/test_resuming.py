"""A job goes on from the checkpoints of another where these outlive it, and only when nobody writes them any more."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from petctl.clusters.kubernetes.build_record import build_record
from petctl.errors import UsageError
from petctl.job.record import JobRecord
from petctl.job.spec import Job
from petctl.jobs import api
from tests.unit.records import job_record

VARIABLE = "PETCTL_CHECKPOINT_DIR"


class Before:
    """A job that was submitted once."""

    id, cluster = "train-3f9k", "k8s"

    def __init__(self, directory: str, env: dict[str, str], final: bool, cwd: str = "/") -> None:
        task = {"python": "python3", "checkpoint_dir": directory, "cwd": cwd}
        self._record = job_record(self.id, task, cwd=cwd, cluster="k8s", job={"script": "train.py", "env": env})
        self._final = final

    def record(self) -> JobRecord:
        return self._record

    def status(self) -> Any:
        return SimpleNamespace(final=self._final)


def resumed(
    monkeypatch: pytest.MonkeyPatch, directory: str, env: dict[str, str], final: bool = True, cwd: str = "/"
) -> Job:
    submitted: list[Job] = []
    monkeypatch.setattr(api, "get", lambda reference: Before(directory, env, final, cwd))
    monkeypatch.setattr(api, "find_cluster", lambda name, home: None)
    monkeypatch.setattr(api, "_submit", lambda job, where, code: submitted.append(job))
    api.resubmit("3f9k", resume=True)
    return submitted[0]


def test_a_directory_that_is_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert resumed(monkeypatch, str(tmp_path), {"A": "b"}).env == {"A": "b", VARIABLE: str(tmp_path)}


@pytest.mark.parametrize(("recorded", "working"), [("", ""), ("/home/somebody/project", "/home/somebody/project")])
def test_a_job_made_without_a_directory_gets_none(
    monkeypatch: pytest.MonkeyPatch, recorded: str, working: str, tmp_path: Path
) -> None:
    assert str(resumed(monkeypatch, str(tmp_path), {}, cwd=recorded).cwd) == working


@pytest.mark.parametrize(
    ("job", "working"),
    [
        (Job(program=["train"], code="none"), ""),
        (Job(program=["train"], code="none", cwd="/srv/project"), "/srv/project"),
        (Job(program=["/bin/true"]), ""),  # a home directory is not taken along
        (Job(script="train.py"), "here"),  # relative to the code
    ],
)
def test_pods_begin_where_they_did(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, job: Job, working: str) -> None:
    here = tmp_path / "project"
    here.mkdir()
    (here / "train.py").write_text("")
    if working == "here":
        (here / "petctl.yaml").write_text("{}")
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(here if not (job.code or working) else tmp_path))
    settings = {"name": "k8s", "kind": "kubernetes", "image": "example.org/image:1"}
    first = build_record(job, "train-3f9k", tmp_path / "home", "team", settings, None)
    before = SimpleNamespace(id="train-3f9k", cluster="k8s", record=lambda: first)
    submitted: list[tuple[Job, Any]] = []
    monkeypatch.setattr(api, "get", lambda reference: before)
    monkeypatch.setattr(api, "find_cluster", lambda name, home: None)
    monkeypatch.setattr(api, "_submit", lambda job, where, code: submitted.append((job, code)))
    monkeypatch.chdir(tmp_path)  # from wherever it is said
    api.resubmit("train-3f9k")
    [(again, code)] = submitted
    assert again.cwd == (str(here) if working == "here" else working)
    second = build_record(again, "train-4b2c", tmp_path / "home", "team", settings, code)
    assert second.task.cwd == first.task.cwd
    assert second.code.get("id") == first.code.get("id")


def test_a_directory_of_a_volume_that_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resumed(monkeypatch, "/mnt/runs/a", {VARIABLE: "/mnt/runs/a"}).env == {VARIABLE: "/mnt/runs/a"}


def test_what_went_with_the_nodes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=rf"train-3f9k were deleted with its nodes.*-e {VARIABLE}=DIRECTORY"):
        resumed(monkeypatch, "/nowhere/checkpoints", {})


def test_a_job_that_still_writes_is_not_resumed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"train-3f9k has not ended.*petctl cancel train-3f9k"):
        resumed(monkeypatch, str(tmp_path), {}, final=False)
