"""ACT's command line over pods: the same words, with -c naming a cluster of Kubernetes."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.k8s.cluster.cluster import Cluster
from tests.k8s.cluster.waiting import until
from tests.k8s.user import User

pytestmark = pytest.mark.root

YAML = "experiment_name: jianfw\ngpu_per_node: 2\nlauncher: elastic\ndevice: cpu\n"
TRAIN = """
import os, sys, time
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], sys.argv[1:], flush=True)
time.sleep(0 if "--quick" in sys.argv else 600)
"""


@pytest.fixture
def user(own_cluster: Cluster, namespace: str, tmp_path: Path) -> User:
    """Somebody with a project of ACT's."""
    user = User(own_cluster, namespace, tmp_path)
    (user.project / "aux_data/aml").mkdir(parents=True)
    (user.project / "aux_data/aml/aml.yaml").write_text(YAML)
    (user.project / "train.py").write_text(TRAIN)
    return user


def a(user: User, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "petctl.compat.act.cli.a", *words]
    done = subprocess.run(
        argv,
        cwd=user.project,
        env=user.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, f"{words}: {done.stdout}\n{done.stderr}"
    return done


def facts(text: str) -> dict[str, Any]:
    found = ast.literal_eval(text[text.index("{'appID'") :])
    assert isinstance(found, dict)
    return found


def test_runs_on_pods_are_submitted_queried_aborted_and_resubmitted(user: User) -> None:
    a(user, "init")
    run = a(user, "-c", "k8s", "-n", "4", "submit", "python3", "train.py", "--data", "voc 20").stdout.strip()
    user.running(run, 2)
    until(lambda: user.petctl("logs", run).stdout.count(" of 4 ") == 4, "all ranks have said so", 90)
    queried = a(user, "-c", "k8s", "q", run[-8:]).stdout
    assert queried.startswith("rank 0 of 4 ['--data', 'voc 20']\nlog files:\n")
    assert all(
        (user.project / f"assets/{run}/azureml-logs/70_driver_log_rank_{n}.txt").stat().st_size for n in range(4)
    )
    known = facts(queried)
    assert (known["appID"], known["cluster"], known["num_gpu"], known["status"]) == (run, "k8s", 4, "Running")
    # A list asks Kubernetes, which calls a pod ready some seconds after its workers are in a round.
    until(lambda: run in a(user, "-c", "k8s", "qr").stdout, "the run is in the list of those that run", 60)

    again = a(user, "-c", "k8s", "resubmit", run[-8:]).stdout.strip()
    assert again != run
    assert facts(a(user, "q", "-no-wl", run).stdout)["status"] == "Canceled"
    user.running(again, 2)
    a(user, "-c", "k8s", "abort", again)
    assert user.ended(again)["state"] == "cancelled"
    assert facts(a(user, "q", "-no-wl", again).stdout)["status"] == "Canceled"

    quick = a(user, "-c", "k8s", "-single", "s", "python3", "train.py", "--quick").stdout.strip()
    assert user.ended(quick)["state"] == "succeeded"
    assert a(user, "q", quick).stdout.startswith("rank 0 of 1 ['--quick']\n")
    user.petctl("rm", run, again, quick)
    until(lambda: not user.left(), "nothing is left")
