"""All jobs of a namespace in one question: how many requests that takes, and what a summary says and leaves out."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from petctl.clusters.kubernetes.backend import KubernetesBackend
from petctl.clusters.kubernetes.job_status import LONGEST, OUTCOME
from petctl.clusters.kubernetes.jobrequest import KubernetesRequest
from petctl.clusters.kubernetes.names import ABOUT, COORDINATOR, ID, NODE, labels, object_name
from petctl.clusters.kubernetes.pods.pod_events import NOBODY_MAKES_IT
from petctl.clusters.managed import ManagedCluster
from petctl.errors import NotFound
from petctl.job.spec import Job
from petctl.jobs.status import Status
from petctl.kube.api import Api, path
from tests.unit.clusters.kubernetes.servers import Handler, Server, access_to, serving, url_of

pytestmark = pytest.mark.timeout(60)
NAMESPACE = "team"
JOBS, ELASTIC = path("jobs", NAMESPACE), path("elasticjobs", NAMESPACE)
PODS, MAPS = path("pods", NAMESPACE), path("configmaps", NAMESPACE)
BORN, BEGUN, LATER = "2026-01-02T03:04:00Z", "2026-01-02T03:04:05Z", "2026-01-02T03:04:25Z"


class Namespace:
    """Objects by their paths, behind a real server that knows lists, labels and pages."""

    def __init__(self, home: Path) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.cluster = ManagedCluster(KubernetesBackend(home, {"name": "k8s", "image": "train:1"}))
        self.elastic = ManagedCluster(KubernetesBackend(home, {"name": "k8s", "image": "train:1", "operator": True}))
        self.server: Server | None = None

    def answer(self, handler: Handler) -> None:
        place, _, text = handler.path.partition("?")
        query = dict(urllib.parse.parse_qsl(text))
        if place in self.objects:
            handler.reply(self.objects[place])
        elif place in (JOBS, ELASTIC, PODS):
            found = [body for one, body in self.objects.items() if one.rpartition("/")[0] == place]
            found = [body for body in found if self._fits(body, query.get("labelSelector", ""))]
            start, limit = int(query.get("continue", 0)), int(query["limit"])
            more = {"continue": str(start + limit)} if start + limit < len(found) else {}
            handler.reply({"items": found[start : start + limit], "metadata": {"resourceVersion": "42", **more}})
        else:
            handler.refuse(404, "NotFound", f"{place} not found")

    def _fits(self, body: dict[str, Any], selector: str) -> bool:
        has = body["metadata"].get("labels", {})
        for term in filter(None, selector.split(",")):
            name, equals, value = term.partition("=")
            if name not in has or (equals and has[name] != value):
                return False
        return True

    @property
    def requests(self) -> list[str]:
        assert self.server is not None
        return self.server.requests

    def submit(self, job_id: str, operator: bool = False, **fields: Any) -> dict[str, Any]:
        """The objects of a job as its submitter makes and wakes them; its owner."""
        job = Job(program=["train"], code="none", **fields)
        made = (self.elastic if operator else self.cluster).build_record(job, job_id)
        for manifest in KubernetesRequest.of(made).objects:
            kind = f"{manifest['kind'].lower()}s"
            if kind in ("jobs", "elasticjobs"):
                body = {key: value for key, value in manifest.items() if key not in ("kind", "apiVersion")}
                body["metadata"] |= {"creationTimestamp": BORN, "generation": 2}
                body["spec"].pop("suspend", None)
                self.objects[f"{path(kind, NAMESPACE)}/{manifest['metadata']['name']}"] = body
        record = {"metadata": {"name": object_name(job_id)}, "data": {"job.json": json.dumps(made.to_dict())}}
        self.objects[f"{MAPS}/{object_name(job_id)}"] = record
        return self.owner(job_id)

    def owner(self, job_id: str) -> dict[str, Any]:
        elastic = self.objects.get(f"{ELASTIC}/{object_name(job_id)}")
        return elastic or self.objects[f"{JOBS}/{object_name(job_id)}-{COORDINATOR}"]

    def pod(
        self, job_id: str, role: str, index: int = 0, phase: str = "Running", ready: str = "", **status: Any
    ) -> Any:
        """`ready`: since when."""
        name = f"{object_name(job_id)}-{role}-{index}"
        condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": ready or BORN}
        container = {"name": "petctl", "state": {"running": {"startedAt": BEGUN}}}
        body = {
            "metadata": {
                "name": name,
                "uid": name,
                "labels": labels(job_id, role),
                "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
                "creationTimestamp": BORN,
            },
            "status": {"phase": phase, "conditions": [condition], "containerStatuses": [container], **status},
        }
        self.objects[f"{PODS}/{name}"] = body
        return body

    def run(self, job_id: str, nodes: int = 2) -> None:
        """Its coordinator and nodes run, and train."""
        self.pod(job_id, COORDINATOR)
        for index in range(nodes):
            self.pod(job_id, NODE, index, ready=LATER)

    def list(self) -> dict[str, Status]:
        found = {}
        for listed in self.cluster.statuses(lambda job_id: True):
            assert listed.status is not None, listed
            found[listed.id] = listed.status
        return found

    def one(self) -> Status:
        (status,) = self.list().values()
        return status


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Namespace]:
    namespace = Namespace(tmp_path)
    with serving(namespace.answer) as server:
        namespace.server = server
        for cluster in (namespace.cluster, namespace.elastic):
            cluster.backend.__dict__["_api"] = Api(access_to(url_of(server)))
        yield namespace
        namespace.cluster.backend._api.close()


@pytest.mark.parametrize("operator", [False, True])
def test_a_hundred_jobs_cost_as_many_requests_as_one(there: Namespace, operator: bool) -> None:
    there.submit("train-0000", operator, nodes=2)
    there.run("train-0000")
    assert len(there.list()) == 1
    one = list(there.requests)
    for number in range(1, 100):
        there.submit(f"train-{number:04d}", operator, nodes=2)
        there.run(f"train-{number:04d}")
    there.requests.clear()
    assert len(there.list()) == 100
    assert there.requests == one
    assert len(one) == 3, one


def test_jobs_that_are_known_to_have_ended_cost_nothing(there: Namespace) -> None:
    for job_id in ("old-1111", "new-2222"):
        there.submit(job_id)
    found = {listed.id: listed.status for listed in there.cluster.statuses(lambda job_id: job_id.startswith("new"))}
    assert found["old-1111"] is None and found["new-2222"] is not None
    there.requests.clear()
    assert [listed.id for listed in there.cluster.statuses(lambda job_id: False)] == ["old-1111", "new-2222"]
    assert len(there.requests) == 2  # no pods


def test_a_summary_says_what_the_job_is_and_which_nodes_train(there: Namespace) -> None:
    there.submit("My.Job-22aa", nodes="1:2:4", restarts=5)
    there.run("My.Job-22aa", 1)
    there.pod("My.Job-22aa", NODE, 1)
    status = there.one()
    assert (status.id, status.name, status.cluster, status.command) == ("My.Job-22aa", "My.Job", "k8s", "train")
    assert (status.size.min, status.size.wanted, status.size.max, status.restarts) == (1, 2, 4, 5)
    assert (status.state, status.sentence) == ("running", "1 of 2 nodes are ready")
    assert [(node.name, node.state) for node in status.nodes] == [("0", "running"), ("1", "starting")]
    assert status.summary and not status.final
    assert (status.round, status.rounds, status.progress, status.cwd, status.code) == (0, [], None, "", "")


def test_a_size_that_was_changed_is_the_one_that_is_wanted(there: Namespace) -> None:
    there.submit("train-2222", nodes="1:2:4")
    there.objects[f"{JOBS}/train-2222-{NODE}"]["spec"]["parallelism"] = 4
    assert there.one().size.wanted == 4


def test_states_of_jobs_that_do_not_train(there: Namespace) -> None:
    for job_id in ("starting-1", "recovering-2", "replaced-3", "queued-4", "away-5", "half-6"):
        there.submit(job_id)
        if job_id not in ("queued-4", "replaced-3", "away-5"):
            there.pod(job_id, COORDINATOR)
            there.pod(job_id, NODE)
    there.objects[f"{PODS}/recovering-2-{NODE}-0"]["status"]["conditions"][0]["lastTransitionTime"] = LATER
    there.owner("replaced-3")["status"] = {"failed": 1}
    there.pod("replaced-3", NODE, ready=LATER)
    there.pod("replaced-3", COORDINATOR, phase="Pending")
    there.owner("queued-4")["spec"]["suspend"] = True
    message = "0/3 nodes are available"
    unschedulable = [{"type": "PodScheduled", "status": "False", "message": message}]
    there.pod("away-5", COORDINATOR, phase="Pending", conditions=unschedulable, containerStatuses=[])
    del there.objects[f"{JOBS}/half-6-{NODE}"]
    found = there.list()
    assert {job_id: status.state for job_id, status in found.items()} == {
        "starting-1": "starting",
        "recovering-2": "recovering",
        "replaced-3": "recovering",
        "queued-4": "queued",
        "away-5": "starting",
        "half-6": "starting",
    }
    assert found["starting-1"].sentence == "waiting: 0 of 1 nodes are ready"
    assert "its workers keep running meanwhile" in found["replaced-3"].sentence
    assert message in found["away-5"].sentence
    assert found["half-6"].cut_short and NOBODY_MAKES_IT in found["half-6"].sentence
    assert not any(status.cut_short for job_id, status in found.items() if job_id != "half-6")


@pytest.mark.parametrize(
    "phase, state", [("Starting", "starting"), ("Running", "running"), ("Recovering", "recovering")]
)
def test_an_operator_knows_the_state_of_its_jobs(there: Namespace, phase: str, state: str) -> None:
    there.submit("big-2222", operator=True, nodes="1:4")["status"] = {"phase": phase, "message": "1 of 2 nodes run"}
    there.objects[f"{ELASTIC}/big-2222"]["spec"]["replicas"] = 2
    there.run("big-2222", 1)
    status = there.one()
    assert (status.state, status.sentence, status.size.wanted) == (phase.lower(), "1 of 2 nodes run", 2)
    assert [node.state for node in status.nodes] == ["running"]


def test_a_job_made_with_kubectl_is_listed_by_what_it_says_itself(there: Namespace) -> None:
    container = {"name": "main", "image": "i", "command": ["python", "train.py"]}
    spec = {"minReplicas": 1, "maxReplicas": 4, "template": {"spec": {"containers": [container]}}}
    there.objects[f"{ELASTIC}/mnist"] = {"metadata": {"name": "mnist", "creationTimestamp": BORN}, "spec": spec}
    status = there.one()
    assert (status.id, status.command, status.size.max) == ("mnist", "python train.py", 4)
    assert len(there.requests) == 3


def test_how_jobs_have_ended(there: Namespace) -> None:
    for job_id in ("failed-1", "cancelled-2", "lost-3", "killed-4"):
        there.submit(job_id)
    failure = {"node": "0", "rank": 0, "local_rank": 0, "code": 7, "message": "out of luck"}
    outcome = {"state": "failed", "code": 7, "sentence": "rank 0 failed", "failure": failure}
    facts = {"started": 3.0, "finished": 5.0, "spent": 2, "round": 3, "size": {"min": 1, "wanted": 1, "max": 1}}
    _ends_with(there.pod("failed-1", COORDINATOR, phase="Succeeded"), {"outcome": outcome, **facts})
    cancelled = {"outcome": {"state": "cancelled", "code": 130, "sentence": "cancelled by the user"}, "finished": 9.0}
    there.owner("cancelled-2")["metadata"]["annotations"][OUTCOME] = json.dumps(cancelled)
    there.owner("lost-3")["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    few = {"outcome": {"state": "failed", "code": 1, "sentence": "only 0 of at least 1"}, "finished": 5.0}
    _ends_with(there.pod("killed-4", COORDINATOR, phase="Succeeded"), few)
    ended = {"reason": "OOMKilled", "exitCode": 137}
    there.pod("killed-4", NODE, phase="Failed", containerStatuses=[{"name": "petctl", "state": {"terminated": ended}}])
    found = there.list()
    failed = found["failed-1"]
    assert (failed.state, failed.exit_code, failed.spent, failed.round) == ("failed", 7, 2, 3)
    assert (failed.started, failed.finished) == (3.0, 5.0)
    assert failed.error is not None and failed.error.message == "out of luck"
    assert (found["cancelled-2"].state, found["cancelled-2"].finished) == ("cancelled", 9.0)
    assert found["lost-3"].state == "lost"
    assert found["killed-4"].sentence.startswith("only 0 of at least 1; pod killed-4-node-0 of node 0 was killed")
    assert all(status.final and status.summary for status in found.values())


def _ends_with(pod: dict[str, Any], message: dict[str, Any]) -> None:
    pod["status"]["containerStatuses"] = [{"state": {"terminated": {"message": json.dumps(message)}}}]


def test_a_record_is_read_only_where_the_owner_does_not_say_what_the_job_is(there: Namespace) -> None:
    del there.submit("older-1")["metadata"]["annotations"][ABOUT]
    owner = there.submit("long-2", env={"A": "b"}, args=["x" * LONGEST])
    assert ABOUT not in owner["metadata"]["annotations"] and ID in owner["metadata"]["annotations"]
    there.submit("short-3")
    found = there.list()
    assert found["older-1"].command == "train" and found["long-2"].command.endswith("xxx")
    read = [request for request in there.requests if "/configmaps/" in request]
    assert read == [f"GET {MAPS}/older-1", f"GET {MAPS}/long-2"]


def test_a_submission_that_was_cut_short_says_so(there: Namespace) -> None:
    owner = there.submit("half-1")
    owner["spec"]["suspend"], owner["metadata"]["generation"] = True, 1
    del there.objects[f"{MAPS}/half-1"]
    status = there.one()
    assert (status.state, status.cut_short) == ("queued", True) and "interrupted" in status.sentence


def test_a_summary_agrees_with_the_status_where_both_know(there: Namespace) -> None:
    for job_id in ("queued-1", "failed-2", "away-3"):
        there.submit(job_id)
    there.owner("queued-1")["spec"]["suspend"] = True
    outcome = {"state": "failed", "code": 7, "sentence": "rank 0 failed"}
    _ends_with(there.pod("failed-2", COORDINATOR, phase="Succeeded"), {"outcome": outcome, "finished": 5.0})
    there.owner("away-3")["status"] = {"failed": 1}
    there.pod("away-3", COORDINATOR, phase="Pending")
    there.objects[path("events", NAMESPACE)] = {"items": []}
    for job_id, listed in there.list().items():
        status = there.cluster.status(job_id)
        for name in ("id", "name", "state", "sentence", "size", "command", "restarts", "exit_code", "finished"):
            assert getattr(listed, name) == getattr(status, name), (job_id, name)


def test_a_job_that_is_gone_is_not_there(there: Namespace) -> None:
    there.submit("going-1")["metadata"]["deletionTimestamp"] = LATER
    assert there.list() == {}
    with pytest.raises(NotFound):
        there.cluster.record("another-2")
