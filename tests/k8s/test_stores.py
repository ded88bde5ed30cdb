"""Pods and a real object store: code, folders, results and logs go through it, by URLs that the coordinator signs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.storage.servers import SECRET_KEY, SeaweedFS
from tests.k8s.cluster.cluster import Cluster
from tests.k8s.cluster.network import HOST
from tests.k8s.operators import operator
from tests.k8s.user import User

pytestmark = [pytest.mark.root]

WRITES = """
import os, pathlib
rank = os.environ["RANK"]
word = pathlib.Path("data/words/one.txt").read_text()
pathlib.Path(os.environ["PETCTL_OUTPUT_MODEL"], f"rank-{rank}.txt").write_text(f"made of {word}")
print("wrote", rank)
"""


@pytest.fixture
def store(own_cluster: Cluster, tmp_path: Path) -> Iterator[SeaweedFS]:
    """One that pods reach."""
    folder = tmp_path / "server"
    folder.mkdir()
    server = SeaweedFS(folder, HOST)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(params=[False, True], ids=["without", "with an operator"])
def operated(request: pytest.FixtureRequest, own_cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[bool]:
    """Whether somebody looks after ElasticJobs there."""
    with operator(own_cluster, namespace, tmp_path) if request.param else contextlib.nullcontext():
        yield request.param


def test_code_folders_results_and_logs_go_through_the_store(
    own_cluster: Cluster, namespace: str, tmp_path: Path, store: SeaweedFS, operated: bool
) -> None:
    user = User(own_cluster, namespace, tmp_path)
    user.environment.update(store.environment())
    bucket = store.make("bucket")
    clusters = {"k8s": {"namespace": namespace, "image": own_cluster.image("3.11"), "operator": operated}}
    settings = {"clusters": clusters, "store": f"{bucket}/runs", "folders": {"data/words": f"{bucket}/words"}}
    (user.project / "petctl.yaml").write_text(json.dumps(settings))
    (user.project / "writes.py").write_text(WRITES)
    (user.project / "data" / "words").mkdir(parents=True)
    (user.project / "data" / "words" / "one.txt").write_text("a word")
    sent = user.petctl("data", "up", "data/words")
    assert sent.returncode == 0, sent.stderr

    done = user.petctl("run", "-c", "k8s", "-n", "2", "--out", "model", "writes.py")
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["[0] wrote 0", "[1] wrote 1"]), done.stderr
    (job,) = json.loads(user.petctl("list", "-c", "k8s", "-o", "json").stdout)
    assert f"{bucket}/runs" in job["results"] and "not uploaded" not in job["results"]

    own_cluster.kubectl("delete", "pods", "--selector=petctl.dev/role=node", user.there)
    logs = user.petctl("logs", job["id"])
    assert sorted(logs.stdout.splitlines()) == ["[0] wrote 0", "[1] wrote 1"], logs.stderr
    got = user.petctl("outputs", "get", job["id"], "model", "--to", str(tmp_path / "got"))
    assert got.returncode == 0, got.stderr
    found = {path.name: path.read_text() for path in (tmp_path / "got").rglob("rank-*.txt")}
    assert found == {"rank-0.txt": "made of a word", "rank-1.txt": "made of a word"}

    objects = own_cluster.kubectl("get", "jobs,pods,configmaps", "--output=yaml", user.there)
    assert SECRET_KEY not in objects and "-code-0" not in objects  # the code came from the store

    again = user.petctl("resubmit", job["id"])
    assert again.returncode == 0, again.stderr
    assert user.ended(again.stdout.strip())["state"] == "succeeded"


def test_files_written_beside_the_code_are_results(
    own_cluster: Cluster, namespace: str, tmp_path: Path, store: SeaweedFS
) -> None:
    """With a store they are listed and fetched like any output; without one the user is told that they are lost."""
    user = User(own_cluster, namespace, tmp_path)
    user.environment.update(store.environment())
    bucket = store.make("bucket")
    (user.project / "train.py").write_text("open('model.pt', 'w').write('weights')\nprint('trained')\n")

    done = user.petctl("run", "-c", "k8s", "--store", f"{bucket}/runs", "train.py")
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    (job,) = json.loads(user.petctl("list", "-c", "k8s", "-o", "json").stdout)
    own_cluster.kubectl("delete", "pods", "--selector=petctl.dev/role=node", user.there)
    listed = user.petctl("outputs", "ls", job["id"])
    assert listed.stdout.endswith("beside-code/model.pt\n"), (listed.stdout, listed.stderr)
    got = user.petctl("outputs", "get", job["id"], "--to", str(tmp_path / "got"))
    assert got.returncode == 0, got.stderr
    assert (tmp_path / "got" / "beside-code" / "model.pt").read_text() == "weights"

    done = user.petctl("run", "-c", "k8s", "train.py")
    lost = "1 file it wrote is lost with its pod: model.pt; a store (--store) keeps such files"
    assert done.returncode == 0 and lost in done.stderr, done.stderr
    jobs = json.loads(user.petctl("list", "-c", "k8s", "-o", "json").stdout)
    (second,) = (one["id"] for one in jobs if one["id"] != job["id"])
    assert lost in user.petctl("status", second).stdout
