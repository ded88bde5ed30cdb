"""What a real API server makes of the ElasticJob's definition: what it refuses, completes, explains and scales."""

from __future__ import annotations

import json
import subprocess
from typing import Any, Iterator

import pytest

from petctl.clusters.kubernetes.operator.install.crd import NAME, crd
from tests.k8s.cluster.cluster import Cluster
from tests.k8s.elasticjobs import defined, elastic_job

pytestmark = [pytest.mark.root]

FIRST = {"name": "main", "image": "python:3.11-slim", "command": ["python3", "train.py"]}
BESIDE = {"name": "beside", "image": "busybox"}
ANEW = "cannot be changed: delete the job and create it again"


def pod(*containers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), **more}}


def without(container: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in container.items() if name not in names}


@pytest.fixture(scope="module", autouse=True)
def definition(cluster: Cluster) -> Iterator[None]:
    with defined(cluster):
        yield


class Jobs:
    """What somebody tries with the ElasticJobs of one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.there = cluster, f"--namespace={namespace}"

    def attempt(self, *words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        return self.cluster.kubectl.attempt(*words, self.there, text=text)

    def create(self, job: dict[str, Any], *how: str) -> subprocess.CompletedProcess[str]:
        return self.attempt("create", "--filename=-", *how, text=json.dumps(job))

    def change(self, name: str, spec: dict[str, Any], *how: str) -> subprocess.CompletedProcess[str]:
        patch = json.dumps({"spec": spec})
        return self.attempt("patch", "elasticjob", name, "--type=merge", f"--patch={patch}", *how)

    def spec(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.kubectl.get("elasticjob", name, self.there)["spec"]
        return found


@pytest.fixture
def jobs(cluster: Cluster, namespace: str) -> Jobs:
    return Jobs(cluster, namespace)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no template": ({"template": None}, "spec.template: Required value"),
    "no container": ({"template": pod()}, "spec.template.spec.containers"),
    "no name": ({"template": pod(without(FIRST, "name"))}, "spec.template.spec.containers[0].name: Required value"),
    "no image": ({"template": pod(without(FIRST, "image"), BESIDE)}, "give its image, one that has the job's code"),
    "empty image": ({"template": pod({**FIRST, "image": ""})}, "spec.template.spec.containers[0].image"),
    "no command": ({"template": pod(without(FIRST, "command"), FIRST | {"name": "b"})}, "give its command, also where"),
    "args alone": ({"template": pod({**without(FIRST, "command"), "args": ["train.py"]})}, "give its command"),
    "empty command": ({"template": pod({**FIRST, "command": []})}, "give its command"),
    "words no text": ({"template": pod({**FIRST, "command": ["python3", 1]})}, "containers[0].command[1]"),
    "one name twice": ({"template": pod(FIRST, FIRST)}, "two containers have the same name: give each its own"),
    "petctl's name": ({"template": pod(FIRST, BESIDE | {"name": "petctl"})}, "called petctl: give it another name"),
    "restarts of pods": ({"template": pod(FIRST, restartPolicy="Never")}, "leave restartPolicy of the pod out"),
    "no node": ({"replicas": 0}, "spec.replicas"),
    "least none": ({"minReplicas": 0}, "spec.minReplicas"),
    "millions": ({"maxReplicas": 5_000_000}, "should be less than or equal to 10000"),
    "half a node": ({"replicas": 1.5}, "spec.replicas"),
    "least over most": ({"minReplicas": 3, "maxReplicas": 2}, "minReplicas is more than maxReplicas: lower one"),
    "too few": ({"replicas": 1, "minReplicas": 2}, "replicas is less than minReplicas: ask for as many, or for more"),
    "too many": ({"replicas": 5, "maxReplicas": 4}, "replicas is more than maxReplicas: ask for as many, or for fewer"),
    "clean what": ({"cleanPodPolicy": "Some"}, 'supported values: "All", "Running", "None"'),
    "restart when": ({"restartPolicy": "Always"}, 'supported values: "OnFailure", "ExitCode", "Never"'),
    "launch how": ({"launcher": "ssh"}, 'supported values: "elastic", "torchrun", "mpi", "plain"'),
    "no workers": ({"procsPerNode": 0}, "procsPerNode is a number, 1 or more, or one of cpu, gpu, auto"),
    "workers by word": ({"procsPerNode": "many"}, "procsPerNode is a number, 1 or more, or one of cpu, gpu, auto"),
    "negative limit": ({"backoffLimit": -1}, "spec.backoffLimit"),
    "no time": ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds"),
    "over before": ({"ttlSecondsAfterFinished": -1}, "spec.ttlSecondsAfterFinished"),
    "no python": ({"python": ""}, "spec.python"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_refused_and_the_refusal_says_what_to_do(jobs: Jobs, case: str) -> None:
    spec, message = REFUSED[case]
    done = jobs.create(elastic_job(**spec), "--dry-run=server")
    assert done.returncode != 0 and message in done.stderr, done.stderr


ACCEPTED: dict[str, dict[str, Any]] = {
    "as little as possible": {},
    "a range": {"minReplicas": 1, "maxReplicas": 1000},
    "all of it": {
        "replicas": 2,
        "minReplicas": 2,
        "maxReplicas": 2,
        "cleanPodPolicy": "None",
        "ttlSecondsAfterFinished": 0,
        "activeDeadlineSeconds": 1,
        "backoffLimit": 0,
        "restartPolicy": "ExitCode",
        "procsPerNode": "gpu",
        "launcher": "torchrun",
        "python": "/opt/conda/bin/python",
        "warm": False,
    },
    "many processes": {"procsPerNode": 8},
    "a whole pod": {
        "template": {
            "metadata": {"labels": {"team": "vision"}, "annotations": {"why": "a test"}, "creationTimestamp": None},
            **pod(
                {**FIRST, "name": "petctl", "args": ["--lr", "0.1"], "resources": {"limits": {"nvidia.com/gpu": 8}}},
                BESIDE,
                nodeSelector={"gpu": "a100"},
                tolerations=[{"key": "spot", "operator": "Exists"}],
                volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
                terminationGracePeriodSeconds=60,
            ),
        }
    },
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_is_right_is_taken(jobs: Jobs, case: str) -> None:
    done = jobs.create(elastic_job(**ACCEPTED[case]), "--dry-run=server", "--output=json")
    assert done.returncode == 0 and not done.stderr, done.stderr
    taken = json.loads(done.stdout)["spec"]["template"]
    asked = elastic_job(**ACCEPTED[case])["spec"]["template"]
    assert taken["spec"] == asked["spec"]
    assert taken.get("metadata", {}).get("labels") == asked.get("metadata", {}).get("labels")


def test_what_is_left_out_is_filled_in_where_it_does_not_depend_on_anything(jobs: Jobs) -> None:
    whole = elastic_job()
    del whole["spec"]["suspend"]
    done = jobs.create(whole, "--dry-run=server", "--output=json")
    filled = {name: value for name, value in json.loads(done.stdout)["spec"].items() if name != "template"}
    assert filled == {
        "suspend": False,
        "cleanPodPolicy": "Running",
        "backoffLimit": 3,
        "restartPolicy": "OnFailure",
        "procsPerNode": 1,
        "launcher": "elastic",
        "python": "python3",
        "agentImage": "",
        "warm": True,
    }


def test_a_field_that_nobody_knows_is_not_overlooked(jobs: Jobs) -> None:
    strange = elastic_job(minReplica=2)
    done = jobs.create(strange, "--dry-run=server")
    assert done.returncode != 0 and 'unknown field "spec.minReplica"' in done.stderr
    done = jobs.create(strange, "--dry-run=server", "--validate=warn")
    assert done.returncode == 0 and 'Warning: unknown field "spec.minReplica"' in done.stderr


SWAPPED = ({"nodeSelector": None, "hostNetwork": True}, {"containers": [{**FIRST, "tty": True}]})
CHANGED: dict[str, Any] = {
    "minReplicas": 2,
    "maxReplicas": 5,
    "backoffLimit": 1,
    "restartPolicy": "Never",
    "procsPerNode": "auto",
    "launcher": "torchrun",
    "python": "python3.12",
    "warm": False,
    "template": pod({**FIRST, "command": ["python3", "other.py"]}),
}


def test_a_job_is_scaled_and_rests_and_its_limits_move_but_nothing_else_changes(jobs: Jobs) -> None:
    template = pod({**FIRST, "stdin": True}, nodeSelector={"a": "b"})
    whole = elastic_job("fixed", replicas=2, minReplicas=1, maxReplicas=4, template=template)
    assert jobs.create(whole).returncode == 0
    for name, value in CHANGED.items():
        done = jobs.change("fixed", {name: value}, "--dry-run=server")
        assert done.returncode != 0 and f"{name} {ANEW}" in done.stderr, (name, done.stderr)
    for name in ("minReplicas", "maxReplicas"):
        done = jobs.change("fixed", {name: None}, "--dry-run=server")
        assert done.returncode != 0 and f"{name} {ANEW}" in done.stderr, (name, done.stderr)
    for unseen in ({"nodeSelector": {"a": "c"}}, {"nodeSelector": None}, {"hostNetwork": True}, *SWAPPED):
        done = jobs.change("fixed", {"template": {"spec": unseen}}, "--dry-run=server")
        assert done.returncode != 0 and f"template {ANEW}" in done.stderr, (unseen, done.stderr)
    for change in (
        {"replicas": 4},
        {"replicas": None},
        {"suspend": False},
        {"cleanPodPolicy": "All"},
        {"ttlSecondsAfterFinished": 60},
        {"activeDeadlineSeconds": 60},
    ):
        done = jobs.change("fixed", change, "--dry-run=server")
        assert done.returncode == 0, (change, done.stderr)


def test_kubectl_scale_keeps_to_the_range(jobs: Jobs) -> None:
    assert jobs.create(elastic_job("wide", minReplicas=2, maxReplicas=4)).returncode == 0
    for count in (3, 2, 4):
        done = jobs.attempt("scale", "elasticjob/wide", f"--replicas={count}")
        assert done.returncode == 0, done.stderr
        assert jobs.spec("wide")["replicas"] == count
    for count, message in (
        (1, "less than minReplicas"),
        (5, "more than maxReplicas"),
        (0, "or equal to 1"),
    ):
        done = jobs.attempt("scale", "ej", "wide", f"--replicas={count}")
        assert done.returncode != 0 and message in done.stderr, done.stderr
    assert jobs.spec("wide")["replicas"] == 4


@pytest.mark.parametrize("sizes", [{"replicas": 2}, {"replicas": 2, "minReplicas": 1}, {"maxReplicas": 2}, {}])
def test_a_job_without_a_range_cannot_be_scaled(jobs: Jobs, sizes: dict[str, int]) -> None:
    """What it has for a range follows from `replicas`, and would move along."""
    assert jobs.create(elastic_job("narrow", **sizes)).returncode == 0
    done = jobs.attempt("scale", "ej", "narrow", "--replicas=1")
    assert done.returncode != 0 and "create it again with minReplicas and maxReplicas" in done.stderr, done.stderr
    assert jobs.attempt("annotate", "ej", "narrow", "a=b").returncode == 0


def test_the_server_keeps_the_definition_as_it_was_sent(cluster: Cluster) -> None:
    """So that whoever applies the same changes nothing, and quarrels with nobody."""
    assert cluster.kubectl.get("crd", NAME)["spec"]["versions"] == crd()["spec"]["versions"]


def test_kubectl_explains_lists_and_shows_it(jobs: Jobs) -> None:
    explained = jobs.cluster.kubectl("explain", "elasticjob.spec.restartPolicy")
    assert "ExitCode" in explained and "every other code ends the job" in " ".join(explained.split())
    assert "kubectl scale changes it" in " ".join(jobs.cluster.kubectl("explain", "ej.spec").split())
    assert jobs.create(elastic_job("shown", minReplicas=1, maxReplicas=3)).returncode == 0
    status = {"phase": "Running", "wanted": 2, "readyReplicas": 1, "message": "all is well"}
    patch = json.dumps({"status": status})
    done = jobs.attempt("patch", "ej", "shown", "--subresource=status", "--type=merge", f"--patch={patch}")
    assert done.returncode == 0, done.stderr
    header, line = (text.split() for text in jobs.attempt("get", "ej").stdout.splitlines())
    assert header == ["NAME", "MIN", "MAX", "WANTED", "READY", "STATE", "CAUSE", "AGE"]
    assert line[:6] == ["shown", "1", "3", "2", "1", "Running"]
    assert "all is well" in jobs.attempt("get", "ej", "--output=wide").stdout
    assert "elasticjob.petctl.dev/shown" in jobs.attempt("get", "all", "--output=name").stdout


END = {
    "node": "0",
    "pod": "done-node-0",
    "uid": "u-1",
    "message": "was preempted: for another",
    "cause": "preempted",
    "own": True,
}


def test_a_status_is_whole_and_says_what_kubectl_can_wait_for(jobs: Jobs) -> None:
    now = "2030-01-02T03:04:05Z"
    status = {
        "phase": "Succeeded",
        "message": "it ended well",
        "observedGeneration": 1,
        "conditions": [
            {
                "type": "Succeeded",
                "status": "True",
                "reason": "Ended",
                "message": "it ended well",
                "lastTransitionTime": now,
                "observedGeneration": 1,
            }
        ],
        "replicas": 2,
        "readyReplicas": 1,
        "selector": "petctl.dev/job=done,petctl.dev/role=node",
        "replicaStatuses": {"active": 1, "pending": 1, "succeeded": 0, "failed": 0},
        "wanted": 2,
        "room": {"size": 2, "since": now},
        "coordinators": 1,
        "nodes": 3,
        "cause": "preempted",
        "ends": [{**END, "time": now}],
        "kills": 1,
        "killedAt": now,
        "killsFrom": 3,
        "startTime": now,
        "completionTime": now,
        "exitCode": 0,
        "outcome": '{"outcome": {"state": "succeeded", "code": 0, "sentence": "it ended well"}, "finished": 1.0}',
    }
    assert jobs.create(elastic_job("done", replicas=2)).returncode == 0
    patch = json.dumps({"status": status})
    done = jobs.attempt("patch", "ej", "done", "--subresource=status", "--type=merge", f"--patch={patch}")
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert jobs.cluster.kubectl.get("ej", "done", jobs.there)["status"] == status
    assert jobs.attempt("wait", "--for=condition=Succeeded", "ej/done", "--timeout=10s").returncode == 0
    scale = jobs.cluster.kubectl.get("ej", "done", "--subresource=scale", jobs.there)
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 2, "selector": status["selector"]}
