"""What a job says about its pods, seen from inside of them; and nodes that something puts to sleep and wakes."""

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

LOOK = """
import json, os, shutil
LIMITS = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"
def attempt(path):
    try:
        open(path, "w").close()
        return "written"
    except OSError as error:
        return error.strerror
print(json.dumps({
    "shm": shutil.disk_usage("/dev/shm").total,
    "user": os.getuid(),
    "group": os.stat("/own").st_gid,
    "data": open("/data/hello").read(),
    "data/new": attempt("/data/new"),
    "own/new": attempt("/own/new"),
    "names": open("/names/a").read(),
    "tokens": open("/tokens/b").read(),
    "memory": next(open(path).read().strip() for path in LIMITS if os.path.exists(path)),
}))
"""


@pytest.fixture
def priority_class(cluster: Cluster, namespace: str) -> Iterator[str]:
    """One that nobody else uses."""
    kubectl = cluster.kubectl
    kubectl("create", "priorityclass", namespace, "--value=100", "--preemption-policy=Never")
    try:
        yield namespace
    finally:
        kubectl("delete", "priorityclass", namespace)


@pytest.fixture
def claim(own_cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[str]:
    """A claim on a directory of this machine, which all nodes of the development cluster see."""
    directory = tmp_path / "volume"
    directory.mkdir()
    directory.chmod(0o777)
    (directory / "hello").write_text("hello from the volume")
    room = {"storage": "1Gi"}
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": namespace},
        "spec": {
            **common,
            "capacity": room,
            "hostPath": {"path": str(directory)},
            "claimRef": {"namespace": namespace, "name": "data"},
        },
    }
    wanted = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {**common, "resources": {"requests": room}, "volumeName": namespace},
    }
    own_cluster.kubectl.apply([volume])
    try:
        own_cluster.kubectl.apply([wanted], f"--namespace={namespace}")
        yield "data"
    finally:
        own_cluster.kubectl("delete", "persistentvolume", namespace, "--wait=false")


@pytest.fixture
def tainted(cluster: Cluster, namespace: str) -> Iterator[str]:
    """A node that is only pretended, and that no pod gets to that does not tolerate it."""
    room = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": namespace, "labels": {"petctl.test/node": namespace}},
        "spec": {"taints": [{"key": "petctl.test/spot", "effect": "NoSchedule"}]},
        "status": {"allocatable": room, "capacity": room},
    }
    cluster.kubectl.apply([node])
    try:
        yield namespace
    finally:
        cluster.kubectl("delete", "node", namespace)


def job_file(user: User, **fields: Any) -> str:
    (user.project / "job.yaml").write_text(yaml.safe_dump(fields))
    return "job.yaml"


def test_what_is_said_is_seen(user: User, claim: str, priority_class: str) -> None:
    kubectl, there = user.cluster.kubectl, user.there
    kubectl("create", "serviceaccount", "trainer", there)
    kubectl("create", "configmap", "names", "--from-literal=a=from a ConfigMap", there)
    kubectl("create", "secret", "generic", "tokens", "--from-literal=b=from a Secret", there)
    (user.project / "look.py").write_text(LOOK)
    machine = user.cluster.nodes[-1]
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [machine]}]}
    file = job_file(
        user,
        script="look.py",
        options={
            "kubernetes": {
                "node_selector": {"kubernetes.io/os": "linux"},
                "affinity": {
                    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
                },
                "priority_class": priority_class,
                "service_account": "trainer",
                "security_context": {"runAsUser": 1000, "runAsNonRoot": True, "fsGroup": 1234, "capabilities": {}},
                "labels": {"team": "vision", "kueue.x-k8s.io/priority-class": "any"},
                "annotations": {"example.org/note": "5"},
            },
        },
        volumes=[
            {"empty_dir": "1Mi", "path": "/own"},
            {"config_map": "names", "path": "/names"},
            {"secret": "tokens", "path": "/tokens"},
        ],
    )
    options = ("--shm-size", "24MiB", "--cpu", "30m", "--memory", "300MiB", "--volume", f"{claim}:/data:ro")
    done = user.petctl("run", "-c", "k8s", *options, file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == {
        "shm": 24 << 20,
        "user": 1000,
        "group": 1234,
        "data": "hello from the volume",
        "data/new": "Read-only file system",
        "own/new": "written",
        "names": "from a ConfigMap",
        "tokens": "from a Secret",
        "memory": str(300 << 20),
    }
    (listed,) = json.loads(user.petctl("list", "-c", "k8s", "-o", "json").stdout)
    (pod,) = user.pods(listed["id"], "node")
    spec = pod["spec"]
    assert (spec["nodeName"], spec["priority"], spec["serviceAccountName"]) == (machine, 100, "trainer")
    assert spec["containers"][0]["resources"] == {
        "requests": {"cpu": "30m", "memory": "300Mi"},
        "limits": {"memory": "300Mi"},
    }
    maker = kubectl.get("job", f"{listed['id']}-node", there)
    for found in (pod, maker):
        assert found["metadata"]["labels"]["team"] == "vision"
        assert found["metadata"]["annotations"]["example.org/note"] == "5"
    (coordinator,) = user.pods(listed["id"], "coordinator")
    assert "team" not in coordinator["metadata"]["labels"]
    assert not coordinator["spec"].get("affinity") and coordinator["spec"]["serviceAccountName"] == "default"


def test_a_pod_with_its_machines_network_finds_the_others(user: User) -> None:
    (user.project / "hello.py").write_text("import os; print('hello', os.environ['MASTER_ADDR'])")
    file = job_file(user, script="hello.py", options={"kubernetes": {"host_network": True}})
    done = user.petctl("run", "-c", "k8s", file)
    assert done.returncode == 0, done.stdout + done.stderr
    (listed,) = json.loads(user.petctl("list", "-c", "k8s", "-o", "json").stdout)
    (pod,) = user.pods(listed["id"], "node")
    assert pod["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert done.stdout == f"hello {pod['status']['hostIP']}\n"


def test_only_what_tolerates_a_taint_gets_there(user: User, tainted: str) -> None:
    """A pretended node takes no pod really: that it is chosen is what is seen."""
    chosen = {"node_selector": {"petctl.test/node": tainted}, "scheduler": "default-scheduler"}
    tolerations = [{"key": "petctl.test/spot", "operator": "Exists"}]
    job = user.submit(job_file(user, script="steps.py", options={"kubernetes": {**chosen, "tolerations": tolerations}}))
    places = lambda: [pod["spec"].get("nodeName") for pod in user.pods(job, "node")]  # noqa: E731
    until(lambda: places() == [tainted], "the pod is sent there", 90)
    keys = [toleration["key"] for toleration in user.pods(job, "node")[0]["spec"]["tolerations"]]
    assert "petctl.test/spot" in keys and "node.kubernetes.io/unreachable" in keys
    assert user.petctl("cancel", job).returncode == 0
    user.cluster.kubectl("delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false", user.there)
    shy = user.submit(job_file(user, script="steps.py", options={"kubernetes": chosen}))
    until(lambda: user.pods(shy, "node"), "there is a pod", 90)
    condition = until(lambda: unscheduled(user.pods(shy, "node")), "nobody takes it", 90)
    assert "untolerated taint" in condition
    assert user.petctl("cancel", shy).returncode == 0


def test_what_no_machine_has_is_told(user: User) -> None:
    file = job_file(user, script="steps.py", options={"kubernetes": {"limits": {"example.org/link": 1}}})
    job = user.submit(file)
    until(lambda: "Insufficient example.org/link" in user.status(job)["sentence"], "it says why", 90)
    assert user.petctl("cancel", job).returncode == 0
    assert user.ended(job)["state"] == "cancelled"


def unscheduled(pods: list[dict[str, Any]]) -> str:
    found = [condition for pod in pods for condition in pod["status"].get("conditions", ())]
    return next((one.get("message", "") for one in found if one["type"] == "PodScheduled"), "")


def test_nodes_that_are_put_to_sleep_go_on_when_they_are_woken(user: User) -> None:
    """What a queue does with a Job when somebody else needs the room."""
    job = user.submit("-n", "2", "steps.py")
    before = user.running(job, 2)
    until(lambda: len(user.steps(job)) == 2, "both step")

    def suspend(asleep: bool) -> None:
        wish = json.dumps({"spec": {"suspend": asleep}})
        user.cluster.kubectl("patch", "job", f"{job}-node", "--type=merge", f"--patch={wish}", user.there)

    suspend(True)
    until(lambda: not alive(user.pods(job, "node")), "the nodes have left", 90)
    until(lambda: user.status(job)["state"] == "recovering", "the job knows it")
    assert user.status(job)["spent"] == 0
    suspend(False)
    after = user.running(job, 2, after=before["round"])
    assert (after["spent"], after["epoch"]) == (0, before["epoch"])
    user.finish(job)
    assert user.ended(job)["state"] == "succeeded"


def alive(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [pod for pod in pods if pod["status"].get("phase") in ("Pending", "Running")]
