"""Jobs that an ElasticJob owns: found, looked at, scaled, cancelled and removed like those that a Job owns."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from petctl.clusters.kubernetes.backend import KubernetesBackend
from petctl.clusters.kubernetes.job_status import OUTCOME
from petctl.clusters.kubernetes.names import ID, JOB, object_name
from petctl.clusters.managed import ManagedCluster
from petctl.errors import NotFound, UsageError
from petctl.job.status import NodeStatus, SizeStatus
from petctl.kube.failures import Forbidden, KubernetesError, NoSuchObject
from tests.unit.clusters.kubernetes.test_cluster import (
    COORDINATOR,
    ELASTIC,
    MAPS,
    NODES,
    RECORD,
    RUNNING,
    Server,
    answers,
    coordinator,
    told,
)
from tests.unit.clusters.kubernetes.test_cluster import JOB as OTHER

pytestmark = pytest.mark.timeout(60)
NAME = "mnist-large"
SECRETS = MAPS.replace("configmaps", "secrets")


@pytest.fixture
def server() -> Server:
    """With one ElasticJob that somebody made with kubectl, a moment ago, and nothing else."""
    server = Server()
    server.objects = {f"{ELASTIC}/{NAME}": elastic()}
    return server


@pytest.fixture
def cluster(server: Server, tmp_path: Path) -> ManagedCluster[KubernetesBackend]:
    cluster = ManagedCluster(KubernetesBackend(tmp_path, {"name": "k8s"}))
    cluster.backend.__dict__["_api"] = server
    return cluster


def elastic(name: str = NAME, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "command": ["python", "train.py"], "args": ["--lr", "a b"]}
    known = {"minReplicas": 1, "maxReplicas": 4, "backoffLimit": 2, "template": {"spec": {"containers": [container]}}}
    metadata = {"name": name, "creationTimestamp": "2026-01-02T03:04:05Z"}
    return {"kind": "ElasticJob", "metadata": metadata, "spec": {**known, **spec}}


def one(server: Server, name: str = NAME) -> dict[str, Any]:
    return server.objects[f"{ELASTIC}/{name}"]


# -- finding -----------------------------------------------------------------------------------------------------------


def test_both_kinds_are_listed_and_found(cluster: ManagedCluster[KubernetesBackend], server: Server) -> None:
    server.objects |= Server().objects
    server.objects[f"{ELASTIC}/going"] = elastic("going")
    one(server, "going")["metadata"]["deletionTimestamp"] = "now"
    long = "a-name-that-is-longer-than-all-that-petctl-makes-itself"
    server.objects[f"{ELASTIC}/{long}"] = elastic(long)
    upper = elastic(object_name("My.Job-22aa"))
    upper["metadata"]["annotations"] = {ID: "My.Job-22aa"}
    server.objects[f"{ELASTIC}/{object_name('My.Job-22aa')}"] = upper
    assert cluster.ids() == [OTHER, NAME, long, "My.Job-22aa"]
    for job_id in cluster.ids():
        assert cluster.status(job_id).id == job_id
    with pytest.raises(NotFound, match="there is no job 'going-away'"):
        cluster.status("going-away")


@pytest.mark.parametrize("failure", [NoSuchObject("no such kind"), Forbidden("may not list elasticjobs")])
def test_where_there_are_no_elastic_jobs_there_are_jobs(
    cluster: ManagedCluster[KubernetesBackend],
    server: Server,
    failure: KubernetesError,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.objects = Server().objects
    for name in ("get", "list"):
        monkeypatch.setattr(server, name, refusing(getattr(server, name), failure))
    assert cluster.ids() == [OTHER]
    assert cluster.status(OTHER).id == OTHER
    with pytest.raises(NotFound, match="there is no job 'mnist-large'"):
        cluster.status(NAME)


def refusing(asked: Callable[..., Any], failure: KubernetesError) -> Callable[..., Any]:
    def ask(path: str, *words: Any, **more: Any) -> Any:
        if path.startswith(ELASTIC):
            raise failure
        return asked(path, *words, **more)

    return ask


def test_who_may_not_see_jobs_hears_that(cluster: ManagedCluster[KubernetesBackend], server: Server) -> None:
    server.trouble = [Forbidden("may not get jobs")]
    with pytest.raises(Forbidden, match="may not get jobs"):
        cluster.status(NAME)


def test_a_kind_is_asked_for_first_where_it_was_found(
    cluster: ManagedCluster[KubernetesBackend], server: Server
) -> None:
    assert cluster.status(NAME).id == NAME
    server.trouble = [Forbidden("whoever is asked first")]
    with pytest.raises(NotFound):  # the ElasticJob was, and who may not see those has none
        cluster.status(NAME)


# -- looking -----------------------------------------------------------------------------------------------------------


def looked(cluster: ManagedCluster[KubernetesBackend]) -> tuple[str, str]:
    status = cluster.status(NAME)
    return status.state, status.sentence


def test_what_is_known_before_there_is_a_record(cluster: ManagedCluster[KubernetesBackend]) -> None:
    status = cluster.status(NAME)
    assert (status.name, status.cluster, status.command) == (NAME, "k8s", "python train.py --lr 'a b'")
    assert (status.size.min, status.size.wanted, status.size.max, status.restarts) == (1, 4, 4, 2)
    assert status.submitted == 1767323045.0


def test_a_map_of_the_same_name_is_no_record(cluster: ManagedCluster[KubernetesBackend], server: Server) -> None:
    server.objects[f"{MAPS}/{NAME}"] = {"data": {"theirs": "x"}}
    assert cluster.status(NAME).command == "python train.py --lr 'a b'"
    with pytest.raises(NotFound, match="there is no job 'mnist-large'"):
        cluster.record(NAME)


def test_an_elastic_job_that_no_operator_sees(
    cluster: ManagedCluster[KubernetesBackend], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("petctl.clusters.kubernetes.job_status.time.time", lambda: 1767323045.0 + 9)
    assert looked(cluster) == ("pending", "waiting: its operator has not seen it yet")
    monkeypatch.setattr("petctl.clusters.kubernetes.job_status.time.time", lambda: 1767323045.0 + 11)
    state, sentence = looked(cluster)
    assert state == "pending" and sentence.endswith("to install one: petctl operator install")


def test_what_an_operator_says_of_a_job_without_coordinator(
    cluster: ManagedCluster[KubernetesBackend], server: Server
) -> None:
    one(server)["status"] = {"phase": "Starting", "message": "waiting: 0 of 2 nodes run"}
    assert looked(cluster) == ("starting", "waiting: 0 of 2 nodes run")
    one(server)["status"] = {"phase": "Recovering", "message": "fewer nodes run than it needs"}
    assert looked(cluster) == ("recovering", "its coordinator is being replaced, and no node is running meanwhile")
    one(server)["spec"]["suspend"] = True
    assert looked(cluster) == ("queued", "queued: its ElasticJob is suspended")


def test_what_hinders_an_operator_is_told(cluster: ManagedCluster[KubernetesBackend], server: Server) -> None:
    one(server)["status"] = {"phase": "Starting", "message": "waiting: 0 of 2 nodes run"}
    said = 'pods "mnist-large-coordinator-0" is forbidden: exceeded quota: few'
    server.events = [{"reason": "Hindered", "message": said, "metadata": {}}]
    assert looked(cluster) == ("starting", "waiting: the namespace's quota does not allow its pod: exceeded quota: few")
    assert server.asked == ["involvedObject.kind=ElasticJob,involvedObject.name=mnist-large,type=Warning"]


def test_for_how_many_nodes_there_is_room(
    cluster: ManagedCluster[KubernetesBackend], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pods = [coordinator()]
    node = NodeStatus("0", "running")
    answers(cluster, monkeypatch, told(replace(RUNNING, size=SizeStatus(1, 2, 4), nodes=[node])))
    one(server)["status"] = {"phase": "Running", "room": {"size": 1, "since": "2026-01-02T03:04:05Z"}}
    assert cluster.status(NAME).sentence == "all is well; node 1: the cluster has room for 1 node now"


def outcome(state: str = "failed", code: int = 7) -> str:
    return json.dumps({"outcome": {"state": state, "code": code, "sentence": f"it {state}"}, "finished": 5.0})


def test_the_end_is_in_the_status_when_all_pods_are_gone(
    cluster: ManagedCluster[KubernetesBackend], server: Server
) -> None:
    one(server)["status"] = {"phase": "Failed", "outcome": outcome(), "conditions": []}
    status = cluster.status(NAME)
    assert (status.state, status.exit_code, status.sentence, status.finished) == ("failed", 7, "it failed", 5.0)


@pytest.mark.parametrize(
    "condition, code, expected",
    [
        ({"type": "Failed", "message": "no command"}, 2, ("failed", 2, "no command")),
        ({"type": "Failed", "reason": "Invalid"}, None, ("failed", 1, "Invalid")),
        ({"type": "Succeeded"}, None, ("succeeded", 0, "succeeded")),
        ({"type": "Running"}, None, ("recovering", None, "its coordinator is being replaced, and no node is running")),
    ],
)
def test_an_end_without_an_outcome(
    cluster: ManagedCluster[KubernetesBackend],
    server: Server,
    condition: dict[str, str],
    code: int | None,
    expected: tuple[Any, ...],
) -> None:
    told = {"conditions": [{**condition, "status": "True"}], "phase": "Running"}
    one(server)["status"] = told if code is None else {**told, "exitCode": code}
    status = cluster.status(NAME)
    assert (status.state, status.exit_code) == expected[:2] and status.sentence.startswith(expected[2])


# -- wishes ------------------------------------------------------------------------------------------------------------


def test_scaling_is_the_operators_business(cluster: ManagedCluster[KubernetesBackend], server: Server) -> None:
    assert cluster.scale(NAME, 3) == "scaling from 4 to 3 nodes"
    assert one(server)["spec"]["replicas"] == 3
    assert cluster.scale(NAME, 3) == "already at 3 nodes"
    for wrong in (0, 5):
        with pytest.raises(UsageError, match=f"mnist-large may have 1 to 4 nodes, not {wrong};"):
            cluster.scale(NAME, wrong)
    assert one(server)["spec"]["replicas"] == 3


def test_a_size_that_follows_the_room_is_fixed_by_a_scale(
    cluster: ManagedCluster[KubernetesBackend], server: Server
) -> None:
    one(server)["status"] = {"wanted": 4}
    assert cluster.scale(NAME, 4) == "already at 4 nodes"
    assert one(server)["spec"]["replicas"] == 4


def test_an_elastic_job_without_a_range_is_not_scaled(
    cluster: ManagedCluster[KubernetesBackend], server: Server
) -> None:
    server.objects[f"{ELASTIC}/{NAME}"] = elastic(minReplicas=None, maxReplicas=None, replicas=2)
    with pytest.raises(UsageError, match="may have 2 to 2 nodes"):
        cluster.scale(NAME, 3)


def test_cancelling_without_a_coordinator_leaves_the_outcome_for_the_operator(
    cluster: ManagedCluster[KubernetesBackend], server: Server
) -> None:
    assert cluster.cancel(NAME, False) == "cancelled before it started"
    assert one(server)["spec"]["suspend"] is True
    assert json.loads(one(server)["metadata"]["annotations"][OUTCOME])["outcome"]["state"] == "cancelled"
    assert cluster.status(NAME).state == "cancelled"
    cluster.remove(NAME)
    assert server.objects == {}


def test_a_coordinator_that_runs_is_asked_to_end_the_job(
    cluster: ManagedCluster[KubernetesBackend], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pods = [coordinator()]
    answers(cluster, monkeypatch, "cancelling")
    assert cluster.cancel(NAME, False) == "cancelling"
    assert "suspend" not in one(server)["spec"]


def rendered(name: str = NAME, owned: bool = False) -> dict[str, Any]:
    owners = {"ownerReferences": [{"uid": "u-1"}]} if owned else {}
    return {"metadata": {"labels": {JOB: name}, **owners}}


def test_what_was_rendered_is_removed_with_it(cluster: ManagedCluster[KubernetesBackend], server: Server) -> None:
    agent = (f"{NAME}.agent", f"{NAME}.agent-rest")
    places = [f"{SECRETS}/{NAME}", *(f"{MAPS}/{name}" for name in (NAME, *agent, f"{NAME}-code-0"))]
    server.objects |= {place: rendered() for place in [*places, f"{MAPS}/{NAME}-code-1"]}
    server.objects[f"{MAPS}/{NAME}"] |= {"data": {"job.json": json.dumps({**RECORD, "id": NAME})}}
    one(server)["status"] = {"outcome": outcome()}
    cluster.remove(NAME)
    assert server.objects == {}


def test_a_removal_that_was_cut_short_finds_the_rest_of_the_code(
    cluster: ManagedCluster[KubernetesBackend], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.objects |= {f"{MAPS}/{NAME}-code-{number}": rendered() for number in range(3)}
    one(server)["status"] = {"outcome": outcome()}
    pieces, delete = iter(range(2)), server.delete

    def cut(path: str) -> None:
        if "-code-" in path and next(pieces, None) is None:
            raise KubernetesError("the connection ended")
        delete(path)

    monkeypatch.setattr(server, "delete", cut)
    with pytest.raises(KubernetesError, match="ended"):
        cluster.remove(NAME)
    monkeypatch.undo()
    cluster.remove(NAME)
    assert server.objects == {}


def test_nothing_is_removed_that_only_has_the_same_name(
    cluster: ManagedCluster[KubernetesBackend], server: Server
) -> None:
    server.objects |= {f"{SECRETS}/{NAME}": {"metadata": {}}, f"{MAPS}/{NAME}-code-0": {"metadata": {}}}
    one(server)["metadata"]["annotations"] = {OUTCOME: outcome()}
    cluster.remove(NAME)
    assert list(server.objects) == [f"{SECRETS}/{NAME}", f"{MAPS}/{NAME}-code-0"]


def test_what_the_elastic_job_owns_is_left_to_kubernetes(
    cluster: ManagedCluster[KubernetesBackend], server: Server
) -> None:
    server.objects |= {f"{SECRETS}/{NAME}": rendered(owned=True), f"{MAPS}/{NAME}-code-0": rendered(owned=True)}
    one(server)["status"] = {"outcome": outcome()}
    cluster.remove(NAME)
    assert list(server.objects) == [f"{SECRETS}/{NAME}", f"{MAPS}/{NAME}-code-0"]


def test_a_job_is_not_put_to_sleep_with_the_elastic_job_of_its_name(
    cluster: ManagedCluster[KubernetesBackend], server: Server
) -> None:
    server.objects |= Server().objects
    server.objects[f"{ELASTIC}/{OTHER}"] = elastic(OTHER)
    cluster.cancel(OTHER, False)
    assert server.objects[COORDINATOR]["spec"]["suspend"] and server.objects[NODES]["spec"]["suspend"]
    assert "suspend" not in one(server, OTHER)["spec"]
