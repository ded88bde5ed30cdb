"""Runs: their ids, what is said of their code, and what a run's record tells of what was asked for."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from petctl.compat.act import runs
from petctl.compat.act.compile import RunRequest, job_of
from petctl.compat.act.config.accounts import Account
from petctl.compat.act.config.config import BlobFolder, Config, find_config
from petctl.compat.act.pins import Pin, last_pin, pin
from petctl.compat.act.runs import code_for, find_run, new_run_id, own_config, wish_of
from petctl.errors import NotFound, UsageError
from petctl.job.file.write import job_to_dict
from petctl.job.record import JobRecord
from petctl.job.spec import Job
from petctl.jobs.names import checked_id
from tests.unit.records import job_record


class Before:
    """A run that is to be replaced."""

    id = "run"

    def __init__(self, job: Job, source: str = "") -> None:
        self._record = job_record(job=job_to_dict(job), code={"source": source})

    def record(self) -> JobRecord:
        return self._record

    def status(self) -> Any:
        return SimpleNamespace(final=False)

    def cancel(self) -> str:
        return "cancelling"

    def wait(self) -> None:
        pass


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A project of one file, with nothing pinned."""
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    Path("train.py").write_text("print()")
    return Config(experiment="jianfw", launcher="elastic")


@pytest.mark.parametrize(
    ("experiment", "begins"),
    [("jianfw", "jianfw_"), ("My Team/x", "my-team-x_"), ("__", "act_"), ("", "act_"), ("e" * 99, "e" * 43 + "_")],
)
def test_ids_are_those_of_the_document(experiment: str, begins: str) -> None:
    made = checked_id(new_run_id(experiment))
    assert made.startswith(begins) and re.fullmatch(r"_\d{10}_[0-9a-f]{8}", made[len(begins) - 1 :])


@pytest.mark.parametrize("reference", ["60ce2fc7", "assets/x_1_60ce2fc7/", "/p/assets/x_1_60ce2fc7"])
def test_an_id_may_be_the_directory_of_its_logs(config: Config, reference: str) -> None:
    with pytest.raises(NotFound, match=r"there is no run '[^/]*60ce2fc7'; `act query` shows them all$"):
        find_run(reference)


def test_what_is_said_of_the_code(config: Config) -> None:
    said: list[str] = []
    first = code_for(config, False, said.append)
    assert said.pop().startswith("no code is pinned yet: pinned 1 file (7 bytes)")
    assert code_for(config, False, said.append) == first and said == []

    Path("train.py").write_text("print(2)")
    Path("more.py").write_text("")
    assert code_for(config, False, said.append).id == first.id
    (warning,) = said
    assert "has changed since it was pinned" in warning and "(more.py, train.py)" in warning and "a init" in warning

    said.clear()
    second = code_for(config, True, said.append)
    assert second.id != first.id and said.pop().startswith("pinned 2 files")
    assert code_for(replace(config, auto_init=True), False, said.append).id == second.id and said == []
    Path("more.py").unlink()
    assert code_for(replace(config, auto_init=True), False, said.append).files == 1
    assert said.pop().startswith("pinned 1 file")


def test_a_folder_that_is_mapped_later_is_code_no_longer(config: Config) -> None:
    Path("models").mkdir()
    Path("models/big").write_text("")
    assert pin(config).files == 2
    said: list[str] = []
    later = replace(config, folders={"models": BlobFolder("az://a/b/models", Account("a", "b"))})
    assert code_for(later, False, said.append).files == 1
    assert said == [f"models was not a mapped folder when the code was pinned: {last_pin(later).sentence()}"]  # type: ignore[union-attr]


def test_an_image_that_cannot_run_here_does_not_let_its_password_into_the_code(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("petctl.yaml").write_text("clusters: {local: {container: /nowhere/podman}}\n")
    Path("aux_data/aml").mkdir(parents=True)
    Path("aux_data/aml/aml.yaml").write_text(
        "docker: {image: registry.example/x, username: me, password: topsecret}\ngpu_per_node: 1\n"
    )
    plans: list[tuple[str, Pin]] = []

    def planned(config: Config, job: Job, pinned: Pin) -> None:
        plans.append((job.image, pinned))

    monkeypatch.setattr(runs, "_submitted", planned)
    said: list[str] = []
    runs.submit(find_config(), RunRequest(["true"]), say=said.append)
    ((image, pinned),) = plans
    assert image == "" and "the run starts without a container" in said[-1]
    assert pinned.left_out == ["aux_data/aml"] and pinned.files == 2


@pytest.mark.parametrize(
    "wish",
    [
        RunRequest(["python", "train.py", "--note", "two  words"]),
        RunRequest(["nvidia-smi | head"], num_gpu=8),
        RunRequest(["x"], num_gpu=2, single=True, hold=True),
        RunRequest(["x y"], hold=True),
        RunRequest(["x"], num_gpu=0),
        RunRequest(["x"], compile_args="--fast 'a b'"),
    ],
)
def test_the_wish_is_found_again_in_the_record(config: Config, wish: RunRequest) -> None:
    special = ["compile.aml.sh"] if wish.compile_args else []
    record = job_to_dict(job_of(config, wish, {"id": ""}, special))
    assert wish_of(record, config) == wish
    assert job_of(config, wish_of(record, config), {"id": ""}, special) == job_of(config, wish, {"id": ""}, special)


def test_arguments_of_the_configuration_are_not_said_again(config: Config) -> None:
    usual = replace(config, compile_args="fast  --all")
    record = job_to_dict(job_of(usual, RunRequest(["x"]), {"id": ""}, ["compile.aml.sh"]))
    assert wish_of(record, usual).compile_args is None  # so that code which was built is not built once more
    assert wish_of(record, config).compile_args == "fast --all"


def test_resubmit_tells_whose_code_it_takes_and_what_is_left_to_do(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Before(job_of(config, RunRequest(["x"]), {"id": ""}), "/elsewhere/project")
    monkeypatch.setattr(runs, "find_run", lambda reference: before)
    monkeypatch.setattr(runs, "_submitted", lambda *_: before)
    said: list[str] = []
    runs.resubmit("run", config, say=said.append)
    assert said[0] == f"run had the code of /elsewhere/project; the new run has code and configuration of {config.root}"
    assert said[-1] == "run: cancelling"

    own = Before(Job(program=["x"]))
    monkeypatch.setattr(runs, "find_run", lambda reference: own)
    with pytest.raises(NotFound):  # petctl's own; there is no such job to start again
        runs.resubmit("run", config, say=said.append)
    assert said[-1].endswith("to continue: a resubmit run")


def test_a_size_that_changes_stays_one(config: Config) -> None:
    elastic = replace(config, elastic_num_gpu=[8, 4, 16], num_gpu=8)
    job = job_of(elastic, RunRequest(["x"]), {"id": ""})
    again = job_of(elastic, wish_of(job_to_dict(job), elastic), {"id": ""})
    assert again == job and (again.nodes.min, again.nodes.initial, again.nodes.max) == (1, 2, 4)


def test_the_configuration_of_a_run_is_found_again(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("aux_data/aml").mkdir(parents=True)
    Path("aux_data/aml/c1.yaml").write_text("experiment_name: first\n")
    elsewhere = tmp_path / "far.yaml"
    elsewhere.write_text("experiment_name: far\n")
    monkeypatch.setenv("AML_CONFIG_PATH", str(elsewhere))
    assert own_config("c1", config).experiment == "first"
    assert own_config("far", None).experiment == "far"
    Path("aux_data/aml/far.yaml").write_text("experiment_name: near\n")
    assert own_config("far", None).experiment == "far"  # what a submit without -c means
    assert own_config("aml", config) is config  # of the same name
    assert own_config("gone", config) is config
    assert own_config("local", None).cluster == "local"
    with pytest.raises(UsageError, match="gone"):
        own_config("gone", None)
    Path("aux_data/aml/c1.yaml").write_text("nonsense: 1\n")
    with pytest.raises(UsageError, match="nonsense"):
        own_config("c1", config)


@pytest.mark.parametrize("start", ["submit", "local"])
@pytest.mark.parametrize("there", [False, True], ids=["without mpirun", "with mpirun"])
def test_one_process_without_mpirun_is_told(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str, there: bool
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    if there:
        (programs / "mpirun").write_text("#!/bin/sh\n")
        (programs / "mpirun").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(runs, "_submitted", lambda config, job, pinned: job.launcher)
    said: list[str] = []
    launcher = getattr(runs, start)(Config(experiment="jianfw"), RunRequest(["true"], num_gpu=1), say=said.append)
    told = [sentence for sentence in said if "no mpirun" in sentence]
    assert (launcher, len(told)) == (("mpi", 0) if there else ("elastic", 1))
