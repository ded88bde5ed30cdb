"""The plan is exactly what will run: right interpreter, right GPUs, no secret, nothing of the environment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from petctl.clusters.base import find_cluster
from petctl.clusters.local.addresses import advertised_address, check_listen
from petctl.clusters.local.backend import make_checkpoints
from petctl.clusters.local.build_record import build_record
from petctl.clusters.local.commands import supervisor_environment
from petctl.clusters.local.gpus import gpu_options, gpus_per_node
from petctl.clusters.local.job_directory import JobDirectory
from petctl.clusters.local.record import LocalRequest
from petctl.config.settings import cluster_settings
from petctl.errors import NotFound, UsageError
from petctl.job.spec import Job
from petctl.machine.gpus import visible_gpus
from petctl.secret_file import list_secrets, remove_secret, secret_values, set_secret
from petctl.submission.task import command_line, interpreter


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_interpreter_is_the_users_choice(tmp_path: Path) -> None:
    job = Job(shell="x")
    venv, conda = executable(tmp_path / "venv/bin/python"), executable(tmp_path / "conda/bin/python")
    system = executable(tmp_path / "bin/python3")
    everything = {
        "VIRTUAL_ENV": str(tmp_path / "venv"),
        "CONDA_PREFIX": str(tmp_path / "conda"),
        "PATH": str(tmp_path / "bin"),
    }
    assert interpreter(Job(shell="x", python="/opt/python"), "/", everything) == "/opt/python"
    assert interpreter(Job(shell="x", python="python3.9"), "/", everything) == "python3.9"
    assert interpreter(Job(shell="x", python="env/bin/python"), "/code", everything) == "/code/env/bin/python"
    assert interpreter(job, "/", everything) == str(venv)
    del everything["VIRTUAL_ENV"]
    assert interpreter(job, "/", everything) == str(conda)
    del everything["CONDA_PREFIX"]
    assert interpreter(job, "/", everything) == str(system)


def test_petctls_own_environment_is_not_used_by_accident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = executable(tmp_path / "own/bin/python3")
    base = executable(tmp_path / "base/bin/python3")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "own"))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "base"))
    assert interpreter(Job(shell="x"), "/", {"PATH": str(own.parent)}) == str(base)


def test_a_plan_holds_what_will_be_started_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_SUBMITTER", "private-words")
    job = Job(shell="x", code="none", nodes="1:2:3", resources={"gpus": 2}, secrets={"KEY": "wandb"}, max_time="2m")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    record = build_record(job, JobDirectory(tmp_path / "jobs" / "x-2222"), {"slots": 5})
    request = LocalRequest.of(record)
    assert [argv[argv.index("--node") + 1] for argv in request.nodes] == ["0", "1"]
    assert all(argv[-2:] == ["--nominal-gpus", "2"] for argv in request.nodes)
    assert record.task.cwd == str(tmp_path)
    assert (record.secrets, record.task.secrets) == ({"KEY": "wandb"}, {})
    assert (request.slots, record.max_time, record.config.wanted) == (5, 120.0, 2)
    assert "private-words" not in repr(record)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("job", "eager"),
    [
        (Job(module="train"), True),
        (Job(program=["/opt/bin/python3.12", "train.py"]), True),
        (Job(module="train", warm=False), False),
        (Job(module="train", launcher="torchrun"), False),
        (Job(program=["pythonic", "train.py"]), False),
        (Job(shell="python train.py"), False),
    ],
    ids=["module", "python", "cold", "torchrun", "program", "shell"],
)
def test_rounds_are_eager_where_restarts_are_cheap(tmp_path: Path, job: Job, eager: bool) -> None:
    record = build_record(job, JobDirectory(tmp_path / "jobs" / "x-2222"), {"slots": 5})
    assert record.config.eager is eager


def test_a_plan_that_cannot_work_says_why(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path / "jobs" / "x-2222")
    with pytest.raises(UsageError, match=r"there is no script none\.py"):
        build_record(Job(script="none.py"), directory, {})
    with pytest.raises(UsageError, match="needs at least 9 nodes and this machine has 8"):
        build_record(Job(shell="x", nodes=9), directory, {"slots": 8})
    with pytest.raises(UsageError, match="does not exist"):
        build_record(Job(shell="x", cwd="nowhere"), directory, {})
    with pytest.raises(UsageError, match="slots must be a whole number"):
        build_record(Job(shell="x"), directory, {"slots": "many"})


def test_the_command_is_shown_as_it_was_typed() -> None:
    assert command_line(Job(script="a b.py", args=["--x", "1 2"])) == "'a b.py' --x '1 2'"
    assert command_line(Job(module="pkg.tool", args=["-v"])) == "-m pkg.tool -v"
    assert command_line(Job(shell="echo $A | wc")) == "echo $A | wc"


def test_gpus_are_divided_between_nodes() -> None:
    devices = ["0", "1", "2", "3"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "2, 3"}) == ["2", "3"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "-1"}) == []
    assert gpus_per_node(0, "gpu", 2, devices) == 2
    assert gpus_per_node(0, "4", 2, devices) == 0
    assert gpus_per_node(0, "auto", 2, []) == 0
    assert [gpu_options(index, 2, devices) for index in range(3)] == [
        ["--gpus", "0,1"],
        ["--gpus", "2,3"],
        ["--gpus", "0,1"],
    ]
    assert gpu_options(0, 0, devices) == []


def test_the_directorys_configuration_wins(tmp_path: Path) -> None:
    (tmp_path / "config" / "petctl").mkdir(parents=True)
    (tmp_path / "config" / "petctl" / "config.yaml").write_text("clusters: {local: {slots: 4, container: podman}}")
    assert cluster_settings("local") == {"slots": 4, "container": "podman"}
    (tmp_path / "petctl.yaml").write_text("clusters: {local: {slots: 8}}")
    assert cluster_settings("local") == {"slots": 8, "container": "podman"}
    (tmp_path / "petctl.yaml").write_text("clusters: [")
    with pytest.raises(UsageError, match=r"petctl\.yaml is not valid YAML"):
        cluster_settings("local")
    (tmp_path / "petctl.yaml").write_text("clusters: 3")
    with pytest.raises(UsageError, match="'clusters' must be a mapping"):
        cluster_settings("local")


def test_an_unknown_cluster_is_named(tmp_path: Path) -> None:
    assert find_cluster("", tmp_path).name == "local"
    with pytest.raises(UsageError, match=r"no cluster 'moon'.*local"):
        find_cluster("moon", tmp_path)


def test_loopback_is_advertised_as_itself() -> None:
    assert advertised_address("localhost") == "127.0.0.1"
    assert advertised_address("10.1.2.3") == "10.1.2.3"


@pytest.mark.parametrize("host", ["192.0.2.77", "300.1.1.1", "no such host", "a" * 70])
def test_an_address_that_is_not_of_this_machine_is_refused(host: str) -> None:
    with pytest.raises(
        UsageError, match=rf"--listen {host}: this machine cannot listen there: .+; give one of its own"
    ):
        check_listen(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_an_address_of_this_machine_will_do(host: str) -> None:
    check_listen(host)


def test_an_interpreter_that_is_not_there_is_told_before_the_start(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    directory = JobDirectory(tmp_path / "jobs" / "train-3f9k")
    with pytest.raises(UsageError, match="the interpreter /opt/nowhere/python was not found on this machine"):
        build_record(Job(script="train.py", python="/opt/nowhere/python"), directory, {})
    build_record(Job(script="train.py", python="/opt/nowhere/python", prepare="make python"), directory, {})


def test_checkpoints_of_an_earlier_job_can_be_gone_on_from(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path / "jobs" / "train-3f9k")
    earlier = str(tmp_path / "jobs/train-aaaa/checkpoints")
    plan = build_record(Job(shell="x", env={"PETCTL_CHECKPOINT_DIR": earlier}), directory, {})
    assert plan.task.checkpoint_dir == earlier
    plan = build_record(Job(shell="x", env={"PETCTL_CHECKPOINT_DIR": "runs"}), directory, {})
    assert plan.task.checkpoint_dir == str(tmp_path / "runs")
    assert plan.job["env"] == {"PETCTL_CHECKPOINT_DIR": str(tmp_path / "runs")}
    plan = build_record(Job(shell="x"), directory, {})
    assert plan.task.checkpoint_dir == str(directory.checkpoints)


def test_a_directory_for_checkpoints_is_made_or_refused(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path / "jobs" / "train-3f9k")
    make_checkpoints(directory, directory.checkpoints)
    assert not directory.path.exists()  # the job's own is made with the job
    make_checkpoints(directory, tmp_path / "runs/7")
    assert (tmp_path / "runs/7").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"PETCTL_CHECKPOINT_DIR=.*file/x cannot be created: Not a directory"):
        make_checkpoints(directory, tmp_path / "file/x")


def test_a_nested_job_is_not_taken_for_a_part_of_the_outer_one(tmp_path: Path) -> None:
    environment = supervisor_environment({"PETCTL_NODE_KEY": "a/0/x", "A": "b", "PYTHONPATH": "src:/lib"})
    assert environment == {"A": "b", "PYTHONPATH": f"{tmp_path}/src:/lib"}


def test_secrets_are_private_and_named_when_missing(tmp_path: Path) -> None:
    set_secret(tmp_path, "wandb", "one")
    set_secret(tmp_path, "wandb", "two")
    set_secret(tmp_path, "hub", "three")
    assert list_secrets(tmp_path) == ["hub", "wandb"]
    assert secret_values(tmp_path, {"KEY": "wandb"}) == {"KEY": "two"}
    assert (tmp_path / "secrets.json").stat().st_mode & 0o777 == 0o600
    remove_secret(tmp_path, "wandb")
    with pytest.raises(NotFound, match="petctl secret set wandb"):
        secret_values(tmp_path, {"KEY": "wandb"})
    with pytest.raises(NotFound):
        remove_secret(tmp_path, "wandb")
