"""Batch AI job files on this machine: whole jobs, from the file to what they leave on their shares."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from petctl.cli.job_file import kept_secrets, read_any
from petctl.compat.batchai.layout import directories
from petctl.errors import SpecError
from petctl.jobs import JobHandle, list_jobs, resubmit, submit
from petctl.jobs.secrets import list_secrets
from tests.integration.local.conftest import Stage, children, job_path, stage
from tests.integration.storage.servers import ACCOUNT, ACCOUNT_KEY, Azurite
from tests.integration.waiting import until

__all__ = ["stage"]

ROOT = "$AZ_BATCHAI_JOB_MOUNT_ROOT"
TOLD = """
import json, os, sys
told = {name: value for name, value in os.environ.items() if name.startswith("AZ_BATCHAI_") or name in WANTED}
print(json.dumps({"args": sys.argv[1:], "cwd": os.getcwd(), "env": told}), flush=True)
""".replace("WANTED", repr(("TF_CONFIG", "TOKEN", "MINE", "RANK", "WORLD_SIZE")))
UNTIL_THE_SERVER_HAS_TOLD = """
import pathlib, time
served = pathlib.Path(__file__).with_name("served")
if "--ps" in sys.argv:
    served.touch()
    time.sleep(600)
while not served.exists():
    time.sleep(0.02)
"""
WITHIN = 60.0


class Site:
    """Shares that petctl.yaml knows, and jobs that use them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("logs", "scripts"):
            (path / name).mkdir()
        addresses = {f"https://acc.file.core.windows.net/{name}": str(path / name) for name in ("logs", "scripts")}
        (path / "petctl.yaml").write_text(json.dumps({"mounts": addresses}))
        self.script("told.py", TOLD)

    def script(self, name: str, text: str) -> str:
        (self.path / "scripts" / name).write_text(text)
        return f"{ROOT}/scripts/{name}"

    def file(self, **fields: Any) -> Path:
        shares = [
            {
                "azureFileUrl": f"https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/{name}",
                "relativeMountPath": name,
            }
            for name in ("logs", "scripts")
        ]
        properties = {
            "nodeCount": 1,
            "stdOutErrPathPrefix": f"{ROOT}/logs",
            "mountVolumes": {"azureFileShares": shares},
            **fields,
        }
        path = self.path / "job.json"
        path.write_text(json.dumps({"$schema": "https://example.org/job.json", "properties": properties}, indent=2))
        return path

    def submit(self, **fields: Any) -> JobHandle:
        prepared = read_any(str(self.file(**fields)), {"AZURE_BATCHAI_STORAGE_ACCOUNT": "acc"})
        with kept_secrets(prepared.secrets, ""):
            return submit(prepared.job)


@pytest.fixture
def site(stage: Stage) -> Site:
    return Site(stage.path)


def texts(handle: JobHandle, what: str = "stdouterr") -> dict[str, str]:
    """The files that lie where a user of Batch AI looks for them."""
    place = Path(directories(handle.record())[what])
    return {path.name: path.read_text() for path in sorted(place.iterdir())}


def ended(handle: JobHandle, state: str = "succeeded") -> Any:
    status = handle.wait(WITHIN)
    assert status.state == state, (status.sentence, status.error)
    return status


def test_one_task_on_each_node(site: Site) -> None:
    handle = site.submit(
        nodeCount=2,
        caffe2Settings={
            "pythonScriptFilePath": f"{ROOT}/scripts/told.py",
            "commandLineArgs": "--shard $AZ_BATCHAI_TASK_INDEX 'two words' \"$MINE\"",
        },
        jobPreparation={"commandLine": 'echo "prepared on $PETCTL_NODE for $AZ_BATCHAI_OUTPUT_MODEL"'},
        environmentVariables=[{"name": "MINE", "value": "$AZ_BATCHAI_JOB_TEMP/x"}],
        secrets=[{"name": "TOKEN", "value": "s3cr3t"}],
        inputDirectories=[{"id": "DATA", "path": f"{ROOT}/scripts"}],
        outputDirectories=[{"id": "MODEL", "pathPrefix": f"{ROOT}/logs", "pathSuffix": "best"}],
    )
    ended(handle)
    found = texts(handle)
    assert sorted(found) == [
        *("stderr-0.txt", "stderr-1.txt", "stdout-0.txt", "stdout-1.txt"),
        *("stdout-job_prep-0.txt", "stdout-job_prep-1.txt"),
    ]
    for rank in range(2):
        told = json.loads(found[f"stdout-{rank}.txt"])
        env = told["env"]
        assert told["args"] == ["--shard", str(rank), "two words", f"{env['AZ_BATCHAI_JOB_TEMP']}/x"]
        assert env["TOKEN"] == "s3cr3t"
        assert env["AZ_BATCHAI_NUM_GPUS"].isdigit()
        assert env["AZ_BATCHAI_TASK_INDEX"] == str(rank)
        assert env["AZ_BATCHAI_JOB_MASTER_NODE_IP"] == "127.0.0.1"
        assert Path(env["AZ_BATCHAI_MPI_HOST_FILE"]).read_text().count("127.0.0.1 slots=1") == 2
        assert Path(env["AZ_BATCHAI_INPUT_DATA"]).resolve() == site.path / "scripts"
        assert told["cwd"] == env["AZ_BATCHAI_JOB_WORK_DIR"]
        assert f"prepared on {rank} for {env['AZ_BATCHAI_OUTPUT_MODEL']}\n" == found[f"stdout-job_prep-{rank}.txt"]
    segment = handle.record().task.layout.said["segment"]
    assert Path(directories(handle.record())["MODEL"]) == site.path / "logs" / segment / "outputs" / "best"
    assert (site.path / "logs" / segment / "outputs" / "best").is_dir()
    assert {line.rank for line in handle.logs()} == {0, 1}
    kept = [path for path in job_path(handle).rglob("*") if path.is_file() and b"s3cr3t" in path.read_bytes()]
    assert {path.parent.parent.name for path in kept} == {"logs"}, "only where it was printed"
    (secret,) = list_secrets()
    handle.remove()
    assert not list_secrets(), f"{secret} was made for this job"
    assert texts_of(site.path / "logs" / segment / "stdouterr"), "what lies on a share stays"


def texts_of(place: Path) -> list[str]:
    return [path.read_text() for path in place.iterdir()]


def test_tensorflow_has_a_master_workers_and_servers(site: Site) -> None:
    ps = site.script("ps.py", TOLD + UNTIL_THE_SERVER_HAS_TOLD)
    handle = site.submit(
        nodeCount=2,
        tensorFlowSettings={
            "pythonScriptFilePath": ps,
            "pythonInterpreterPath": sys.executable,
            "masterCommandLineArgs": "--master --task $AZ_BATCHAI_TASK_INDEX",
            "workerCommandLineArgs": "--worker --task $AZ_BATCHAI_TASK_INDEX",
            "parameterServerCommandLineArgs": "--ps --hosts $AZ_BATCHAI_PS_HOSTS",
        },
    )
    ended(handle)
    found = {name: json.loads(text) for name, text in texts(handle).items() if name.startswith("stdout")}
    assert sorted(found) == ["stdout-ps-0.txt", "stdout-wk-0.txt", "stdout-wk-1.txt"]
    assert found["stdout-wk-0.txt"]["args"] == ["--master", "--task", "0"]
    assert found["stdout-wk-1.txt"]["args"] == ["--worker", "--task", "1"]
    env = found["stdout-ps-0.txt"]["env"]
    assert found["stdout-ps-0.txt"]["args"] == ["--ps", "--hosts", env["AZ_BATCHAI_PS_HOSTS"]]
    assert len(env["AZ_BATCHAI_WORKER_HOSTS"].split(",")) == 2
    cluster = json.loads(env["TF_CONFIG"])
    assert cluster["task"] == {"type": "ps", "index": 0}
    assert cluster["cluster"]["ps"] == [env["AZ_BATCHAI_PS_HOSTS"]]


def test_a_custom_toolkit_runs_once(site: Site) -> None:
    handle = site.submit(nodeCount=2, customToolkitSettings={"commandLine": 'echo "on $PETCTL_NODE" && echo oops >&2'})
    ended(handle)
    assert texts(handle) == {"stderr.txt": "oops\n", "stdout.txt": "on 0\n"}


def test_the_same_again_has_a_place_of_its_own(site: Site) -> None:
    first = site.submit(customToolkitSettings={"commandLine": "pwd"}, secrets=[{"name": "TOKEN", "value": "s3cr3t"}])
    ended(first)
    second = resubmit(first.id)
    ended(second)
    assert texts(second)["stdout.txt"] == f"{job_path(second) / 'batchai/0/work'}\n"
    assert directories(second.record()) != directories(first.record())
    first.remove()
    assert list_secrets(), "the second job uses it"
    second.remove()
    assert not list_secrets()


def test_pytorch_finds_its_group_by_batch_ais_variables(site: Site, torch_python: str) -> None:
    script = site.script(
        "group.py",
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group(os.environ['AZ_BATCHAI_PYTORCH_BACKEND'],\n"
        "    init_method=os.environ['AZ_BATCHAI_PYTORCH_INIT_METHOD'],\n"
        "    rank=int(os.environ['AZ_BATCHAI_TASK_INDEX']), world_size=int(os.environ['WORLD_SIZE']))\n"
        "total = torch.tensor([float(dist.get_rank() + 1)])\n"
        "dist.all_reduce(total)\n"
        "print('sum', int(total.item()), flush=True)\n"
        "os._exit(0)  # gloo's threads may meet the end of the interpreter, and abort\n",
    )
    settings = {"pythonScriptFilePath": script, "pythonInterpreterPath": torch_python, "processCount": 4}
    handle = site.submit(nodeCount=2, pyTorchSettings={**settings, "communicationBackend": "Gloo"})
    ended(handle)
    found = texts(handle)
    assert [found[f"stdout-{rank}.txt"] for rank in range(4)] == ["sum 10\n"] * 4


@pytest.mark.parametrize("tool", ["chainerSettings", "horovodSettings"])
def test_mpi_tools_put_all_ranks_into_one_file(site: Site, tool: str) -> None:
    settings = {"pythonScriptFilePath": f"{ROOT}/scripts/told.py", "pythonInterpreterPath": sys.executable}
    arguments = {"commandLineArgs": "-g -o $AZ_BATCHAI_OUTPUT_MODEL", "processCount": 3}
    handle = site.submit(
        nodeCount=2,
        outputDirectories=[{"id": "MODEL", "pathPrefix": f"{ROOT}/logs"}],
        **{tool: {**settings, **arguments}},
    )
    ended(handle)
    found = texts(handle)
    assert sorted(found) == ["stderr.txt", "stdout.txt"]
    told = [json.loads(line) for line in found["stdout.txt"].splitlines()]
    assert sorted(one["env"]["RANK"] for one in told) == ["0", "1", "2"]
    for one in told:
        env = one["env"]
        assert one["args"] == ["-g", "-o", env["AZ_BATCHAI_OUTPUT_MODEL"]]
        assert Path(env["AZ_BATCHAI_OUTPUT_MODEL"]).resolve() == Path(directories(handle.record())["MODEL"])
        assert env["AZ_BATCHAI_NUM_GPUS"].isdigit()
        assert env["AZ_BATCHAI_MPI_HOST_FILE"]
        assert one["cwd"] == env["AZ_BATCHAI_JOB_WORK_DIR"]
    assert len({one["cwd"] for one in told}) == 2, "each node has its own"


def test_a_custom_mpi_line(site: Site) -> None:
    line = 'cat "$AZ_BATCHAI_MPI_HOST_FILE" && echo "$OMPI_COMM_WORLD_RANK of $WORLD_SIZE: ${AZ_BATCH_HOST_LIST}"'
    handle = site.submit(nodeCount=2, customMpiSettings={"commandLine": line})
    ended(handle)
    lines = texts(handle)["stdout.txt"].splitlines()
    assert sorted(lines)[:2] == ["0 of 2: 127.0.0.1,127.0.0.1", "1 of 2: 127.0.0.1,127.0.0.1"]
    assert lines.count("127.0.0.1 slots=1 max-slots=1") == 4


def test_a_failure_has_its_words_and_is_not_repeated(site: Site) -> None:
    handle = site.submit(customToolkitSettings={"commandLine": "echo no luck >&2; exit 7"})
    status = ended(handle, "failed")
    assert (status.exit_code, len(status.rounds)) == (7, 1)
    assert texts(handle)["stderr.txt"] == "no luck\n"
    rank = 'if [ "$RANK" = 1 ]; then echo bad luck >&2; exit 5; fi; sleep 600'
    several = site.submit(nodeCount=2, customMpiSettings={"commandLine": rank})
    status = ended(several, "failed")
    assert (status.exit_code, status.error.rank, status.error.message) == (5, 1, "bad luck")
    assert "bad luck\n" in texts(several)["stderr.txt"]
    prepared = site.submit(
        customToolkitSettings={"commandLine": "true"}, jobPreparation={"commandLine": "echo nothing to install; exit 3"}
    )
    status = ended(prepared, "failed")
    assert status.exit_code == 3
    assert texts(prepared)["stdout-job_prep-0.txt"] == "nothing to install\n"


def test_every_line_once_when_a_node_is_killed(site: Site) -> None:
    script = site.script(
        "lines.py",
        "import os, pathlib, sys, time\n"
        "here = pathlib.Path(sys.argv[1])\n"
        "rank, number = os.environ['RANK'], os.environ['PETCTL_ROUND']\n"
        "for count in range(100000):\n"
        "    print(number, rank, count, flush=True)\n"
        "    if (here / 'finish').exists() and number != '1': break\n"
        "    time.sleep(0.002)\n",
    )
    interpreter = {"pythonScriptFilePath": script, "pythonInterpreterPath": sys.executable}
    handle = site.submit(nodeCount=2, caffe2Settings={**interpreter, "commandLineArgs": str(site.path)})
    place = Path(directories(handle.record())["stdouterr"])

    def lines(rank: int) -> list[str]:
        try:
            return (place / f"stdout-{rank}.txt").read_text().splitlines()
        except FileNotFoundError:
            return []

    until(lambda: len(lines(0)) > 100 and len(lines(1)) > 100, "lines of both ranks", WITHIN)
    guardian = int((job_path(handle) / "nodes" / "1" / "pid").read_text())
    (agent,) = children(guardian)
    os.kill(agent, signal.SIGKILL)
    until(lambda: any(line.startswith("2 1 ") for line in lines(1)), "lines of the next round", WITHIN)
    (site.path / "finish").touch()
    ended(handle)
    for rank in range(2):
        written = [line.text.decode().strip() for number in (1, 2) for line in handle.logs(rank=rank, round=number)]
        assert lines(rank) == written, "all that the workers wrote, in its order, once"


@pytest.fixture
def points() -> Iterator[None]:
    """Where commands mount; no job leaves anything there."""
    yield
    place = Path(tempfile.gettempdir(), f"petctl-mounts-{os.getuid()}")
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if f"{place}/" in line]
    for point in mounted:
        subprocess.run(["umount", point], check=True)
    assert not mounted
    place.rmdir()


@pytest.fixture
def data(site: Site, points: None) -> Path:
    """A directory that can be mounted by a command."""
    place = site.path / "data"
    place.mkdir()
    (place / "file").write_text("content")
    trial = site.path / "trial"
    trial.mkdir()
    if subprocess.run(["mount", "--bind", place, trial], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not permitted here")
    subprocess.run(["umount", trial], check=True)
    return place


def test_a_file_system_that_a_command_mounts(site: Site, data: Path) -> None:
    shares = json.loads(site.file().read_text())["properties"]["mountVolumes"]
    own = [{"mountCommand": f"mount --bind {data}", "relativeMountPath": "own"}]
    handle = site.submit(
        nodeCount=2,
        mountVolumes={**shares, "unmanagedFileSystems": own},
        customMpiSettings=None,
        caffe2Settings={"pythonScriptFilePath": f"{ROOT}/scripts/told.py", "pythonInterpreterPath": sys.executable},
        inputDirectories=[{"id": "DATA", "path": f"{ROOT}/own"}],
        outputDirectories=[{"id": "MODEL", "pathPrefix": f"{ROOT}/own"}],
        jobPreparation={"commandLine": "cat $AZ_BATCHAI_INPUT_DATA/file && touch $AZ_BATCHAI_OUTPUT_MODEL/made"},
    )
    ended(handle)
    assert sorted(texts(handle)) == ["stderr-0.txt", "stderr-1.txt", "stdout-0.txt", "stdout-1.txt"]
    assert len(list(data.rglob("outputs/made"))) == 1, "it is on what was mounted"
    handle.remove()
    assert (data / "file").exists()


def test_a_mount_command_that_fails_ends_the_job_in_its_own_words(site: Site, points: None) -> None:
    shares = json.loads(site.file().read_text())["properties"]["mountVolumes"]
    own = [{"mountCommand": "sh -c 'echo no route to nfs.example.org >&2; exit 32' --", "relativeMountPath": "own"}]
    handle = site.submit(
        mountVolumes={**shares, "unmanagedFileSystems": own}, customToolkitSettings={"commandLine": "true"}
    )
    status = ended(handle, "failed")
    assert status.exit_code == 32
    assert "cannot mount own" in status.error.message
    assert "no route to nfs.example.org" in status.error.traceback


def test_a_container_of_a_real_account(site: Site, azurite: Azurite) -> None:
    container = azurite.make("batchai").rpartition("/")[2]
    blobs = azurite.client().get_container_client(container)
    blobs.upload_blob("in/first.txt", b"content")
    settings = json.loads((site.path / "petctl.yaml").read_text())
    stores = {f"az://{ACCOUNT}": {"endpoint": f"{azurite.url}/{ACCOUNT}"}}
    (site.path / "petctl.yaml").write_text(json.dumps({**settings, "stores": stores}))
    shares = json.loads(site.file().read_text())["properties"]["mountVolumes"]
    mount = {"accountName": ACCOUNT, "containerName": container, "relativeMountPath": "data"}
    handle = site.submit(
        nodeCount=2,
        mountVolumes={**shares, "azureBlobFileSystems": [{**mount, "credentials": {"accountKey": ACCOUNT_KEY}}]},
        customToolkitSettings={
            "commandLine": "cat $AZ_BATCHAI_INPUT_DATA/first.txt && echo made >$AZ_BATCHAI_OUTPUT_MODEL/made.txt"
        },
        inputDirectories=[{"id": "DATA", "path": f"{ROOT}/data/in"}],
        outputDirectories=[{"id": "MODEL", "pathPrefix": f"{ROOT}/data"}],
    )
    ended(handle)
    assert texts(handle)["stdout.txt"] == "content\n"
    segment = handle.record().task.layout.said["segment"]
    assert blobs.download_blob(f"{segment}/outputs/made.txt").readall() == b"made\n"
    assert ACCOUNT_KEY not in (job_path(handle) / "job.json").read_text()

    missing = {**mount, "containerName": "missing", "credentials": {"accountKey": ACCOUNT_KEY}}
    with pytest.raises(SpecError, match=r"azureBlobFileSystems\[0\].containerName: cannot be mounted: .*missing"):
        site.submit(
            mountVolumes={**shares, "azureBlobFileSystems": [missing]}, customToolkitSettings={"commandLine": "true"}
        )


def petctl(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "petctl", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN,
        env={**os.environ, **env},
    )


def test_the_command_line(site: Site) -> None:
    path = site.file(customToolkitSettings={"commandLine": "echo $AZ_BATCHAI_CLUSTER_NAME"})
    bare = petctl("submit", str(path))
    assert bare.returncode == 2
    assert bare.stderr.count("<AZURE_BATCHAI_STORAGE_ACCOUNT> is unknown") == 2
    ran = petctl("run", "-q", "--name", "mine", str(path), AZURE_BATCHAI_STORAGE_ACCOUNT="acc")
    assert (ran.returncode, ran.stdout) == (0, "local\n"), ran.stderr
    (status,) = list_jobs()
    assert status.id.startswith("mine-")
    registry = {"image": "i", "credentials": {"username": "u", "password": "p"}}
    plain = site.file(
        customToolkitSettings={"commandLine": "true"}, containerSettings={"imageSourceRegistry": registry}
    )
    ran = petctl("run", "--no-container", str(plain), AZURE_BATCHAI_STORAGE_ACCOUNT="acc")
    assert ran.returncode == 0, ran.stderr
    assert "the image i is not used" in ran.stderr
    assert not list_secrets()


def test_a_command_beside_the_workers_sees_the_same_variables(site: Site) -> None:
    handle = site.submit(customToolkitSettings={"commandLine": "echo up; while sleep 0.1; do :; done"})
    until(lambda: handle.status().state == "running", "the job runs", WITHIN)
    shown = petctl("exec", handle.id, "--", "sh", "-c", "pwd; echo $AZ_BATCHAI_STDOUTERR_DIR")
    assert shown.returncode == 0, shown.stderr
    cwd, logs = shown.stdout.splitlines()
    assert cwd == str(job_path(handle) / "batchai/0/work")
    assert Path(logs).resolve() == Path(directories(handle.record())["stdouterr"])
    until(lambda: texts(handle).get("stdout.txt") == "up\n", "what the worker says first", WITHIN)
    handle.cancel()
    assert handle.wait(WITHIN).state == "cancelled"
    assert texts(handle)["stdout.txt"] == "up\n"


def test_whatever_cannot_be_done_is_said_before_anything_starts(site: Site) -> None:
    shares = json.loads(site.file().read_text())["properties"]["mountVolumes"]
    blobs = [{"accountName": "other", "containerName": "data", "relativeMountPath": "data"}]
    path = site.file(
        nodeCount=2,
        mountVolumes={**shares, "azureBlobFileSystems": blobs},
        chainerSettings={"pythonScriptFilePath": "x", "processcount": 2},
        secrets=[{"name": "A", "value": "s3cr3t"}, {"name": "B", "valueSecretReference": {"secretUrl": "https://v/b"}}],
    )
    refused = petctl("submit", str(path), AZURE_BATCHAI_STORAGE_ACCOUNT="acc")
    assert refused.returncode == 2
    for words in (
        "properties.chainerSettings.processcount: unknown field; did you mean 'processCount'?",
        "properties.mountVolumes.azureBlobFileSystems[0].containerName: cannot be mounted: this machine has no storage",
        "properties.secrets[1].valueSecretReference: petctl does not ask key vaults",
    ):
        assert words in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not list_jobs()
    assert not list_secrets()
