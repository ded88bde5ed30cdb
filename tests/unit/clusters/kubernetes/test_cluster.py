"""Jobs whose coordinator starts, is replaced, is away or never came: what status, watch, cancel and scale do then."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from petctl.bundle.bundle_cache import Cabinet
from petctl.bundle.snapshot import take
from petctl.causes import find
from petctl.clusters import patience
from petctl.clusters.base import LogFilter
from petctl.clusters.kubernetes import job_status
from petctl.clusters.kubernetes.backend import KubernetesBackend, PodOutput
from petctl.clusters.kubernetes.names import ID, ROLE
from petctl.clusters.kubernetes.pods import manifests as make
from petctl.clusters.managed import ManagedCluster
from petctl.errors import NotFound, PetctlError, Unreachable, UsageError
from petctl.job.status import JobStatus, NodeStatus
from petctl.kube import pod_logs
from petctl.kube.api import Items
from petctl.kube.failures import (
    Forbidden,
    Gone,
    KubernetesError,
    NoSuchObject,
    ObjectExists,
    ServerUnreachable,
)
from petctl.rendezvous.core.events import Config
from tests.unit.clusters.kubernetes.pods import NAMESPACE, Pod, Pods
from tests.unit.records import job_record

pytestmark = pytest.mark.timeout(60)
JOB = "train-2222"
JOBS, PODS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", f"/api/v1/namespaces/{NAMESPACE}/pods"
MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
ELASTIC = f"/apis/petctl.dev/v1/namespaces/{NAMESPACE}/elasticjobs"
COORDINATOR, NODES = f"{JOBS}/{JOB}-coordinator", f"{JOBS}/{JOB}-node"
KNOWN = job_record(JOB, cluster="k8s", command="train.py", request={"namespace": "team"}, config=Config(1, 4, 2))
RECORD: dict[str, Any] = KNOWN.to_dict()
RUNNING = replace(job_status.waiting_status(KNOWN, {"spec": {}}, []), state="running", sentence="all is well")
AWAY = ServerUnreachable("the server cannot be reached")
NOBODY = Unreachable("nobody listens")


class Server:
    """Objects by their paths, pods, and what the next requests meet."""

    def __init__(self) -> None:
        self.access = SimpleNamespace(namespace=NAMESPACE)
        self.objects: dict[str, dict[str, Any]] = {
            COORDINATOR: {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": f"{JOB}-coordinator", "uid": "1", "annotations": {ID: JOB}},
                "spec": {},
                "status": {},
            },
            NODES: {"metadata": {}, "spec": {}},
            f"{MAPS}/{JOB}": {"data": {"job.json": json.dumps(RECORD)}},
        }
        self.pods: list[Pod] = []
        self.events: list[dict[str, Any]] = []
        self.asked: list[str] = []  # whose events
        self.trouble: list[KubernetesError] = []
        self.waits: list[str] = []  # the version from which each watch began
        self.on_wait: list[Callable[[], object]] = []  # what happens while somebody watches

    def get(self, path: str, **query: str) -> dict[str, Any]:
        if self.trouble:
            raise self.trouble.pop(0)
        if path == EVENTS:
            self.asked.append(query["fieldSelector"])
            return {"items": self.events}
        if path not in self.objects:
            raise NoSuchObject(f"{path} not found")
        return self.objects[path]

    def list(self, path: str, selector: str = "", fields: str = "") -> Items:
        if path in (JOBS, ELASTIC):
            return Items(job for place, job in self.objects.items() if place.startswith(path))
        assert path == PODS
        role = selector.rpartition(f"{ROLE}=")[2]
        found = Items(pod.object for pod in self.pods if pod.object["metadata"]["labels"][ROLE] == role)
        if fields:
            assert fields == "status.phase=Failed"
            found = Items(pod for pod in found if pod["status"]["phase"] == "Failed")
        found.version = "42"
        return found

    def patch(self, path: str, body: dict[str, Any]) -> None:
        found = self.get(path)
        found["spec"] |= body.get("spec", {})
        found["metadata"].setdefault("annotations", {}).update(body.get("metadata", {}).get("annotations", {}))

    def log(self, namespace: str, pod: str, container: str, tail: int) -> Iterator[bytes]:
        raise NoSuchObject(f"the log of {pod} is gone")

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        place = f"{path}/{body['metadata']['name']}"
        if place in self.objects:
            raise ObjectExists(f"{place} exists")
        self.objects[place] = body
        return body

    def delete(self, path: str) -> None:
        self.get(path)
        del self.objects[path]

    def watch(self, path: str, selector: str, version: str, timeout: float) -> Iterator[tuple[str, dict[str, Any]]]:
        assert path == PODS
        self.waits.append(version)
        yield "BOOKMARK", {}
        if self.on_wait:
            self.on_wait.pop(0)()
            yield "MODIFIED", {}


class Coordinator:
    """Whatever answers at the end of a link: one thing after the other, the last for ever."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def call(self, name: str, patience: float = 30.0, **params: Any) -> Any:
        self.calls.append((name, params))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def cluster(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ManagedCluster[KubernetesBackend]:
    for module, prefix in ((pod_logs, "_"), (patience, "")):
        monkeypatch.setattr(module, f"{prefix}FIRST", 0.001)
        monkeypatch.setattr(module, f"{prefix}LONGEST", 0.002)
    cluster = ManagedCluster(KubernetesBackend(tmp_path, {"name": "k8s"}))
    cluster.backend.__dict__["_api"] = server
    return cluster


def coordinator(phase: str = "Running", name: str = "c-0-a", **more: str) -> Pod:
    pod = Pod(name, 0, role="coordinator", phase=phase)
    pod.object["metadata"] |= more
    return pod


def answers(cluster: ManagedCluster[KubernetesBackend], monkeypatch: pytest.MonkeyPatch, *what: Any) -> Coordinator:
    made = Coordinator(*what)
    monkeypatch.setattr(cluster.backend.coordinators, "join_file", lambda job_id, control=False: None)
    monkeypatch.setattr("petctl.rendezvous.net.client.ControlLink", lambda *words, **more: made)
    return made


def told(status: JobStatus, version: int = 1) -> dict[str, Any]:
    return {"version": version, "status": status.pack()}


# -- status ------------------------------------------------------------------------------------------------------------


def test_a_coordinator_that_runs_is_asked(
    cluster: ManagedCluster[KubernetesBackend], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pods = [coordinator()]
    answers(cluster, monkeypatch, told(RUNNING))
    assert cluster.status(JOB) == RUNNING


@pytest.mark.parametrize("failure", [NOBODY, NoSuchObject("the pod is gone"), KubernetesError("kubelet says no"), AWAY])
def test_a_coordinator_that_cannot_be_asked_is_waited_for(
    cluster: ManagedCluster[KubernetesBackend], server: Server, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    server.pods = [coordinator()]
    answers(cluster, monkeypatch, failure)
    assert cluster.status(JOB).state == "starting"
    server.objects[COORDINATOR]["status"] = {"failed": 1}
    assert cluster.status(JOB).state == "recovering"


@pytest.mark.parametrize("failed", [0, 1])
def test_a_coordinator_that_has_said_its_last_word_is_not_taken_for_one_that_comes(
    cluster: ManagedCluster[KubernetesBackend], server: Server, monkeypatch: pytest.MonkeyPatch, failed: int
) -> None:
    """Its process has gone, and Kubernetes has not seen that yet."""
    words = "cancelled by the user"
    final = replace(RUNNING, state="cancelled", sentence=words, finished=5.0, exit_code=130)
    event = json.dumps({"kind": "final", "status": final.pack()}).encode()
    monkeypatch.setattr(server, "log", lambda *words, **more: iter([b"something else\n", event]))
    server.pods = [coordinator()]
    server.objects[COORDINATOR]["status"] = {"failed": failed}
    answers(cluster, monkeypatch, NOBODY)
    status = cluster.status(JOB)
    assert (status.state, status.sentence, status.final) == ("running", "cancelled by the user", False)


def test_a_submission_that_was_cut_short_before_its_nodes_says_so(
    cluster: ManagedCluster[KubernetesBackend], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pods = [coordinator()]
    del server.objects[NODES]
    answers(cluster, monkeypatch, told(replace(RUNNING, sentence="waiting for nodes")))
    status = cluster.status(JOB)
    assert status.cut_short and "nodes 0, 1: its submission was interrupted" in status.sentence


def test_who_may_not_ask_the_coordinator_hears_that(
    cluster: ManagedCluster[KubernetesBackend], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pods = [coordinator()]
    answers(cluster, monkeypatch, Forbidden("may not get pods/portforward"))
    for act in (lambda: cluster.status(JOB), lambda: cluster.cancel(JOB, False), lambda: cluster.scale(JOB, 2)):
        with pytest.raises(Forbidden, match="portforward"):
            act()


def test_a_job_that_is_not_there(cluster: ManagedCluster[KubernetesBackend], server: Server) -> None:
    server.objects.clear()
    with pytest.raises(NotFound, match="there is no job 'train-2222'"):
        cluster.status(JOB)


def test_jobs_that_are_not_petctls_or_are_being_deleted_are_not_listed(
    cluster: ManagedCluster[KubernetesBackend], server: Server
) -> None:
    server.objects[f"{JOBS}/going"] = {"metadata": {"annotations": {ID: "going"}, "deletionTimestamp": "now"}}
    assert cluster.ids() == [JOB]


def killed(name: str = "n-0-a", born: int = 1) -> Pod:
    """A node's pod that needed more memory than it may have."""
    pod = Pod(name, 0, phase="Failed", born=born)
    ended = {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-01-02T03:05:00Z"}
    pod.object["status"]["containerStatuses"] = [{"name": "petctl", "state": {"terminated": ended}}]
    return pod


MEMORY = "was killed: it used more memory than there was for it (OOMKilled)"


def test_a_job_whose_pods_are_killed_for_memory_says_so_while_it_waits_and_when_it_runs_again(
    cluster: ManagedCluster[KubernetesBackend], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pods = [coordinator(), killed(), Pod("n-1-a", 1)]
    other = NodeStatus("1", "running")
    waiting = replace(RUNNING, nodes=[other], nodes_lost=1)
    answers(cluster, monkeypatch, told(waiting))
    assert cluster.status(JOB).sentence == f"all is well; node 0: its pod {MEMORY}"
    server.pods.append(Pod("n-0-b", 0, born=5))
    back = replace(waiting, nodes=[replace(other, name="0"), other])
    answers(cluster, monkeypatch, told(back))
    assert cluster.status(JOB).sentence == f"all is well; pod n-0-a of node 0 {MEMORY}"


@pytest.mark.parametrize("elastic", [False, True])
def test_a_job_that_failed_without_a_failed_worker_says_how_its_pods_ended(
    cluster: ManagedCluster[KubernetesBackend], server: Server, elastic: bool
) -> None:
    message = json.dumps({"outcome": {"state": "failed", "code": 1, "sentence": "only 0 of at least 1"}, "finished": 5})
    ended = coordinator("Succeeded")
    ended.object["status"]["containerStatuses"] = [{"state": {"terminated": {"message": message}}}]
    server.pods = [ended] if elastic else [ended, killed()]
    if elastic:
        entry = {
            "node": "0",
            "pod": "n-0-a",
            "uid": "u",
            "message": MEMORY,
            "time": "2026-01-02T03:05:00Z",
            "own": True,
        }
        owner = {"kind": "ElasticJob", "metadata": {}, "spec": {}, "status": {"ends": [entry]}}
        server.objects = {f"{MAPS}/{JOB}": server.objects[f"{MAPS}/{JOB}"], f"{ELASTIC}/{JOB}": owner}
    status = cluster.status(JOB)
    assert status.sentence == f"only 0 of at least 1; pod n-0-a of node 0 {MEMORY}"
    assert find(status.sentence) == "host-out-of-memory"


def test_pods_that_were_deleted_are_told_of_by_the_clusters_events(
    cluster: ManagedCluster[KubernetesBackend], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = {
        "reason": "Preempted",
        "message": "Preempted by pod 1234 on node b",
        "lastTimestamp": "2026-01-02T03:05:00Z",
    }
    names = [f"{JOB}-node-0-a", f"{JOB}x-node-0-a", "another"]
    server.events = [{**about, "involvedObject": {"name": name, "uid": name}} for name in names]
    monkeypatch.setattr(PodOutput, "so_far", lambda self: iter(()))
    found = list(cluster.events(JOB, False))
    assert server.asked == [f"involvedObject.kind=Pod,reason={r}" for r in ("Preempted", "TaintManagerEviction")]
    assert {event["sentence"] for event in found} == {
        f"pod {JOB}-node-0-a of node 0 was preempted: Preempted by pod 1234 on node b",
        f"pod {JOB}-node-0-a of node 0 was lost with its machine: Preempted by pod 1234 on node b",
    }


def test_what_an_operator_remembers_is_not_told_again_from_the_clusters_events(
    cluster: ManagedCluster[KubernetesBackend], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod, when = f"{JOB}-node-0", "2026-01-02T03:05:00Z"
    entry = {"node": "0", "pod": pod, "uid": "u", "message": "was preempted: for another", "time": when}
    owner = {"kind": "ElasticJob", "metadata": {}, "spec": {}, "status": {"ends": [entry]}}
    server.objects = {f"{MAPS}/{JOB}": server.objects[f"{MAPS}/{JOB}"], f"{ELASTIC}/{JOB}": owner}
    server.events = [{"message": "by pod 1", "lastTimestamp": when, "involvedObject": {"name": pod, "uid": "u"}}]
    monkeypatch.setattr(PodOutput, "so_far", lambda self: iter(()))
    (event,) = cluster.events(JOB, False)
    assert event["sentence"] == f"pod {pod} of node 0 was preempted: for another"


def test_what_ended_a_coordinator_is_told_until_another_runs(
    cluster: ManagedCluster[KubernetesBackend], server: Server
) -> None:
    ended = coordinator("Failed")
    ended.object["status"] = killed().object["status"]
    server.objects[COORDINATOR]["status"] = {"failed": 1}
    server.pods = [ended]
    waiting = "its coordinator is being replaced, and no node is running meanwhile"
    assert cluster.status(JOB).sentence == f"{waiting}; c-0-a {MEMORY}"
    server.pods.append(coordinator("Pending", "c-0-b", creationTimestamp="2026-01-02T03:06:00Z"))
    assert cluster.status(JOB).sentence == f"{waiting}; c-0-a {MEMORY}; c-0-b is being created"
    server.pods.append(Pod("n-0-a", 0))
    assert cluster.status(JOB).sentence.startswith("its coordinator is being replaced, and its workers keep running")


# -- watch -------------------------------------------------------------------------------------------------------------


def test_a_watch_ends_with_what_is_new(
    cluster: ManagedCluster[KubernetesBackend], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pods = [coordinator()]
    later = replace(RUNNING, sentence="still well")
    link = answers(cluster, monkeypatch, told(RUNNING, 7), told(later, 8))
    assert cluster.watch(JOB, RUNNING, 1000.0) == later
    assert link.calls[1][1]["seen"] == 7
    assert server.waits == []


def test_a_watch_of_a_job_without_coordinator_sees_what_became_of_its_pods_since_it_looked(
    cluster: ManagedCluster[KubernetesBackend], server: Server
) -> None:
    server.pods = [coordinator("Pending")]
    seen = cluster.status(JOB)
    message = json.dumps({"outcome": {"state": "succeeded", "code": 0, "sentence": "done"}, "finished": 5.0})
    ended = coordinator("Succeeded")
    ended.object["status"]["containerStatuses"] = [{"state": {"terminated": {"message": message}}}]
    server.on_wait = [lambda: server.pods.__setitem__(0, ended)]
    assert cluster.watch(JOB, seen, 1000.0).state == "succeeded"
    assert server.waits == ["42"]  # of that very list: what changes between the two is not missed


def test_a_watch_outlives_versions_that_are_too_old_and_a_server_that_is_away(
    cluster: ManagedCluster[KubernetesBackend], server: Server
) -> None:
    server.pods = [coordinator("Pending")]
    seen = cluster.status(JOB)

    def too_old() -> None:
        raise Gone("too old resource version")

    def away() -> None:
        server.trouble = [AWAY] * 4
        server.objects[COORDINATOR]["status"] = {"failed": 1}

    server.on_wait = [too_old, away]
    assert cluster.watch(JOB, seen, 1000.0).state == "recovering"
    assert server.trouble == []


def test_a_server_that_stays_away_is_told_within_the_time_of_a_watch(
    cluster: ManagedCluster[KubernetesBackend], server: Server
) -> None:
    server.trouble = [AWAY] * 100_000
    with pytest.raises(ServerUnreachable):
        cluster.watch(JOB, RUNNING, 0.01)


def test_a_watch_gives_the_same_when_its_time_is_over(
    cluster: ManagedCluster[KubernetesBackend], server: Server
) -> None:
    server.pods = [coordinator("Pending")]
    seen = cluster.status(JOB)
    assert cluster.watch(JOB, seen, 0.0) == seen


# -- wishes ------------------------------------------------------------------------------------------------------------


def test_a_cancel_waits_for_a_coordinator_that_has_just_begun(
    cluster: ManagedCluster[KubernetesBackend], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pods = [coordinator()]
    link = answers(cluster, monkeypatch, NOBODY, KubernetesError("connection refused"), "is being cancelled")
    assert cluster.cancel(JOB, True) == "is being cancelled"
    assert link.calls == [("cancel", {"kill": True})] * 3
    assert job_status.OUTCOME not in server.objects[COORDINATOR]["metadata"]["annotations"]


@pytest.mark.parametrize("failed, when", [(0, "before it started"), (1, "while its coordinator was away")])
def test_a_job_without_coordinator_is_cancelled_from_outside(
    cluster: ManagedCluster[KubernetesBackend], server: Server, failed: int, when: str
) -> None:
    server.pods = [coordinator("Pending")]
    server.objects[COORDINATOR]["status"] = {"failed": failed}
    assert cluster.cancel(JOB, False) == f"cancelled {when}"
    assert server.objects[NODES]["spec"]["suspend"] and server.objects[COORDINATOR]["spec"]["suspend"]
    status = cluster.status(JOB)
    assert (status.state, status.exit_code, status.sentence) == ("cancelled", 130, f"cancelled by the user {when}")
    assert cluster.cancel(JOB, False) == "has ended already"


def test_a_coordinator_that_never_answers_does_not_keep_a_job_from_being_cancelled(
    cluster: ManagedCluster[KubernetesBackend], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("petctl.clusters.backend.REPLACED_WITHIN", 0.0)
    server.pods = [coordinator()]
    answers(cluster, monkeypatch, NOBODY)
    assert cluster.cancel(JOB, False) == "cancelled while its coordinator was away"
    assert cluster.status(JOB).state == "cancelled"


def test_a_job_that_was_just_suspended_is_cancelled_from_outside_though_its_coordinator_answers(
    cluster: ManagedCluster[KubernetesBackend], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pods = [coordinator(deletionTimestamp="now")]
    server.objects[COORDINATOR]["spec"]["suspend"] = True
    link = answers(cluster, monkeypatch, "is being cancelled")
    assert cluster.cancel(JOB, False) == "cancelled while its coordinator was away"
    assert not link.calls
    server.pods = []
    assert cluster.status(JOB).state == "cancelled"


def test_what_a_submission_left_that_was_cut_short_can_be_seen_cancelled_and_removed(
    cluster: ManagedCluster[KubernetesBackend], server: Server
) -> None:
    server.objects = {COORDINATOR: server.objects[COORDINATOR]}
    server.objects[COORDINATOR]["spec"] |= {"suspend": True, "template": {"spec": {"volumes": []}}}
    status = cluster.status(JOB)
    assert (status.state, status.id) == ("queued", JOB) and "interrupted" in status.sentence
    with pytest.raises(UsageError, match="has not ended"):
        cluster.remove(JOB)
    cluster.cancel(JOB, True)
    assert cluster.status(JOB).final
    cluster.remove(JOB)
    assert server.objects == {}


def test_a_scale_waits_for_the_coordinators_replacement_and_then_changes_the_pods(
    cluster: ManagedCluster[KubernetesBackend], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pods = [coordinator(deletionTimestamp="now")]
    link = answers(cluster, monkeypatch, NOBODY, "from 2 to 3")
    server.on_wait = [lambda: server.pods.append(coordinator(name="c-0-b"))]
    assert cluster.scale(JOB, 3) == "from 2 to 3"
    assert len(link.calls) == 2
    assert server.objects[NODES]["spec"] == {"parallelism": 3, "completions": 3}
    for size in (2, 3):  # for a coordinator that no node is left to tell it
        cluster.scale(JOB, size)
        kept = server.objects[f"{MAPS}/{JOB}.size"]
        assert kept["data"] == {"wanted": str(size)} and kept["metadata"]["ownerReferences"][0]["uid"] == "1"


def test_a_scale_that_is_refused_changes_no_pods(
    cluster: ManagedCluster[KubernetesBackend], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pods = [coordinator()]
    link = answers(cluster, monkeypatch, PetctlError("at most 4"))
    with pytest.raises(PetctlError, match="at most 4"):
        cluster.scale(JOB, 5)
    assert (len(link.calls), server.objects[NODES]["spec"]) == (1, {})


# -- pods, logs and code -----------------------------------------------------------------------------------------------


def test_a_node_is_its_pod_that_runs_whatever_was_before_it(
    cluster: ManagedCluster[KubernetesBackend], server: Server
) -> None:
    server.pods = [
        Pod("n-0-b", 0, born=5),
        Pod("n-0-z", 0, phase="Failed", born=1),
        Pod("n-1-a", 1, phase="Pending"),
        Pod("n-0-a", 0, born=9),
    ]
    server.pods[-1].object["metadata"]["deletionTimestamp"] = "now"
    assert cluster._node(cluster.backend.inspect(JOB), "0")["metadata"]["name"] == "n-0-b"
    assert cluster._node(cluster.backend.inspect(JOB), None)["metadata"]["name"] == "n-0-b"
    with pytest.raises(NotFound, match="no running node '1'; its nodes: 0"):
        cluster._node(cluster.backend.inspect(JOB), "1")


def test_following_with_a_tail_begins_with_the_last_lines_and_goes_on(
    cluster: ManagedCluster[KubernetesBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = Pods(Pod("n-0-a", 0))
    pods.access = SimpleNamespace(namespace=NAMESPACE)  # type: ignore[attr-defined]
    cluster.backend.__dict__["_api"] = pods
    monkeypatch.setattr(cluster, "_over", lambda job_id: pods.over)
    pods.print("n-0-a", b"[0.1] old\n", b"[0.2] a\n", b"[0.2] b\n", b"[0.2] c\n")
    lines = cluster.logs(JOB, LogFilter(tail=2), follow=True)
    assert [next(lines).text for _ in range(2)] == [b"b\n", b"c\n"]
    pods.print("n-0-a", b"[0.2] d\n")
    assert next(lines).text == b"d\n"
    pods.phase("n-0-a", "Succeeded")
    pods.finish()
    assert list(lines) == []


def test_the_code_of_a_job_that_was_submitted_elsewhere_is_brought_here(
    cluster: ManagedCluster[KubernetesBackend], server: Server, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("print('hello')")
    archive = Cabinet(tmp_path / "elsewhere").put(take(project))
    identity = archive.name.partition(".")[0]
    pieces = list(make.code_pieces(JOB, archive.read_bytes(), 3))
    code = {"id": identity, "archive": "/elsewhere/archive.tar.gz", "inside": "", "source": "x"}
    record = {**RECORD, "code": code, "request": {"namespace": "team", "pieces": len(pieces)}}
    server.objects[f"{MAPS}/{JOB}"] = {"data": {"job.json": json.dumps(record)}}
    server.objects |= {f"{MAPS}/{piece['metadata']['name']}": piece for piece in pieces}
    found = cluster.record(JOB).code["archive"]
    assert Path(found).read_bytes() == archive.read_bytes()
    assert Path(found).is_relative_to(tmp_path / "bundles")
    server.objects = {f"{MAPS}/{JOB}": server.objects[f"{MAPS}/{JOB}"]}
    assert cluster.record(JOB).code["archive"] == found  # it is here now
    assert base64.b64decode(pieces[0]["binaryData"]["piece"]) in archive.read_bytes()


@pytest.mark.parametrize("identity", ["../../secrets", "", None, "A" * 64])
def test_the_id_of_code_in_a_record_is_checked_before_it_becomes_a_path(
    cluster: ManagedCluster[KubernetesBackend], server: Server, identity: object
) -> None:
    record = {**RECORD, "code": {"id": identity, "archive": "/etc/hostname", "inside": "", "source": "x"}}
    server.objects[f"{MAPS}/{JOB}"] = {"data": {"job.json": json.dumps(record)}}
    with pytest.raises(UsageError, match="is not a snapshot id"):
        cluster.record(JOB)


def test_a_record_cannot_name_a_file_of_this_machine_as_its_code(
    cluster: ManagedCluster[KubernetesBackend], server: Server, tmp_path: Path
) -> None:
    (tmp_path / "private").write_text("key")
    code = {"id": "0" * 64, "archive": str(tmp_path / "private"), "inside": "", "source": "x"}
    server.objects[f"{MAPS}/{JOB}"] = {"data": {"job.json": json.dumps({**RECORD, "code": code})}}
    assert cluster.record(JOB).code["archive"] == str(tmp_path / "bundles" / f"{'0' * 64}.tar.gz")
