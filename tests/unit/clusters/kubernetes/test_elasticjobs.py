"""What `submit` makes of a job where an operator looks after it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from petctl.clusters.kubernetes.backend import KubernetesBackend
from petctl.clusters.managed import ManagedCluster
from petctl.errors import UsageError
from petctl.job.spec import Job
from petctl.kube.failures import KubernetesError, NoSuchObject

SPACE = "/namespaces/research"
PLACE = f"/apis/petctl.dev/v1{SPACE}/elasticjobs"


class Objects:
    """What a server was asked to do, in its order."""

    access = SimpleNamespace(namespace="research", where="the server")

    def __init__(self) -> None:
        self.log: list[tuple[str, str, Any]] = []
        self.refuses: Callable[[str], KubernetesError | None] = lambda path: None

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        failure = self.refuses(path)
        if failure is not None:
            raise failure
        self.log.append(("create", path, body))
        return {**body, "metadata": {**body["metadata"], "uid": "u-1"}}

    def patch(self, path: str, body: dict[str, Any]) -> None:
        self.log.append(("patch", path, body))

    def delete(self, path: str) -> None:
        self.log.append(("delete", path, None))


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("print('hello')\n")
    (tmp_path / "project" / "petctl.yaml").write_text("{}")
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def objects() -> Objects:
    return Objects()


def connected(home: Path, objects: Objects, **settings: Any) -> ManagedCluster[KubernetesBackend]:
    cluster = ManagedCluster(
        KubernetesBackend(home, {"name": "k8s", "image": "python:3.11", "operator": True, **settings})
    )
    cluster.backend.__dict__["_api"] = objects
    return cluster


@pytest.fixture
def cluster(tmp_path: Path, objects: Objects) -> ManagedCluster[KubernetesBackend]:
    return connected(tmp_path / "home", objects)


def spec(cluster: ManagedCluster[KubernetesBackend], job: Job) -> dict[str, Any]:
    (made,) = cluster.build_record(job, "train-22aa").request["objects"]
    assert (made["apiVersion"], made["kind"]) == ("petctl.dev/v1", "ElasticJob")
    found: dict[str, Any] = made["spec"]
    return found


def test_the_owner_is_made_asleep_then_all_that_it_owns_then_it_wakes(
    cluster: ManagedCluster[KubernetesBackend], objects: Objects
) -> None:
    cluster.submit(cluster.build_record(Job(script="train.py"), "Train-22aa"))
    (first, place, job), *others, last = objects.log
    assert (first, place, job["spec"]["suspend"]) == ("create", PLACE, True)
    name = job["metadata"]["name"]
    annotations = dict(job["metadata"]["annotations"])
    told = json.loads(annotations.pop("petctl.dev/about"))
    assert annotations == {"petctl.dev/id": "Train-22aa"}
    assert (told["name"], told["command"], told["config"]["wanted"]) == ("Train", "train.py", 1)
    kinds = [path.rpartition("/")[2] for _, path, _ in others]
    assert kinds.count("secrets") == 1 and set(kinds) == {"secrets", "configmaps"}
    owner = {"apiVersion": "petctl.dev/v1", "kind": "ElasticJob", "name": name, "uid": "u-1", "controller": True}
    assert all(made["metadata"]["ownerReferences"] == [owner] for _, _, made in others)
    assert last == ("patch", f"{PLACE}/{name}", {"spec": {"suspend": False}})


def test_a_failure_takes_the_owner_back(cluster: ManagedCluster[KubernetesBackend], objects: Objects) -> None:
    objects.refuses = lambda path: KubernetesError("no secrets") if path.endswith("secrets") else None
    with pytest.raises(KubernetesError, match="no secrets"):
        cluster.submit(cluster.build_record(Job(script="train.py"), "train-22aa"))
    assert objects.log[-1] == ("delete", f"{PLACE}/train-22aa", None)


def test_a_server_that_knows_no_elastic_jobs(cluster: ManagedCluster[KubernetesBackend], objects: Objects) -> None:
    objects.refuses = lambda path: NoSuchObject("404 page not found")
    with pytest.raises(UsageError) as caught:
        cluster.submit(cluster.build_record(Job(script="train.py"), "train-22aa"))
    assert str(caught.value) == (
        "the server does not know ElasticJobs; install the operator (petctl operator install), "
        "or turn it off (operator: false in the cluster's settings)"
    )
    objects.refuses = lambda path: NoSuchObject("no such namespace", {"details": {"kind": "namespaces"}})
    with pytest.raises(NoSuchObject, match="no such namespace"):
        cluster.submit(cluster.build_record(Job(script="train.py"), "train-22aa"))


def test_the_record_says_that_indices_may_have_holes(cluster: ManagedCluster[KubernetesBackend]) -> None:
    assert cluster.build_record(Job(script="train.py"), "train-22aa").request["numbered"] is False


@pytest.mark.parametrize(
    "nodes, expected", [("2", (2, None, 2)), ("1:4", (1, None, 4)), ("1:2:4", (1, 2, 4)), ("1:4:4", (1, None, 4))]
)
def test_a_size_is_fixed_only_where_somebody_named_it(
    cluster: ManagedCluster[KubernetesBackend], nodes: str, expected: tuple[Any, ...]
) -> None:
    found = spec(cluster, Job(script="train.py", nodes=nodes))
    assert tuple(found.get(name) for name in ("minReplicas", "replicas", "maxReplicas")) == expected


@pytest.mark.parametrize(
    "job, words",
    [
        (Job(script="train.py", args=["--lr", "0.1"]), ["python3", "train.py", "--lr", "0.1"]),
        (Job(script="train.py", python="/opt/python"), ["/opt/python", "train.py"]),
        (Job(module="train", args=["x"]), ["python3", "-m", "train", "x"]),
        (Job(program=["./run", "a b"]), ["./run", "a b"]),
        (Job(shell="make && ./run"), ["sh", "-c", "make && ./run"]),
    ],
)
def test_people_see_what_runs(cluster: ManagedCluster[KubernetesBackend], job: Job, words: list[str]) -> None:
    (container,) = spec(cluster, job)["template"]["spec"]["containers"]
    assert (container["command"], container["image"]) == (words, "python:3.11")


def test_what_the_job_wants_is_in_the_specification(tmp_path: Path, objects: Objects) -> None:
    cluster = connected(tmp_path / "home", objects, python="python3.12", pull_secrets=["one"])
    pod = {"spec": {"nodeSelector": {"gpu": "a100"}, "containers": [{"resources": {"requests": {"cpu": "4"}}}]}}
    said = {"kubernetes": {"pod": pod}}
    job = Job(
        script="train.py",
        restarts=5,
        max_time="90.5s",
        procs="gpu",
        resources={"gpus": 2},
        warm=False,
        grace=20,
        options=said,
    )
    found = spec(cluster, job)
    assert (found["backoffLimit"], found["activeDeadlineSeconds"], found["procsPerNode"]) == (5, 91, "gpu")
    assert (found["python"], found["warm"], found["launcher"]) == ("python3.12", False, "elastic")
    template = found["template"]["spec"]
    assert template["terminationGracePeriodSeconds"] == 30
    assert (template["nodeSelector"], template["imagePullSecrets"]) == ({"gpu": "a100"}, [{"name": "one"}])
    assert template["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "2"}, "requests": {"cpu": "4"}}
    assert "activeDeadlineSeconds" not in spec(cluster, Job(script="train.py"))
    assert spec(cluster, Job(script="train.py", procs=3))["procsPerNode"] == 3


def test_what_is_rendered_wakes_by_itself_and_comes_last(cluster: ManagedCluster[KubernetesBackend]) -> None:
    *_, last = cluster.backend.manifests(Job(script="train.py"), "train-22aa", False)
    assert (last["kind"], last["metadata"]["namespace"]) == ("ElasticJob", "research")
    assert "suspend" not in last["spec"]


def test_a_setting_that_is_neither(tmp_path: Path, objects: Objects) -> None:
    with pytest.raises(UsageError, match=r"clusters\.k8s\.operator must be true or false, not 'yes please'"):
        connected(tmp_path / "home", objects, operator="yes please").build_record(Job(script="train.py"), "train-22aa")
    plain = connected(tmp_path / "home", objects, operator=False).build_record(Job(script="train.py"), "train-22aa")
    assert [found["kind"] for found in plain.request["objects"]] == ["Job", "Service", "Job"]
    assert plain.request["numbered"] is True
