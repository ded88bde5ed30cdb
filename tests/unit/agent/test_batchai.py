"""A node as a Batch AI job expects it: links, directories, variables."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from petctl.agent.layouts.batchai import Site, directories, expand, variables
from petctl.agent.workers.spawn import Launch
from petctl.errors import PetctlError
from petctl.job.task import Layout, Mount, Task

ROOT = "$AZ_BATCHAI_JOB_MOUNT_ROOT"


def layout(shares: Path, **more: Any) -> Layout:
    """One with a mount; `more`: other values of its fields, or of what only Batch AI's module understands."""
    (shares / "logs").mkdir(exist_ok=True)
    said = {
        "segment": "sub/g/jobs/j/uuid",
        "cluster": "nc6",
        "stdouterr": f"{ROOT}/in/logs",
        "inputs": {"DATA": f"{ROOT}/in/logs/data"},
        "files": "merged",
        "backend": "",
    }
    usual = Layout(
        kind="batchai",
        mounts=[Mount("in/logs", str(shares / "logs"), said="https://acc/logs")],
        work="batchai/NODE/work",
        outputs={"MODEL": [f"{ROOT}/in/logs", "best"]},
        said={name: more.pop(name, value) for name, value in said.items()},
    )
    return replace(usual, **more)


def site(tmp_path: Path, told: list[str] | None = None, env: dict[str, str] | None = None, **more: Any) -> Site:
    base = tmp_path / "job"
    (base / "logs").mkdir(parents=True, exist_ok=True)
    (base / "outputs").mkdir(exist_ok=True)
    task = Task(
        job="j-1",
        kind="shell",
        words=["true"],
        python=sys.executable,
        env=env or {},
        prepare=more.pop("prepare", ""),
        output_dir=str(base / "outputs"),
        layout=layout(tmp_path, **more),
    )
    tell = (told if told is not None else []).append
    return Site(task, "0", str(base / "logs"), {}, 2, {"PATH": os.environ["PATH"], **task.env}, tell)


def test_links_directories_and_variables(tmp_path: Path) -> None:
    made = site(tmp_path, env={"MINE": "${AZ_BATCHAI_JOB_TEMP}/x:$HOME"})
    assert made.problem == ""
    env, places = made.task.env, directories(str(tmp_path / "job"), "0")
    assert (Path(places.mounts) / "in" / "logs").resolve() == tmp_path / "logs"
    assert env["AZ_BATCHAI_JOB_MOUNT_ROOT"] == places.mounts
    assert env["AZ_BATCHAI_OUTPUT_MODEL"] == f"{places.mounts}/in/logs/sub/g/jobs/j/uuid/outputs/best"
    assert (tmp_path / "logs/sub/g/jobs/j/uuid/outputs/best").is_dir()
    assert env["AZ_BATCHAI_STDOUTERR_DIR"] == f"{places.mounts}/in/logs/sub/g/jobs/j/uuid/stdouterr"
    assert env["AZ_BATCHAI_INPUT_DATA"] == f"{places.mounts}/in/logs/data"
    assert (env["AZ_BATCHAI_NUM_GPUS"], env["AZ_BATCHAI_NUM_GPUS_PER_NODE"]) == ("2", "2")
    assert env["AZ_BATCHAI_CLUSTER_NAME"] == "nc6"
    assert env["MINE"] == f"{places.job_temp}/x:$HOME"
    assert made.task.cwd == places.work == env["AZ_BATCHAI_JOB_WORK_DIR"]
    for name in ("MOUNT_ROOT", "JOB_TEMP", "JOB_TEMP_DIR", "SHARED_JOB_TEMP", "JOB_WORK_DIR"):
        assert Path(env[f"AZ_BATCHAI_{name}"]).is_dir(), name
    assert (tmp_path / "job/outputs/MODEL").resolve() == tmp_path / "logs/sub/g/jobs/j/uuid/outputs/best"
    assert site(tmp_path).problem == "", "a second life finds everything in its place"


def test_mounts_of_the_cluster_are_where_it_says(tmp_path: Path) -> None:
    made = site(tmp_path, env={"PETCTL_CLUSTER_MOUNTS": str(tmp_path)}, stdouterr="$AZ_BATCHAI_MOUNT_ROOT/x")
    assert made.task.env["AZ_BATCHAI_MOUNT_ROOT"] == str(tmp_path)
    assert (tmp_path / "x/sub/g/jobs/j/uuid/stdouterr").is_dir()


def test_a_directory_that_the_node_does_not_have_is_named(tmp_path: Path) -> None:
    mount = Mount("logs", str(tmp_path / "nowhere"), said="https://acc/logs")
    made = site(tmp_path, mounts=[mount])
    assert made.problem == f"https://acc/logs is {tmp_path / 'nowhere'}, which does not exist on this node"
    assert "no variable NOWHERE" in site(tmp_path, stdouterr="$NOWHERE/x").problem


def test_a_place_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert site(tmp_path, stdouterr=str(tmp_path / "file")).problem.startswith(f"cannot make {tmp_path / 'file'}/sub")


def test_the_job_may_have_a_directory_of_its_own(tmp_path: Path) -> None:
    assert site(tmp_path, work="").task.cwd == ""


def test_what_the_preparation_prints_is_in_its_place(tmp_path: Path) -> None:
    made = site(tmp_path, prepare="echo x")
    (tmp_path / "job/logs/prepare-0.out").write_text("prepared\n")
    place = tmp_path / "logs/sub/g/jobs/j/uuid/stdouterr/stdout-job_prep-0.txt"
    assert place.read_text() == "prepared\n"
    assert made.task.prepare == "echo x"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


def test_a_mount_command_runs_before_the_users_line_and_gets_its_place(tmp_path: Path, temporary: Path) -> None:
    mounts = [Mount("own", command="echo mounting")]
    made = site(tmp_path, mounts=mounts, stdouterr=f"{ROOT}/own", inputs={}, outputs={}, prepare="echo the line")
    point = temporary / f"petctl-mounts-{os.getuid()}" / "j-1" / "0" / "0"
    assert point.is_dir()
    link = tmp_path / "job/batchai/0/mounts/own"
    assert link.readlink() == point
    ran = subprocess.run(["/bin/sh", "-c", made.task.prepare], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"mounting {point}\nthe line\n", "")
    assert (point / "sub/g/jobs/j/uuid/stdouterr").is_dir(), "made when it is mounted, not before"


def test_a_mount_command_that_fails_says_so_in_its_own_words(tmp_path: Path, temporary: Path) -> None:
    mounts = [Mount("own", command="PASSWD=hush echo 'no route' >&2; sh -c 'exit 32' --password=hush")]
    made = site(tmp_path, mounts=mounts, stdouterr="/tmp", inputs={}, outputs={}, prepare="echo the line")
    ran = subprocess.run(["/bin/sh", "-c", made.task.prepare], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (32, "")
    assert "no route" in ran.stderr
    assert "cannot mount own: echo ended with code 32" in ran.stderr
    assert "hush" not in ran.stderr
    made.finish()
    (own,) = temporary.iterdir()
    assert not list(own.iterdir()), "the job's empty directories are gone"


def test_a_place_for_mounts_that_is_another_users_is_refused(tmp_path: Path, temporary: Path) -> None:
    (temporary / f"petctl-mounts-{os.getuid()}").symlink_to(tmp_path)
    made = site(tmp_path, mounts=[Mount("own", command="true")], stdouterr="/tmp", inputs={}, outputs={})
    assert "belongs to another user" in made.problem


def launch(rank: int, **env: str) -> Launch:
    return Launch(rank, rank, ["true"], dict(env), "/somewhere", "out", "err")


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ("merged", ["stderr.txt", "stdout.txt"]),
        ("rank", ["stderr-4.txt", "stderr-5.txt", "stdout-4.txt", "stdout-5.txt"]),
        ("role", ["stderr-ps-0.txt", "stderr-wk-1.txt", "stdout-ps-0.txt", "stdout-wk-1.txt"]),
    ],
)
def test_files_are_there_as_soon_as_workers_start(tmp_path: Path, files: str, names: list[str]) -> None:
    made = site(tmp_path, files=files)
    planned = [launch(4, ROLE_NAME="worker", ROLE_RANK="1"), launch(5, ROLE_NAME="ps", ROLE_RANK="0")]
    made.starting(1, 4, 6, planned)
    made.finish()
    place = tmp_path / "logs/sub/g/jobs/j/uuid/stdouterr"
    assert sorted(path.name for path in place.iterdir()) == names
    assert planned[0].env["AZ_BATCHAI_JOB_WORK_DIR"] == "/somewhere"


def test_plain_jobs_get_a_host_file_too(tmp_path: Path) -> None:
    made, first = site(tmp_path), launch(0, PETCTL_HOSTS="10.0.0.1,10.0.0.2")
    made.starting(1, 0, 1, [first])
    made.finish()
    assert Path(first.env["AZ_BATCHAI_MPI_HOST_FILE"]).read_text() == (
        "10.0.0.1 slots=1 max-slots=1\n10.0.0.2 slots=1 max-slots=1\n"
    )


def test_variables_touch_nothing(tmp_path: Path) -> None:
    found = variables(layout(tmp_path), directories("/base", "3"), {"HOME": "/home/me"})
    assert found["AZ_BATCHAI_JOB_MOUNT_ROOT"] == "/base/batchai/3/mounts"
    assert found["AZ_BATCHAI_SHARED_JOB_TEMP"] == "/base/batchai/shared"
    assert expand("${HOME}/$A/x$", {"HOME": "/h", "A": "b"}) == "/h/b/x$"
    with pytest.raises(PetctlError, match="no variable B"):
        expand("$B", {})
