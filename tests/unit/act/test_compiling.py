"""From a configuration and a command to a job."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from petctl.compat.act.compile import RunRequest, command_of, held_of, job_of, keep_password, layout_of, password_name
from petctl.compat.act.config.accounts import Account, Hidden
from petctl.compat.act.config.config import BlobFolder, Config
from petctl.errors import UsageError
from petctl.job.file.read import job_from_dict
from petctl.job.file.write import job_to_dict
from petctl.job.spec import Job
from petctl.job.spec.folders import Folder
from petctl.secret_file import list_secrets, secret_value

PYTHON = ["python", "train.py", "--data", "voc20"]


@pytest.fixture(autouse=True)
def mpirun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An mpirun on the PATH, and no word of the user's configuration."""
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "bin" / "mpirun"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return program


def job(argv: list[str] | None = None, wish: dict[str, Any] | None = None, **said: Any) -> Job:
    special = said.pop("special", ())
    return job_of(Config(experiment="jianfw", **said), RunRequest(argv or PYTHON, **(wish or {})), {"id": "x"}, special)


@pytest.mark.parametrize(
    ("said", "wish", "shape"),
    [
        ({}, {}, ("1", 4, 4, "mpi", 4)),
        ({}, {"num_gpu": 8}, ("2", 4, 4, "mpi", 8)),
        ({}, {"num_gpu": 2}, ("1", 2, 2, "mpi", 2)),
        ({}, {"num_gpu": 1}, ("1", 1, 1, "mpi", 1)),
        ({}, {"num_gpu": 0}, ("1", 1, 0, "elastic", 0)),
        ({"num_gpu": 12}, {}, ("3", 4, 4, "mpi", 12)),
        ({"num_gpu": 12}, {"num_gpu": 4}, ("1", 4, 4, "mpi", 4)),
        ({}, {"num_gpu": 8, "single": True}, ("2", 1, 4, "mpi", 8)),
        ({}, {"single": True}, ("1", 1, 4, "mpi", 4)),
        ({"multi_process": False}, {"num_gpu": 8}, ("2", 1, 4, "mpi", 8)),
        ({"multi_process": False, "process_count_per_node": 2}, {}, ("1", 1, 4, "mpi", 4)),
        ({"process_count_per_node": 2}, {"num_gpu": 8}, ("2", 2, 4, "mpi", 8)),
        ({"launcher": "elastic"}, {"num_gpu": 8}, ("2", 4, 4, "elastic", 8)),
        ({"launcher": "elastic", "elastic_num_gpu": [8, 4, 16], "num_gpu": 8}, {}, ("1:2:4", 4, 4, "elastic", 8)),
        ({"elastic_num_gpu": [8, 4, 16], "num_gpu": 8}, {"num_gpu": 4}, ("1", 4, 4, "mpi", 4)),
        ({"elastic_num_gpu": [8], "num_gpu": 8}, {}, ("2", 4, 4, "mpi", 8)),
        ({"gpu_per_node": 0}, {}, ("1", 1, 0, "elastic", 0)),
    ],
)
def test_gpus_become_nodes_and_processes(said: dict[str, Any], wish: dict[str, Any], shape: tuple[Any, ...]) -> None:
    assert layout_of(Config(**said), RunRequest(PYTHON, **wish)) == shape
    made = job(wish=wish, **said)
    assert (str(made.nodes), made.procs, made.resources.gpus or 0, made.launcher) == (
        shape[0],
        str(shape[1]),
        *shape[2:4],
    )


@pytest.mark.parametrize(
    ("said", "number", "sentence"),
    [
        ({}, 6, "6 GPUs are not whole nodes of 4 .*; ask for 4 or 8"),
        ({}, -1, "the number of GPUs must be 0 or more"),
        ({"gpu_per_node": 0}, 2, "gpu_per_node is 0"),
        ({"elastic_num_gpu": [8, 2], "num_gpu": 8}, None, "elastic_num_gpu: 2 GPUs are not whole nodes .* ask for 4"),
    ],
)
def test_numbers_that_cannot_be(said: dict[str, Any], number: int | None, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        layout_of(Config(**said), RunRequest(PYTHON, number))


def test_a_missing_mpirun_is_told_at_once(mpirun: Path) -> None:
    mpirun.unlink()
    with pytest.raises(UsageError, match="launcher: elastic"):
        job(env={"PATH": str(mpirun.parent)})
    assert job(env={"PATH": str(mpirun.parent)}, image="has/its:own").launcher == "mpi"
    assert job(env={"PATH": str(mpirun.parent)}, cluster="k8s").launcher == "mpi"
    assert job(env={"PATH": str(mpirun.parent)}, launcher="elastic").procs == "4"
    alone = job(env={"PATH": str(mpirun.parent)}, wish={"single": True})
    assert (alone.launcher, alone.procs) == ("elastic", "1"), "one process does not need it"


def test_the_command_is_as_it_was_typed() -> None:
    assert job(["python", "a b.py", "--x=$HOME", ""]).command.words == ["python", "a b.py", "--x=$HOME", ""]
    assert job(["nvidia-smi"]).command.kind == "program"
    line = job(["cd src && python train.py"])
    assert (line.command.kind, line.command.words) == ("shell", ["cd src && python train.py"])
    with pytest.raises(UsageError, match="no command: give one after submit"):
        job([" "])


@pytest.mark.parametrize("argv", [PYTHON, ["nvidia-smi"], ["cd x; false"], ["/bin/sh", "-c", "a  b"], ["a", ""]])
@pytest.mark.parametrize("said", [{}, {"sleep_if_fail": True}, {"sleep_if_succeed": True}])
def test_the_words_come_back_from_the_record(argv: list[str], said: dict[str, Any]) -> None:
    record = job_to_dict(job(argv, **said))
    assert command_of(record) == argv
    assert command_of(job_to_dict(job_from_dict(record))) == argv
    assert held_of(record) is ("sleep_if_fail" in said)


def test_other_jobs_have_words_too() -> None:
    assert command_of(job_to_dict(Job(script="train.py", args=["--lr", 1]))) == ["train.py", "--lr", "1"]
    assert command_of(job_to_dict(Job(module="pkg.tool"))) == ["-m", "pkg.tool"]


@pytest.mark.parametrize(
    ("said", "argv", "held"),
    [
        ({"sleep_if_fail": True}, ["sh", "-c", 'echo "$0"; exit 3', "a  b"], True),
        ({"sleep_if_fail": True}, ["echo", "a  b"], False),
        ({"sleep_if_succeed": True}, ["echo", "a  b"], True),
        ({"sleep_if_succeed": True}, ["sh", "-c", 'echo "$0"; exit 3', "a  b"], False),
        ({"sleep_if_fail": True}, ["echo 'a  b' && exit 10"], True),
        ({"sleep_if_fail": True, "sleep_if_succeed": True}, ["echo 'a  b'"], True),
    ],
)
def test_a_held_command_keeps_its_node(said: dict[str, Any], argv: list[str], held: bool, tmp_path: Path) -> None:
    words = job(argv, **said).command.words
    (tmp_path / "bin" / "sleep").write_text("#!/bin/sh\necho held\n")
    (tmp_path / "bin" / "sleep").chmod(0o755)
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={"PATH": f"{tmp_path}/bin:/bin:/usr/bin"}
    )
    assert done.stdout.splitlines() == ["a  b", *["held"] * held]
    assert ("its node is held" in done.stderr) is held
    if not held:
        assert done.returncode == (3 if argv[0] == "sh" else 0)


def test_a_held_command_ends_when_it_is_asked_to() -> None:
    words = job(["/bin/sh", "-c", "echo ready; exec sleep 60"], wish={"hold": True}).command.words
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        subprocess.run(["/bin/kill", "-TERM", "--", f"-{process.pid}"], check=True)
        assert process.wait(20) == 143


def test_what_the_configuration_says_is_in_the_job() -> None:
    place = BlobFolder("az://vig/box/data", Account("vig", "box", Hidden("a2V5")))
    made = job(
        name="eu",
        cluster="k8s",
        env={"A": "1"},
        folders={"data": place, "models": place._replace(mode="ro")},
        image="r.io/a:1",
        interpreter_path="/opt/python",
        preemption_allowed=True,
        restarts=2,
        retry_on=["3"],
        allow_secrets=["*.pem"],
    )
    assert made.labels == {"act": "eu", "act-gpus": "4"}
    assert (made.experiment, made.name, made.cluster) == ("jianfw", "jianfw", "k8s")
    assert made.env == {"TORCH_HOME": "./output/torch_home", "A": "1"}
    assert made.folders == {
        "data": Folder(location="az://vig/box/data", mode="rw"),
        "models": Folder(location="az://vig/box/data", mode="ro"),
    }
    assert (made.image, made.python, made.priority, made.restarts) == ("r.io/a:1", "/opt/python", -1000, 2)
    assert (made.retry_on, made.allow_secrets) == (["3"], ["*.pem"])
    assert "a2V5" not in repr(job_to_dict(made))
    plain = job()
    assert (plain.python, plain.priority, plain.restarts, plain.folders, plain.cwd) == ("", 0, 0, "all", "")
    assert job(env={"TORCH_HOME": "/t"}).env == {"TORCH_HOME": "/t"}


def test_a_cluster_without_gpus_gets_the_numbers_all_the_same() -> None:
    made = job(device="cpu", wish={"num_gpu": 8})
    assert (made.resources.gpus, made.procs, str(made.nodes), made.labels["act-gpus"]) == (None, "4", "2", "8")


def test_files_that_make_a_node_ready() -> None:
    both = ["requirements.txt", "compile.aml.sh"]
    made = job(special=both, compile_args="--fast 1")
    assert (made.requirements, made.prepare) == ("requirements.txt", "bash compile.aml.sh --fast 1")
    assert job(special=both, compile_args="x", wish={"compile_args": "y"}).prepare == "bash compile.aml.sh y"
    assert job(special=both, compile_args="x", wish={"compile_args": ""}).prepare == "bash compile.aml.sh"
    assert job(special=both, compile_args="'a b' $x;y").prepare == "bash compile.aml.sh 'a b' '$x;y'"  # words, no code
    with pytest.raises(UsageError, match="a quote is not closed"):
        job(special=both, compile_args="it's")
    assert (job().requirements, job().prepare) == ("", "")


def test_the_registry_s_password_is_a_secret(tmp_path: Path) -> None:
    config = Config(image="my.io:5000/team/a:1", image_user="u", image_password=Hidden("hush"), launcher="elastic")
    made = job_of(config, RunRequest(PYTHON))
    assert made.image_credentials == password_name(config) == "act-registry-my.io-5000-team-u"
    keep_password(config)
    assert secret_value(tmp_path / "home", made.image_credentials) == "u:hush"
    assert "hush" not in repr(job_to_dict(made))
    keep_password(Config())


def test_on_kubernetes_the_password_is_the_cluster_s(tmp_path: Path) -> None:
    config = Config(image="r.io/a", image_user="u", image_password=Hidden("hush"), cluster="k8s")
    assert job_of(config, RunRequest(PYTHON)).image_credentials == ""
    keep_password(config)
    assert list_secrets(tmp_path / "home") == []
