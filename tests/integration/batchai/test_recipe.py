"""The Chainer recipe of Batch AI, its commands as the document writes them, on clusters of this machine.

What differs from the document: the step for Cloud Shell alone is left out, downloads are files that lie beside the
test, `wget` copies them, and the training script is a small one that takes the same options. Here it runs on a machine
without a container engine; test_recipe_in_container.py has the image.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from typing import Any

import pytest

from tests.integration.batchai.conftest import Shell

ACCOUNT = "batchairecipestorage"
TRAIN = '''
"""A stand-in for ChainerMN's train_mnist.py: the same options, the same files, no network."""
import argparse
import os
import pathlib

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", "-g", action="store_true")
parser.add_argument("--out", "-o", default="result")
parser.add_argument("--epoch", "-e", type=int, default=2)
args = parser.parse_args()
try:
    from mpi4py import MPI

    rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
except ImportError:
    rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
if rank == 0:
    print("Num process (COMM_WORLD):", size, flush=True)
    if args.gpu:
        print("Using GPUs", flush=True)
    for epoch in range(1, args.epoch + 1):
        print("epoch", epoch, flush=True)
    out = pathlib.Path(args.out)
    (out / "cg.dot").write_text("digraph {}")
    (out / "log").write_text("[]")
'''
JOB: dict[str, Any] = {
    "$schema": "https://raw.githubusercontent.com/Azure/BatchAI/master/schemas/2018-05-01/job.json",
    "properties": {
        "nodeCount": 2,
        "chainerSettings": {
            "pythonScriptFilePath": "$AZ_BATCHAI_JOB_MOUNT_ROOT/scripts/chainer/train_mnist.py",
            "commandLineArgs": "-g -o $AZ_BATCHAI_OUTPUT_MODEL",
        },
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs",
        "mountVolumes": {
            "azureFileShares": [
                {
                    "azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/logs",
                    "relativeMountPath": "logs",
                },
                {
                    "azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/scripts",
                    "relativeMountPath": "scripts",
                },
            ]
        },
        "outputDirectories": [{"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs"}],
        "containerSettings": {"imageSourceRegistry": {"image": "batchaitraining/chainermn:openMPI"}},
    },
}
PREPARE = [
    "az group create -n batchai.recipes -l eastus",
    "az batchai workspace create -g batchai.recipes -n recipe_workspace -l eastus",
]
CLUSTER = (
    "az batchai cluster create -n nc6 -g batchai.recipes -w recipe_workspace -s Standard_NC6 -t 2 --generate-ssh-keys "
)
DEPLOY = [
    "az storage account create -n <storage account name> --sku Standard_LRS -g batchai.recipes -l eastus",
    "wget https://raw.githubusercontent.com/chainer/chainermn/v1.3.0/examples/mnist/train_mnist.py",
    "az storage share create -n scripts --account-name <storage account name>",
    "az storage share create -n logs --account-name <storage account name>",
    "az storage directory create -n chainer -s scripts --account-name <storage account name>",
    "az storage file upload -s scripts --source train_mnist.py --path chainer --account-name <storage account name> ",
    "az batchai experiment create -g batchai.recipes -w recipe_workspace -n chainer_experiment",
    "wget -O job.json https://raw.githubusercontent.com/Azure/BatchAI/master/recipes/Chainer/Chainer-GPU-Distributed/"
    "job.json",
]
SUBMIT = (
    "az batchai job create -n distributed_chainer -c nc6 -g batchai.recipes -w recipe_workspace -e chainer_experiment "
    "-f job.json --storage-account-name <storage account name>"
)
STREAM = (
    "az batchai job file stream -j distributed_chainer -g batchai.recipes -w recipe_workspace -e chainer_experiment  "
    "-f stdout.txt"
)
FILES = (
    "az batchai job file list -j distributed_chainer -g batchai.recipes -w recipe_workspace -e chainer_experiment  "
    "-g batchai.recipes -d MODEL"
)
SEGMENT = (
    "az batchai job show -n distributed_chainer -g batchai.recipes -w recipe_workspace -e chainer_experiment "
    "--query jobOutputDirectoryPathSegment"
)
DELETE = "az group delete -n batchai.recipes -y"

NODES = dict.fromkeys(("idle", "leaving", "preparing", "running", "unusable"))
SHARE = {
    "accountName": "",
    "azureFileUrl": "",
    "credentials": {"accountKey": None, "accountKeySecretReference": None},
    "directoryMode": "0777",
    "fileMode": "0777",
    "relativeMountPath": "",
}
CLUSTER_KEYS = {
    "allocationState": "steady",
    "allocationStateTransitionTime": "",
    "creationTime": "",
    "currentNodeCount": 2,
    "errors": None,
    "id": "",
    "name": "nc6",
    "nodeSetup": None,
    "nodeStateCounts": {f"{state}NodeCount": 0 for state in NODES} | {"idleNodeCount": 2},
    "provisioningState": "succeeded",
    "provisioningStateTransitionTime": "",
    "resourceGroup": "batchai.recipes",
    "scaleSettings": {"autoScale": None, "manual": {"nodeDeallocationOption": "requeue", "targetNodeCount": 2}},
    "subnet": None,
    "type": "Microsoft.BatchAI/workspaces/clusters",
    "userAccountSettings": {"adminUserName": "", "adminUserPassword": None, "adminUserSshPublicKey": ""},
    "virtualMachineConfiguration": {
        "imageReference": {
            "offer": "UbuntuServer",
            "publisher": "Canonical",
            "sku": "16.04-LTS",
            "version": "latest",
            "virtualMachineImageId": None,
        }
    },
    "vmPriority": "dedicated",
    "vmSize": "STANDARD_NC6",
}
JOB_KEYS = {
    "caffe2Settings": None,
    "caffeSettings": None,
    "chainerSettings": {
        "commandLineArgs": "-g -o $AZ_BATCHAI_OUTPUT_MODEL",
        "processCount": 2,
        "pythonInterpreterPath": None,
        "pythonScriptFilePath": "$AZ_BATCHAI_JOB_MOUNT_ROOT/scripts/chainer/train_mnist.py",
    },
    "cluster": {"id": "", "resourceGroup": "batchai.recipes"},
    "cntkSettings": None,
    "constraints": {"maxWallClockTime": "7 days, 0:00:00"},
    "containerSettings": {
        "imageSourceRegistry": {"credentials": None, "image": "batchaitraining/chainermn:openMPI", "serverUrl": None},
        "shmSize": None,
    },
    "creationTime": "",
    "customMpiSettings": None,
    "customToolkitSettings": None,
    "environmentVariables": None,
    "executionInfo": {"endTime": "", "errors": None, "exitCode": "", "startTime": ""},
    "executionState": "",
    "executionStateTransitionTime": "",
    "horovodSettings": None,
    "id": "",
    "inputDirectories": None,
    "jobOutputDirectoryPathSegment": "",
    "jobPreparation": None,
    "mountVolumes": {
        "azureBlobFileSystems": None,
        "azureFileShares": [SHARE, SHARE],
        "fileServers": None,
        "unmanagedFileSystems": None,
    },
    "name": "distributed_chainer",
    "nodeCount": 2,
    "outputDirectories": [{"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs", "pathSuffix": None}],
    "provisioningState": "succeeded",
    "provisioningStateTransitionTime": "",
    "pyTorchSettings": None,
    "resourceGroup": "batchai.recipes",
    "schedulingPriority": "normal",
    "secrets": None,
    "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs",
    "tensorFlowSettings": None,
    "toolType": "chainer",
    "type": "Microsoft.BatchAI/workspaces/experiments/jobs",
}


def check(found: Any, wanted: Any, path: str = "") -> None:
    """Every key of the document's example is there, with its value; an empty text there means any value."""
    if isinstance(wanted, dict):
        assert isinstance(found, dict), path
        assert not set(wanted) - set(found), f"{path} lacks {sorted(set(wanted) - set(found))}"
        for name, value in wanted.items():
            check(found[name], value, f"{path}.{name}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), path
        for number, value in enumerate(wanted):
            check(found[number], value, f"{path}[{number}]")
    elif wanted != "":
        assert found == wanted, f"{path} is {found!r}"


def test_the_whole_recipe_runs_as_the_document_writes_it(shell: Shell) -> None:
    needs_mpirun()
    assert "not using the image batchaitraining/chainermn:openMPI" in follow(shell).stderr


def needs_mpirun() -> None:
    if shutil.which("mpirun") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no mpirun; apt install openmpi-bin")


def follow(shell: Shell) -> subprocess.CompletedProcess[str]:
    """Types every command of the document; what came of submitting the job."""
    (shell.directory / "web").mkdir()
    shell.write("web/train_mnist.py", TRAIN)
    shell.write("web/job.json", JOB)
    shell.program("wget", 'for last in "$@"; do :; done; cp "web/${last##*/}" .')

    for line in PREPARE:
        shell(line)
    cluster = shell.json(CLUSTER)
    check(cluster, CLUSTER_KEYS)
    for line in DEPLOY:
        shell(line.replace("<storage account name>", ACCOUNT))

    submitted = shell(SUBMIT.replace("<storage account name>", ACCOUNT))
    job = json.loads(submitted.stdout)
    check(job, JOB_KEYS)
    assert job["executionState"] in ("queued", "running")
    assert job["cluster"]["id"] == cluster["id"]
    assert job["mountVolumes"]["azureFileShares"][0]["accountName"] == ACCOUNT

    streamed = shell(STREAM)
    lines = streamed.stdout.splitlines()
    assert lines[:2] == ["Num process (COMM_WORLD): 2", "Using GPUs"], streamed.stderr
    assert lines[-1] == "epoch 2"

    files = shell.json(FILES)
    assert [file["name"] for file in files] == ["cg.dot", "log"]
    for file in files:
        assert set(file) == {"contentLength", "downloadUrl", "fileType", "lastModified", "name"}
        assert file["fileType"] == "file"
        with urllib.request.urlopen(file["downloadUrl"]) as answer:
            assert len(answer.read()) == file["contentLength"]

    segment = json.loads(shell(SEGMENT).stdout)
    assert segment.startswith(
        "00000000-0000-0000-0000-000000000000/batchai.recipes/workspaces/recipe_workspace/"
        "experiments/chainer_experiment/jobs/distributed_chainer/"
    )
    assert (shell.home / "batchai/storage" / ACCOUNT / "file/logs" / segment / "outputs/log").is_file()

    shell(DELETE)
    assert shell.json("az group list") == []
    assert shell.json("petctl list -o json") == []
    assert not [path for path in (shell.home / "batchai").rglob("*") if path.is_file() and path.name != "lock"]
    assert not list((shell.home / "clusters").glob("[a-z]*"))
    return submitted
