"""The `batchai` command line with real jobs: their life, their files, and whoever is killed on the way."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.batchai.conftest import Shell
from tests.integration.waiting import until

ROOT = "$AZ_BATCHAI_JOB_MOUNT_ROOT"


def job_file(line: str, **fields: Any) -> dict[str, Any]:
    """A job that runs a shell line on its first node; its output is on the share `logs`."""
    share = {"azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/logs"}
    return {
        "properties": {
            "nodeCount": 1,
            "customToolkitSettings": {"commandLine": line},
            "stdOutErrPathPrefix": f"{ROOT}/logs",
            "mountVolumes": {"azureFileShares": [{**share, "relativeMountPath": "logs"}]},
            "outputDirectories": [{"id": "MODEL", "pathPrefix": f"{ROOT}/logs", "pathSuffix": "model"}],
            **fields,
        }
    }


@pytest.fixture
def lab(shell: Shell) -> Shell:
    """A shell with an account and its share; the account is the environment's."""
    shell("az group create -n default")
    shell("az storage account create -n labstorage -g default")
    shell("az storage share create -n logs --account-name labstorage")
    shell.environment["AZURE_BATCHAI_STORAGE_ACCOUNT"] = "labstorage"
    return shell


def petctl_jobs(shell: Shell) -> list[str]:
    return shell("petctl list -q").stdout.split()


def runs(pid: int) -> str:
    """What a process does, if it is a job's and still there; a dead one that nobody has reaped yet does nothing."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        return status if "sleep" in Path(f"/proc/{pid}/cmdline").read_text() else ""
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_options_without_effect_are_announced(shell: Shell) -> None:
    made = "az storage account create -n labstorage --sku Standard_LRS"
    for line, options in (
        ("az group create -n lab -l eastus", "--location has"),
        ("batchai workspace create -g lab -n w -l eastus --subscription x", "--location, --subscription have"),
        (f"{made} --kind StorageV2 -g lab", "--sku, --kind have"),
        ("az storage share create -n logs --account-name labstorage --quota 5", "--quota has"),
    ):
        done = shell(line)
        assert f": {options} no effect on this machine\n" in done.stderr, done.stderr
    assert not shell("az group list").stderr
    assert not shell("az group create -n lab -l eastus --only-show-errors").stderr


def test_one_command_is_enough_and_results_are_near(lab: Shell) -> None:
    lab.write("job.json", job_file("echo done > $AZ_BATCHAI_OUTPUT_MODEL/model.txt; pwd; exit 7"))
    made = lab.json("batchai job create -n mnist -f job.json")
    assert made["cluster"]["id"] == "petctl://local"
    told = lab("batchai job wait -n mnist", code=7).stdout.splitlines()
    assert told[-1] == "Job state: failed"
    shown = lab.json("batchai job show -n mnist")
    assert shown["executionState"] == "failed"
    assert shown["executionInfo"]["exitCode"] == 7
    (error,) = shown["executionInfo"]["errors"]
    assert error["code"] == "JobFailed"
    assert {"name": "ExitCode", "value": "7"} in error["details"]
    results = Path(shown["petctl"]["results"])
    assert (results / "MODEL" / "model.txt").read_text() == "done\n"
    ran_in = (results / "stdouterr" / "stdout.txt").read_text().strip()
    (job,) = petctl_jobs(lab)
    assert ran_in.replace("/0/work", "/NODE/work") in lab(f"petctl status {job}").stdout.replace("\n", "")
    lab("batchai job file list -j mnist -d NOPE", code=3)
    assert "'stdout.txt' is a file" in lab("batchai job file list -j mnist -p stdout.txt", code=2).stderr
    table = lab("batchai job list -o table").stdout.splitlines()
    assert table[0].split()[:2] == ["Name", "Cluster"]
    assert table[2].split()[-1] == "7"
    lab.write("shown.json", shown)
    again = lab.json("batchai job create -n -again -f shown.json")  # what was shown is a job file
    assert (again["name"], again["customToolkitSettings"]) == ("-again", shown["customToolkitSettings"])
    lab("batchai job wait -n -again", code=7)
    lab("petctl rm --finished")
    lab("batchai job wait -n -again", code=7)  # its end is known, whatever became of the job


def test_a_dry_run_starts_nothing_and_a_job_can_be_had_again(lab: Shell) -> None:
    lab.write("job.json", job_file("echo once"))
    dry = lab.json("batchai job create -n mnist -f job.json --dry-run")
    said = dry["petctl"]["job"]["options"]["batchai"]["properties"]
    assert said["customToolkitSettings"]["commandLine"] == "echo once"
    assert petctl_jobs(lab) == []
    lab("batchai job show -n mnist", code=3)
    first = lab.json("batchai job create -n mnist -f job.json")
    lab("batchai job create -n mnist -f job.json", code=1)
    lab.write("job.json", job_file("echo changed"))
    plan = lab.json("batchai job resubmit -n mnist --dry-run")["petctl"]
    assert (plan["task"]["layout"]["work"], plan["task"]["cwd"]) == ("batchai/NODE/work", "")
    again = lab.json("batchai job resubmit -n mnist")
    assert again["name"] == "mnist-2"
    assert again["customToolkitSettings"] == first["customToolkitSettings"]
    assert again["jobOutputDirectoryPathSegment"] != first["jobOutputDirectoryPathSegment"]
    assert lab("batchai job file stream -j mnist-2 -f stdout.txt").stdout == "once\n"


def test_every_problem_of_a_file_is_told_before_anything_starts(lab: Shell) -> None:
    lab.write("job.json", job_file("true", nodeCount=0, nodeCounts=2))
    told = lab("batchai job create -n mnist -f job.json", code=2).stderr
    assert "nodeCounts" in told
    assert "nodeCount:" in told
    lab("batchai job create -n mnist -f job.json -c nowhere", code=3)
    lab("batchai job show -n mnist", code=3)


def test_a_stream_waits_for_its_file_and_ends_with_the_job(lab: Shell) -> None:
    lab.write(
        "job.json",
        job_file(f"while ! [ -e {lab.directory}/go ]; do sleep 0.05; done; echo late > $AZ_BATCHAI_OUTPUT_MODEL/x"),
    )
    lab("batchai job create -n mnist -f job.json")
    words = [str(lab.programs / "batchai"), "job", "file", "stream", "-j", "mnist", "-d", "MODEL", "-f", "x"]
    with subprocess.Popen(words, cwd=lab.directory, env=lab.environment, stdout=subprocess.PIPE, text=True) as stream:
        try:
            until(lambda: lab.json("batchai job show -n mnist")["executionState"] == "running", "the job runs", 60)
            assert stream.poll() is None
            lab.write("go", "")
            assert stream.communicate(timeout=60)[0] == "late\n"
            assert stream.returncode == 0
        finally:
            stream.kill()
    told = lab("batchai job file stream -j mnist -f nosuch.txt", code=3).stderr
    assert "there are: stderr.txt, stdout.txt" in told


def test_ended_with_what_it_is_in(lab: Shell) -> None:
    lab("batchai workspace create -g default -n w")
    lab("batchai experiment create -w w -n e")
    lab("batchai cluster create -w w -n two -t 2")
    lab.write("job.json", job_file("echo $$; exec sleep 600", nodeCount=2))
    place = "-w w -e e"
    made = lab.json(f"batchai job create {place} -n long -c two -f job.json")
    job = f"batchai job show {place} -n long --query executionState -o tsv"
    until(lambda: lab(job).stdout == "running\n", "the job runs", 60)
    states = lab.json("batchai cluster show -w w -n two")["nodeStateCounts"]
    assert states["runningNodeCount"] == 2
    rows = lab.json("batchai cluster node list -w w -c two")
    assert {row["petctl"]["job"] for row in rows} == {made["petctl"]["job"]}
    out = Path(made["petctl"]["results"]) / "stdouterr" / "stdout.txt"
    pid = int(until(lambda: out.exists() and out.read_text().strip(), "the job has said its process"))
    lab("batchai job create -w w -e e -n waits -c two -f job.json")
    lab("batchai experiment delete -w w -n e -y")
    assert not runs(pid)  # a job has ended when nothing of it runs any more
    assert petctl_jobs(lab) == []
    assert not Path(made["petctl"]["results"]).exists()
    segment = made["jobOutputDirectoryPathSegment"]
    share = lab.home / "batchai/storage/labstorage/file/logs"
    assert (share / segment / "stdouterr" / "stdout.txt").exists()  # what was written to a mount stays


def test_a_cluster_that_is_deleted_takes_its_jobs_along_but_not_their_names(lab: Shell) -> None:
    lab("batchai workspace create -g default -n w")
    lab("batchai experiment create -w w -n e")
    lab("batchai cluster create -w w -n one -t 1")
    lab.write("job.json", job_file("sleep 600"))
    lab("batchai job create -w w -e e -n long -c one -f job.json")
    lab("batchai cluster delete -w w -n one -y")
    shown = lab.json("batchai job show -w w -e e -n long")
    assert shown["executionState"] == "failed"
    lab("batchai job delete -w w -e e -n long -y --no-wait")
    until(lambda: lab("batchai job show -w w -e e -n long", code=None).returncode == 3, "the job is deleted", 60)


def test_secrets_rest_in_one_file_and_go_with_the_job(lab: Shell) -> None:
    lab.write("job.json", job_file("echo ${#TOKEN}", secrets=[{"name": "TOKEN", "value": "open-sesame-9"}]))
    made = lab.json("batchai job create -n mnist -f job.json")
    assert made["secrets"] == [{"name": "TOKEN", "value": None, "valueSecretReference": None}]
    assert lab("batchai job file stream -j mnist -f stdout.txt").stdout == "13\n"
    files = [path for path in lab.home.rglob("*") if path.is_file() and b"open-sesame-9" in path.read_bytes()]
    assert [path.name for path in files] == ["secrets.json"]
    lab("batchai job resubmit -n mnist --new-name again")
    assert lab("batchai job wait -n again").returncode == 0
    lab("batchai job delete -n mnist -y")
    assert lab("petctl secret ls").stdout.count("job-file.") == 1  # the other job still names it
    lab("batchai job delete -n again -y")
    assert lab("petctl secret ls").stdout == ""


def test_a_setup_task_runs_on_each_node_and_its_output_is_listed(lab: Shell) -> None:
    lab("batchai workspace create -g default -n w")
    lab(
        "batchai cluster create -w w -n two -t 2 --afs-name logs --setup-task 'echo ready $AZ_BATCHAI_MOUNT_ROOT' "
        "--setup-task-output '$AZ_BATCHAI_MOUNT_ROOT/afs'"
    )
    counts = "batchai cluster show -w w -n two --query nodeStateCounts.idleNodeCount -o tsv"
    until(lambda: lab(counts).stdout == "2\n", "both nodes are ready", 60)
    folders = lab.json("batchai cluster file list -w w -c two")
    assert [folder["fileType"] for folder in folders] == ["directory", "directory"]
    files = lab.json(f"batchai cluster file list -w w -c two -p {folders[0]['name']}")
    assert [file["name"] for file in files] == ["stderr.txt", "stdout.txt"]
    assert lab("batchai cluster node exec -w w -c two --exec 'ls $AZ_BATCHAI_MOUNT_ROOT'").stdout == "afs\n"


def test_a_settings_file_with_secrets_and_a_job_file_that_names_the_cluster(lab: Shell) -> None:
    lab("batchai workspace create -g default -n w")
    task = {
        "commandLine": "echo $GREETING ${#TOKEN}",
        "environmentVariables": [{"name": "GREETING", "value": "hello"}],
        "secrets": [{"name": "TOKEN", "value": "open-sesame-9"}],
        "stdOutErrPathPrefix": str(lab.directory / "setup"),
    }
    settings = {
        "vmSize": "STANDARD_NC6",
        "scaleSettings": {"autoScale": {"minimumNodeCount": 0, "maximumNodeCount": 2, "initialNodeCount": 1}},
        "nodeSetup": {"setupTask": task},
    }
    lab.write("cluster.json", {"properties": settings})
    made = lab.json("batchai cluster create -w w -n auto -f cluster.json")
    assert made["scaleSettings"]["autoScale"]["initialNodeCount"] == 1
    assert made["nodeSetup"]["setupTask"]["secrets"] == [{"name": "TOKEN", "value": None, "valueSecretReference": None}]
    lab.write("job.json", job_file("true", nodeCount=2, cluster={"id": made["id"]}))
    job = lab.json("batchai job create -w w -n mnist -f job.json")
    assert job["cluster"]["id"] == made["id"]
    assert lab("batchai job wait -w w -n mnist").returncode == 0  # the cluster has grown for it
    out = lab.directory / "setup" / "auto"
    until(lambda: [path.read_text() for path in out.glob("*/stdout.txt")] == ["hello 13\n"] * 2, "both are set up", 60)
    files = [path for path in lab.home.rglob("*") if path.is_file() and b"open-sesame-9" in path.read_bytes()]
    assert [path.name for path in files] == ["secrets.json"]
    lab("batchai cluster delete -w w -n auto -y")
    assert lab("petctl secret ls").stdout == ""


def _named(record: dict[str, Any]) -> bool:
    return True


def _submitted(record: dict[str, Any]) -> bool:
    return bool(record["petctl"])


@pytest.mark.parametrize("moment", [_named, _submitted])
def test_a_submission_that_is_killed_leaves_no_job_without_a_name(
    lab: Shell, moment: Callable[[dict[str, Any]], bool]
) -> None:
    lab.write("job.json", job_file("sleep 600"))
    lab("batchai job create -n first -f job.json")  # its parents are there then
    record = lab.home / "batchai/groups/default/workspaces/default/experiments/default/jobs/mnist/resource.json"
    words = [
        sys.executable,
        "-P",
        "-m",
        "petctl.compat.batchai.cli.batchai",
        *["job", "create", "-n", "mnist", "-f", "job.json"],
    ]
    with subprocess.Popen(words, cwd=lab.directory, env=lab.environment, stdout=subprocess.DEVNULL) as process:
        until(lambda: process.poll() is not None or (record.exists() and moment(json.loads(record.read_text()))), "it")
        process.kill()  # unless it was quicker
    shown = lab.json("batchai job show -n mnist")
    first = lab.json("batchai job show -n first")
    assert shown["executionState"] in ("queued", "running", "failed")
    named = {shown["petctl"]["job"], first["petctl"]["job"]}
    assert set(petctl_jobs(lab)) <= named
    if shown["executionState"] == "failed":
        assert shown["executionInfo"]["errors"][0]["code"] in ("NotSubmitted", "JobRemoved")
    lab("batchai job delete -n mnist -y")
    assert petctl_jobs(lab) == [first["petctl"]["job"]]
    lab("batchai job create -n mnist -f job.json")


def test_of_two_with_one_name_one_is_submitted(lab: Shell) -> None:
    lab.write("job.json", job_file("true"))
    words = [str(lab.programs / "batchai"), "job", "create", "-n", "mnist", "-f", "job.json"]
    piped: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    both = [subprocess.Popen(words, cwd=lab.directory, env=lab.environment, **piped) for _ in range(2)]
    told = [process.communicate(timeout=120)[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 1], told
    assert len(petctl_jobs(lab)) == 1
