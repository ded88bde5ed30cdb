"""A sweep over pods: killed and started again, with metrics from what the pods print and report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.k8s.cluster.cluster import Cluster
from tests.k8s.cluster.waiting import until
from tests.k8s.user import User

SCRIPT = """
import os, sys
with open(os.environ["PETCTL_PROGRESS"], "w") as file:
    print(f"step=3 loss={sys.argv[1]}", file=file)
sys.exit(3 if sys.argv[1] == "0.5" else 0)
"""


@pytest.fixture
def user(cluster: Cluster, namespace: str, tmp_path: Path) -> User:
    user = User(cluster, namespace, tmp_path)
    (user.project / "point.py").write_text(SCRIPT)
    return user


def test_a_killed_sweep_goes_on_over_pods(user: User) -> None:
    words = ["sweep", "-c", "k8s", "--name", "tune", "-j", "2", "--restarts", "0", "--metric", "loss"]
    words += ["-o", "json", "-p", "lr=0.1,0.5,0.3", "point.py", "${lr}"]
    events = user.home / "sweeps" / "tune" / "events.jsonl"
    driver = subprocess.Popen([sys.executable, "-m", "petctl", *words], cwd=user.project, env=user.environment)
    try:
        until(lambda: events.exists() and '"accepted"' in events.read_text(), "a point is submitted", pause=0.005)
    finally:
        driver.kill()
        driver.wait()
    done = user.petctl(*words)
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert [point["state"] for point in told["points"]] == ["succeeded", "failed", "succeeded"]
    ends = [json.loads(line) for line in events.read_text().splitlines() if '"ended"' in line]
    assert sorted(end["state"] for end in ends if end["state"] != "cut short") == ["failed", "succeeded", "succeeded"]
    assert [point["value"] for point in told["points"]] == [0.1, 0.5, 0.3]
    assert told["best"]["point"] == 1
    removed = user.petctl("sweep", "rm", "-o", "json", "tune")
    assert len(json.loads(removed.stdout)["jobs"]) == 3


def test_a_point_that_waits_in_somebodys_queue_was_not_cut_short(user: User) -> None:
    """Its driver was killed before it could write down that the point was accepted."""
    words = ["sweep", "-c", "k8s", "--name", "wait", "-p", "lr=0.1", "steps.py"]
    events = user.home / "sweeps" / "wait" / "events.jsonl"
    driver = subprocess.Popen([sys.executable, "-m", "petctl", *words], cwd=user.project, env=user.environment)
    try:
        until(lambda: events.exists() and '"accepted"' in events.read_text(), "the point is submitted", pause=0.005)
    finally:
        driver.kill()
        driver.wait()
    events.write_text(events.read_text().splitlines()[0] + "\n")
    asleep = "--patch=" + json.dumps({"spec": {"suspend": True}})
    user.cluster.kubectl("patch", "job", "wait-001-coordinator", "--type=merge", asleep, user.there)
    until(lambda: user.status("wait-001")["state"] == "queued", "it is suspended")
    done = user.petctl("sweep", "cancel", "-o", "json", "wait")
    assert [(point["job"], point["state"]) for point in json.loads(done.stdout)["points"]] == [
        ("wait-001", "cancelled")
    ]
    kinds = [json.loads(line)["kind"] for line in events.read_text().splitlines()]
    assert kinds[:3] == ["submit", "cancel", "accepted"]
    assert user.status("wait-001")["state"] == "cancelled"
