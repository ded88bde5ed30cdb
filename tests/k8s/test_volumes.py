"""Shared volumes: claims that petctl makes, and a step that fills one once for all jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Iterator

import pytest
import yaml

from tests.k8s.cluster.cluster import Cluster
from tests.k8s.cluster.waiting import until
from tests.k8s.user import User

pytestmark = [pytest.mark.root]

STEP = 'echo filling; echo "$KEY" >> $PETCTL_VOLUME/filled; while ! test -e /data/go; do sleep 0.1; done'


@pytest.fixture
def disk(own_cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Path]:
    """A directory of this machine as a volume that waits for a claim on it."""
    directory = tmp_path / "volume"
    directory.mkdir()
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": namespace,
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": str(directory)},
        },
    }
    own_cluster.kubectl.apply([volume])
    try:
        yield directory
    finally:
        own_cluster.kubectl("delete", "persistentvolume", namespace, "--wait=false")


def job_file(user: User, name: str, **volume: Any) -> str:
    """A job that shows what is in the volume."""
    (user.project / "show.py").write_text("import os; print(os.environ['RANK'], open('/data/filled').read().split())")
    whole = {"claim": "data", "path": "/data", "size": "1Gi", "storage_class": user.namespace, **volume}
    job = {"script": "show.py", "env": {"KEY": "value"}, "volumes": [whole]}
    (user.project / name).write_text(yaml.safe_dump(job))
    return name


def claims(user: User) -> list[str]:
    found = user.cluster.kubectl.get("persistentvolumeclaims", user.there)["items"]
    return [claim["metadata"]["name"] for claim in found if not claim["metadata"].get("deletionTimestamp")]


def test_a_volume_is_filled_once_and_outlives_its_jobs(user: User, disk: Path) -> None:
    file = job_file(user, "job.yaml", prefetch=STEP)
    jobs = [user.submit("-n", "2", file), user.submit(file)]
    until(lambda: (disk / "filled").exists(), "somebody fills it", 120)
    assert [user.status(job)["finished"] for job in jobs] == [None, None]
    told = lambda: [node["sentence"] for node in user.status(jobs[0])["nodes"]]  # noqa: E731
    until(lambda: "preparing" in told(), "the status tells what the nodes do")
    (disk / "go").touch()
    for job in jobs:
        assert user.ended(job)["state"] == "succeeded"
    assert sorted(user.petctl("logs", jobs[0]).stdout.splitlines()) == ["[0] 0 ['value']", "[1] 1 ['value']"]
    assert user.petctl("logs", jobs[1]).stdout == "0 ['value']\n"
    third = user.petctl("run", "-c", "k8s", file)
    assert (third.returncode, third.stdout) == (0, "0 ['value']\n"), third.stderr
    assert (disk / "filled").read_text() == "value\n"
    for job in json.loads(user.petctl("list", "-c", "k8s", "-o", "json").stdout):
        assert user.petctl("rm", job["id"]).returncode == 0
    until(lambda: not user.left(), "nothing of the jobs is left")
    assert claims(user) == ["data"]


def test_a_step_that_fails_is_the_jobs_failure(user: User, disk: Path) -> None:
    file = job_file(user, "job.yaml", prefetch="echo about to fail; echo no such dataset >&2; exit 9")
    done = user.petctl("run", "-c", "k8s", "--restarts", "0", file)
    assert done.returncode == 9, done.stderr
    (job,) = json.loads(user.petctl("list", "-c", "k8s", "-o", "json").stdout)
    assert job["state"] == "failed" and "prepare" in job["sentence"]
    shown = user.petctl("status", job["id"]).stdout
    assert "no such dataset" in shown, shown


def test_a_claim_that_is_not_to_be_kept_goes_with_its_job(user: User, disk: Path) -> None:
    (disk / "filled").write_text("before")
    file = job_file(user, "job.yaml", keep=False)
    done = user.petctl("run", "-c", "k8s", file)
    assert (done.returncode, done.stdout) == (0, "0 ['before']\n"), done.stderr
    assert claims(user) == ["data"]
    (job,) = json.loads(user.petctl("list", "-c", "k8s", "-o", "json").stdout)
    assert user.petctl("rm", job["id"]).returncode == 0
    until(lambda: not claims(user) and not user.left(), "nothing is left")


def test_what_is_rendered_has_the_claim(user: User, disk: Path) -> None:
    (disk / "filled").write_text("before")
    done = user.petctl("render", "-c", "k8s", "--with-secrets", job_file(user, "job.yaml"))
    assert done.returncode == 0, done.stderr
    user.cluster.kubectl("apply", "--filename=-", user.there, text=done.stdout)
    (job,) = json.loads(user.petctl("list", "-c", "k8s", "-o", "json").stdout)
    assert user.petctl("wait", job["id"]).returncode == 0
    assert claims(user) == ["data"]


@pytest.mark.parametrize(
    "words",
    [
        ["--kind", "efs", "--id", "fs-0123456789abcdef0"],
        ["--kind", "nfs", "--id", "files.example.org:/export"],
        ["--kind", "azure-files", "--id", "account/share", "--secret", "azure"],
    ],
    ids=["efs", "nfs", "azure-files"],
)
def test_the_server_takes_what_an_administrator_is_to_apply(user: User, words: list[str]) -> None:
    name = user.namespace
    done = user.petctl("volume", *words, "--namespace", name, name)
    assert done.returncode == 0, done.stderr
    said = user.cluster.kubectl("apply", "--dry-run=server", "--filename=-", text=done.stdout)
    assert said.splitlines() == [
        f"storageclass.storage.k8s.io/{name} created (server dry run)",
        f"persistentvolume/{name} created (server dry run)",
    ]
