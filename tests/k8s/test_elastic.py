"""Elastic training in pods: a lost pod costs the survivors a step, whoever had rank 0, and the coordinator's none."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.k8s.cluster.cluster import Cluster
from tests.k8s.cluster.waiting import until
from tests.k8s.stepping import REMARK, steps_of
from tests.k8s.user import User

pytestmark = [pytest.mark.root, pytest.mark.torch]

TRAIN = """
import os, time
import torch
from torch.nn.parallel import DistributedDataParallel
from petctl import elastic

torch.set_num_threads(1)
state = elastic.State(model=torch.nn.Linear(4, 4), step=0)

def train(state):
    parallel = DistributedDataParallel(state.model)
    while True:
        parallel(torch.ones(2, 4)).sum().backward()
        state.step += 1
        state.commit()
        LINE
        time.sleep(0.05)

elastic.run(train, state)
""".replace("LINE", REMARK % ("state.step", "elastic.rank()", "elastic.world_size()", "os.environ['PETCTL_ROUND']"))


def packages_of(python: str) -> Path:
    """Where an interpreter has its packages."""
    ask = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    return Path(subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip())


@pytest.fixture
def trainer(own_cluster: Cluster, namespace: str, tmp_path: Path) -> User:
    """Somebody whose pods have PyTorch."""
    user = User(own_cluster, namespace, tmp_path)
    mount = {"mountPath": "/torch", "name": "torch", "readOnly": True}
    container = {"volumeMounts": [mount], "env": [{"name": "PYTHONPATH", "value": "/torch"}]}
    volume = {"name": "torch", "hostPath": {"path": str(packages_of(os.environ["PETCTL_TORCH_PYTHON"]))}}
    settings = json.loads((user.project / "petctl.yaml").read_text())
    settings["clusters"]["k8s"]["pod"] = {"spec": {"containers": [container], "volumes": [volume]}}
    (user.project / "petctl.yaml").write_text(json.dumps(settings))
    (user.project / "train.py").write_text(TRAIN)
    return user


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.long)], ids=["rank 0", "rank 1"])
def test_survivors_keep_their_process(trainer: User, victim: int) -> None:
    user = trainer
    job = user.submit("-n", "1:2:2", "train.py")
    first = user.running(job, 2)
    until(lambda: len(user.steps(job)) == 2, "both ranks step", 120)
    before = user.steps(job)
    pids = {rank: pid for (rank, _), (_, pid) in before.items()}
    survivor = 1 - victim
    lost = next(pod for pod in user.pods(job, "node") if pod["metadata"]["name"].startswith(f"{job}-node-{victim}-"))
    name = lost["metadata"]["name"]
    user.cluster.kubectl("delete", "pod", name, user.there, "--force", "--grace-period=0", "--wait=false")

    alone, whole = first["round"] + 1, first["round"] + 2
    until(lambda: (0, alone) in user.steps(job), "the survivor steps on", 120)
    assert user.steps(job)[0, alone][1] == pids[survivor]
    assert user.running(job, 2, after=alone)["spent"] == 0  # and the job has grown back
    until(lambda: (1, whole) in user.steps(job), "both step again", 120)
    assert user.steps(job)[0, whole][0] > max(step for step, _ in before.values())
    assert user.petctl("cancel", "--kill", job).returncode == 0
    assert user.ended(job)["state"] == "cancelled"


@pytest.mark.parametrize("how", ["--grace-period=0 --force", pytest.param("--grace-period=20", marks=pytest.mark.long)])
def test_a_lost_coordinator_costs_no_step(trainer: User, how: str) -> None:
    user = trainer
    job = user.submit("-n", "2", "train.py")
    before = user.running(job, 2)
    until(lambda: len(user.steps(job)) == 2, "both ranks step", 120)
    (pod,) = user.pods(job, "coordinator")
    name = pod["metadata"]["name"]
    user.cluster.kubectl("delete", "pod", name, user.there, "--wait=false", *how.split())
    until(lambda: user.status(job)["epoch"] > before["epoch"], "another coordinator", 90)
    after = user.running(job, 2)
    assert (after["round"], after["spent"], len(after["rounds"])) == (before["round"], 0, 1)
    met = user.steps(job)[0, before["round"]][0]
    until(lambda: user.steps(job)[0, before["round"]][0] > met + 20, "they go on", 120)
    for rank in (0, 1):
        steps = steps_of(user, job, rank)
        assert {(step.world, step.round) for step in steps} == {(2, before["round"])}
        assert len({step.pid for step in steps}) == 1
        assert [step.step for step in steps] == list(range(1, len(steps) + 1))  # each once, none missing
    assert user.petctl("cancel", "--kill", job).returncode == 0
