"""Batch AI's job files and its command line over pods."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.k8s.cluster.cluster import Cluster
from tests.k8s.openmpi import collect, template
from tests.k8s.user import User

pytestmark = pytest.mark.root

LINE = (
    'echo "rank $RANK of $WORLD_SIZE, $(grep -c slots= $AZ_BATCHAI_MPI_HOST_FILE) hosts, $WORD"; '
    "echo weights > $AZ_BATCHAI_OUTPUT_MODEL/model-$RANK"
)
FILE = {
    "properties": {
        "nodeCount": 2,
        "customMpiSettings": {"commandLine": LINE},
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_TEMP_DIR",
        "outputDirectories": [{"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_JOB_TEMP_DIR"}],
        "environmentVariables": [{"name": "WORD", "value": "from the file"}],
        "jobPreparation": {"commandLine": "echo preparing > $AZ_BATCHAI_JOB_TEMP/prepared"},
    }
}


@pytest.fixture
def user(own_cluster: Cluster, namespace: str, tmp_path: Path) -> User:
    """Somebody whose pods have Open MPI, with a job file."""
    user = User(own_cluster, namespace, tmp_path)
    collect(tmp_path / "openmpi")
    tmp_path.chmod(0o755)
    user.configure(pod=template(tmp_path / "openmpi", tmp_path / "openmpi"))
    (user.project / "job.json").write_text(json.dumps(FILE))
    return user


def batchai(user: User, *words: str) -> subprocess.CompletedProcess[str]:
    """The old command line."""
    argv = [sys.executable, "-m", "petctl.compat.batchai.cli.batchai", *words]
    return subprocess.run(argv, cwd=user.project, env=user.environment, capture_output=True, text=True, timeout=120)


def test_a_job_file_runs_over_two_pods(user: User) -> None:
    done = user.petctl("run", "-c", "k8s", "job.json")
    assert done.returncode == 0, done.stderr
    assert all(f"rank {rank} of 2, 2 hosts, from the file" in done.stdout for rank in range(2))


def test_the_old_command_line_submits_to_pods(user: User) -> None:
    done = batchai(user, "job", "create", "-n", "trial", "-c", "k8s", "-f", "job.json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert (made["name"], made["nodeCount"], made["toolType"]) == ("trial", 2, "custommpi")
    done = batchai(user, "job", "wait", "-n", "trial")
    assert done.returncode == 0, done.stderr
    shown = json.loads(batchai(user, "job", "show", "-n", "trial").stdout)
    assert (shown["executionState"], shown["executionInfo"]["exitCode"]) == ("succeeded", 0)
    assert batchai(user, "job", "delete", "-n", "trial", "-y").returncode == 0
    assert batchai(user, "job", "show", "-n", "trial").returncode == 3
