"""ACT's document: its files and its commands as they are written there, on this machine and on Azurite.

What differs from the document: installing is petctl's, `xxxx` is filled in, the account of the emulator has an
`endpoint`, programs and data of the document are small ones that are made here, the image, which nobody can pull any
more, is not used, and on a machine without mpirun or GPUs the YAML says so in two lines of petctl's own.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from petctl.machine.gpus import visible_gpus
from tests.integration.storage.conftest import fill, tree
from tests.integration.storage.servers import ACCOUNT, ACCOUNT_KEY, Azurite
from tests.integration.waiting import until

SOURCE = Path(__file__).parents[3] / "src"
PATIENCE = 120
RUN = "jianfw_1563257309_60ce2fc7"
AML = r"""
azure_blob_config_file: null # no need to specify, legacy option
datastore_name: null # no need to specify. legacy option
# used to initialize the workspace
aml_config: aux_data/aml/config.json

config_param:
   code_path:
       azure_blob_config_file: ./aux_data/configs/vigeastblob_account.yaml # the blob account information
       path: path/to/code.zip # where the zipped source code is
   data_folder:
       azure_blob_config_file: ./aux_data/configs/vigeastblob_account.yaml # the blob account information
       # after the source code is unzipped, this folder will be as $ROOT/data
       path: path/to/data
   output_folder:
       azure_blob_config_file: ./aux_data/configs/vigeastblob_account.yaml # the blob account information
       path: path/to/output # this folder will be as $ROOT/output
# if False, it will use AML's PyTorch estimator, which is not heavily tested here
use_custom_docker: true
compute_target: NC24RSV3
# if it is the ITP cluster, please set it as true
aks_compute: false
docker:
    # the custom docker. If use_custom_docker is False, this will be ignored
    image: amsword/setup:py36pt16
experiment_name: experiment_name
use_cli_auth: True
multi_process: True
gpu_per_node: 4
env:
   NCCL_IB_DISABLE: '0'
zip_options:
    - '-x'
    - '\*src/py-faster-rcnn/\*'
    - '-x'
    - '\*src/CMC/\*'
"""
JSON = '{"subscription_id": "xxxx", "resource_group": "xxxxx", "workspace_name": "xxxxx"}'
TRAIN = """
import argparse, os, pathlib, sys
parser = argparse.ArgumentParser()
parser.add_argument("--data")
parser.add_argument("--wait", action="store_true")
args = parser.parse_args()
rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
master = os.environ.get("AZ_BATCHAI_JOB_MASTER_NODE_IP") or os.environ["MASTER_ADDR"]  # the first: under mpirun
print(f"rank {rank} of {size} at {master}, {len(os.listdir(f'data/{args.data}'))} files", flush=True)
pathlib.Path(f"output/{size}-{rank}.txt").write_text(os.environ["NCCL_IB_DISABLE"])
if args.wait:
    sys.stdin = open(os.environ["HELD"])  # nobody ever writes there
"""
EARLIER = """
import sys
from petctl.compat.act import runs
from petctl.compat.act.client import create_aml_client
runs.new_run_id = lambda experiment: sys.argv[1]
create_aml_client().submit(sys.argv[2:])
"""

SEARCH = """
from act.aml_client import create_aml_client
from petctl.jobs import get
client = create_aml_client(num_gpu=1, experiment_name="search", with_log=False)
runs = [client.submit(["python", "-c", f"print({rate})"]) for rate in (0.1, 0.01)]
for run in runs:
    get(run).wait()
assert [facts["status"] for facts in client.iter_query(runs)] == ["Completed"] * 2
assert {facts["appID"] for facts in client.query()} == set(runs)
assert client.query(by_status="Failed") == []
assert client.query_one(runs[0], with_details=False) == {"appID": runs[0], "status": "Completed"}
assert [node["name"] for node in client.list_nodes(runs[0])] in (["0"], [])
assert client.get_cluster_status()["queued_jobs"] == 0
assert client.list("data/voc20/") == ["data/voc20/a.jpg", "data/voc20/deep/b.jpg"]
assert client.exists("data/voc20") and client.dir_exists("data/voc20") and not client.file_exists("data/voc20")
assert client.query_file_info("data/voc20/a.jpg")["size"] == 3000
assert client.get_url("data/voc20/a.jpg").startswith("http")
client.upload("output/west", from_cluster="we3v32", from_cluster_folder="data")
assert client.rm("data/voc20/deep") == 1
"""


class Shell:
    """The document's reader: a project, and `a` on the PATH."""

    def __init__(self, root: Path, azurite: Azurite) -> None:
        self.root, self.azurite, self.home = root / "project", azurite, root / "home"
        programs = root / "bin"
        for folder in (self.root / "aux_data/aml", self.root / "aux_data/configs", programs, root / "config/petctl"):
            folder.mkdir(parents=True)
        venv.create(root / "venv", with_pip=False, symlinks=True)
        (root / "config/petctl/config.yaml").write_text("clusters: {local: {container: /nowhere/podman}}\n")
        foreign = ("AZURE_", "PETCTL_", "AML_", "OMPI_")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(foreign)},
            "PETCTL_HOME": str(self.home),
            "XDG_CONFIG_HOME": str(root / "config"),
            "PYTHONPATH": str(SOURCE),
            "PATH": f"{programs}{os.pathsep}{root / 'venv/bin'}{os.pathsep}{os.environ['PATH']}",
            "HELD": str(root / "held"),
        }
        os.mkfifo(root / "held")
        self.program(programs / "petctl", f'exec {sys.executable} -P -m petctl "$@"')
        self.program(programs / "nvidia-smi", "echo 'Driver Version: none'")
        self.program(programs / "cmd", "echo a command")
        self("petctl compat install act --dir ../bin")

    def program(self, path: Path, line: str) -> None:
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def __call__(self, line: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Runs one line to its end and checks its exit code."""
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            cwd=self.root,
            env=self.environment,
        )
        assert done.returncode == code, f"{line}\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def container(self, name: str) -> Any:
        """A container of the emulator, by the official SDK; made, with the account's file."""
        self.azurite.make(name)
        account = {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY, "sas_token": None, "container_name": name}
        account["endpoint"] = f"{self.azurite.url}/{ACCOUNT}"
        file = self.root / f"aux_data/configs/{name.partition('-')[0]}blob_account.yaml"
        file.write_text(json.dumps(account))
        return self.azurite.client().get_container_client(name)

    def written(self, run: str) -> str:
        """What all ranks of a run have printed so far."""
        return "".join(path.read_text() for path in (self.home / "jobs" / run / "logs").glob("round-*/rank-*.out"))

    def clean_up(self) -> None:
        jobs = self("petctl list -q").stdout.split()
        if jobs:
            self(f"petctl rm --force {' '.join(jobs)}")


@pytest.fixture
def shell(tmp_path: Path, azurite: Azurite) -> Iterator[Shell]:
    made = Shell(tmp_path, azurite)
    try:
        yield made
    finally:
        made.clean_up()


def here() -> str:
    """What this machine does not have, in petctl's own keys."""
    if shutil.which("mpirun") is None and os.environ.get("CI"):
        pytest.fail("there is no mpirun; apt install openmpi-bin")
    mpi = "" if shutil.which("mpirun") else "launcher: elastic\n"
    return mpi + ("" if visible_gpus(os.environ) else "device: cpu\n")


def facts_in(text: str) -> dict[str, Any]:
    found = ast.literal_eval(text[text.index("{'appID'") :])
    assert isinstance(found, dict)
    return found


def names(container: Any) -> list[str]:
    return sorted(str(blob.name) for blob in container.list_blobs())


def test_every_command_of_the_document_runs_as_it_is_written(shell: Shell, tmp_path: Path) -> None:
    unique = tmp_path.name.replace("_", "-")[-20:]
    blobs, europe, west = (shell.container(f"{name}-{unique}") for name in ("vigeast", "eu", "we3v32"))
    files = shell.root / "aux_data/aml"
    (files / "aml.yaml").write_text(AML + here())
    (files / "config.json").write_text(JSON)
    for name in ("c1", "c2"):
        (files / f"{name}.yaml").write_text(f"_base_: aml.yaml\nexperiment_name: on_{name}\n")
    for name in ("eu", "we3v32"):
        place = f"{{azure_blob_config_file: ./aux_data/configs/{name}blob_account.yaml, path: all/of/data}}"
        (files / f"{name}.yaml").write_text(f"config_param: {{data_folder: {place}}}\n")
    (shell.root / "train.py").write_text(TRAIN)
    fill(shell.root / "src/CMC", {"left-out.py": 10})
    fill(shell.root / "data/voc20", {"a.jpg": 3000, "deep/b.jpg": 10})

    # 6. Data management, first: runs have the folders
    assert "copied 2 files" in shell("a u data/voc20").stderr
    assert names(blobs) == ["path/to/data/voc20/a.jpg", "path/to/data/voc20/deep/b.jpg"]
    blobs.upload_blob("path/to/data/voc2012/c.jpg", b"12345")
    listed = shell("a ls data/voc20")
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == [
        *("data/voc20/a.jpg", "data/voc20/deep/b.jpg", "data/voc2012/c.jpg")
    ]
    assert "3,015 bytes" in listed.stderr
    for name in ("coco/x", "coco/y/z", "coco2017/x"):
        blobs.upload_blob(f"path/to/data/{name}", b"12345")
    shell("a d data/coco")
    assert sorted(tree(shell.root / "data/coco")) == ["x", "y/z"]
    shell("a rm data/coco")
    assert not [name for name in names(blobs) if "/coco/" in name]
    assert "path/to/data/coco2017/x" in names(blobs)
    west.upload_blob("all/of/data/voc20/from-west.jpg", b"1")
    shell("a -c eu -f we3v32 u data/voc20")
    assert names(europe) == ["all/of/data/voc20/from-west.jpg"]

    # 1. - 3. A run that is there already: queried, aborted, resubmitted
    (tmp_path / "earlier.py").write_text(EARLIER)
    shell(f"{sys.executable} ../earlier.py {RUN} python train.py --data voc20 --wait")
    until(lambda: shell.written(RUN).count("of 4 at") == 4, "all ranks run", PATIENCE)
    queried = shell(f"a query {RUN}").stdout
    logs = shell.root / "assets" / RUN / "azureml-logs"
    assert re.match(r"rank 0 of 4 at \S+, 2 files\nlog files:\n\[", queried)
    assert all(f"'{logs}/70_driver_log_rank_{rank}.txt'" in queried for rank in range(4))
    assert "rank 3 of 4" in (logs / "70_driver_log_rank_3.txt").read_text()
    facts = facts_in(queried)
    assert (facts["appID"], facts["appID-s"], facts["status"]) == (RUN, "e2fc7", "Running")
    assert (facts["num_gpu"], facts["cmd"]) == (4, "python train.py --data voc20 --wait")
    assert isinstance(facts["elapsedTime"], float)
    assert facts_in(shell(f"a q {RUN}").stdout)["start_time"] == facts["start_time"]
    shell(f"a abort {RUN}")
    first = shell(f"a resubmit {RUN}").stdout.strip()
    assert facts_in(shell(f"a q -no-wl {RUN}").stdout)["status"] == "Canceled"
    second = shell("a resubmit 60ce2fc7").stdout.strip()
    assert re.fullmatch(r"experiment_name_\d{10}_[0-9a-f]{8}", second)
    shell(f"a abort {first} {second}")

    # 4. - 5. Submitting
    pinned = shell("a init").stderr
    assert "aux_data/configs" in pinned
    assert "path/to/code.zip" in names(blobs)
    submitted = {
        line: shell(line)
        for line in (
            "a submit cmd",
            "a submit nvidia-smi",
            "a submit python train.py --data voc20",
            "a -n 8 submit python train.py --data voc20",
            "a -c c1 submit ls",
            "a -c c2 submit nvidia-smi",
        )
    }
    assert "not using the image amsword/setup:py36pt16" in submitted["a submit cmd"].stderr
    assert "NC24RSV3 is not a cluster that petctl knows" in submitted["a submit cmd"].stderr
    ids = {line: done.stdout.strip() for line, done in submitted.items()}
    shell(f"petctl wait {' '.join(ids.values())}")
    wrote = {line: shell.written(run) for line, run in ids.items()}
    assert wrote["a submit cmd"].count("a command") == 4
    assert wrote["a submit nvidia-smi"].count("Driver Version") == 4
    assert wrote["a submit python train.py --data voc20"].count("of 4 at") == 4
    assert wrote["a -n 8 submit python train.py --data voc20"].count("of 8 at") == 8
    assert "train.py" in wrote["a -c c1 submit ls"]
    assert "configs" not in wrote["a -c c1 submit ls"]
    assert ids["a -c c2 submit nvidia-smi"].startswith("on_c2_")
    assert {f"path/to/output/8-{rank}.txt" for rank in range(8)} <= set(names(blobs))
    assert facts_in(shell(f"a q {ids['a -n 8 submit python train.py --data voc20']}").stdout)["num_gpu"] == 8
    assert "on_c1" not in shell("a q").stdout
    assert "on_c1" in shell("python -m act.aml_client -c c1 q").stdout

    # The Python API, in a program of the user's
    (shell.root / "search.py").write_text(SEARCH)
    west.upload_blob("all/of/data/west/x", b"1")
    package = next((tmp_path / "venv/lib").glob("python3*/site-packages"))
    shell(f"PYTHONPATH={SOURCE}:{package} {sys.executable} search.py")
    assert "path/to/output/west/x" in names(blobs)
    assert "path/to/data/voc20/deep/b.jpg" not in names(blobs)
