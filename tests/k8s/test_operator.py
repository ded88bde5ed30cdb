"""What the operator does for ElasticJobs that kubectl made, on a real cluster; also when it is killed itself."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.k8s.cluster.cluster import Cluster
from tests.k8s.cluster.waiting import until
from tests.k8s.elasticjobs import defined
from tests.k8s.operators import operator
from tests.k8s.user import STEPS

Object = dict[str, Any]

pytestmark = [pytest.mark.root]


class Owner:
    """Somebody who makes ElasticJobs in one namespace, and looks."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.kubectl, self.there, self.image = cluster.kubectl, f"--namespace={namespace}", cluster.image("3.11")

    def make(self, name: str = "job", script: str = STEPS, container: Object | None = None, **spec: Any) -> None:
        """An ElasticJob, as a user writes it."""
        own = {"name": "trains", "image": self.image, "command": ["python3", "-u", "-c", script], **(container or {})}
        template = {"spec": {"containers": [own], "terminationGracePeriodSeconds": 12}}
        made = {"apiVersion": "petctl.dev/v1", "kind": "ElasticJob", "metadata": {"name": name}}
        self.kubectl.apply([{**made, "spec": {"template": template, **spec}}], self.there)

    def change(self, name: str = "job", **spec: Any) -> None:
        """What is wanted of it."""
        self.kubectl("patch", "elasticjob", name, "--type=merge", f"--patch={json.dumps({'spec': spec})}", self.there)

    def status(self, name: str = "job") -> Object:
        """As the operator wrote it."""
        found: Object = self.kubectl.get("elasticjob", name, self.there).get("status") or {}
        return found

    def until(self, what: Callable[[Object], Any], words: str, name: str = "job") -> Object:
        """The status once it is so."""
        until(lambda: what(self.status(name)), words, 90, 0.2)
        return self.status(name)

    def phase(self, wanted: str, name: str = "job") -> Object:
        """The status once the job is in that phase."""
        return self.until(lambda status: status.get("phase") == wanted, f"{name} is {wanted}", name)

    def ready(self, nodes: int, name: str = "job") -> Object:
        """The status once it runs on so many nodes."""
        return self.until(
            lambda s: s.get("phase") == "Running" and s["readyReplicas"] == nodes, f"{name} has {nodes} nodes", name
        )

    def pods(self, role: str = "", name: str = "job") -> list[Object]:
        """Those that are there, also while they go."""
        which = f"--selector=petctl.dev/job={name}" + (f",petctl.dev/role={role}" if role else "")
        items: list[Object] = self.kubectl.get("pods", which, self.there)["items"]
        return items

    def names(self, role: str = "node", name: str = "job") -> list[str]:
        """Those of pods that are not being deleted."""
        pods = self.pods(role, name)
        return sorted(p["metadata"]["name"] for p in pods if not p["metadata"].get("deletionTimestamp"))

    def stuck(self) -> list[str]:
        """Pods that no machine takes."""
        return [
            pod["metadata"]["name"]
            for pod in self.pods("node")
            for condition in pod["status"].get("conditions") or ()
            if (condition["type"], condition["status"]) == ("PodScheduled", "False")
        ]

    def last_step(self, pod: str) -> tuple[int, int, int, int]:
        """Step, world size, round and process of the last one that a node printed."""
        printed = self.kubectl.attempt("logs", pod, self.there).stdout  # nothing where it has not started yet
        lines = [line for line in printed.splitlines() if " step " in f" {line}"]
        words = lines[-1].partition("step ")[2].split() if lines else []
        if len(words) < 7:
            return -1, 0, 0, 0
        return int(words[0]), int(words[2].partition("/")[2]), int(words[4]), int(words[6])

    def stepping(self, pod: str, world: int, after: int = -1, later_round: int = 0) -> tuple[int, int, int, int]:
        """Its last step, once it steps in a world of that size beyond that step and that round."""

        def look() -> tuple[int, int, int, int] | None:
            found = self.last_step(pod)
            return found if found[1] == world and found[0] > after and found[2] > later_round else None

        found = until(look, f"{pod} steps with {world}", 60, 0.2)
        assert found
        return found

    def finish(self, name: str = "job") -> None:
        """Lets its workers end well."""
        for pod in self.names("node", name):
            self.kubectl("exec", pod, self.there, "--container=petctl", "--", "touch", "/petctl/state/finish")

    def left(self) -> list[str]:
        """Everything of petctl that is in the namespace."""
        kinds = "elasticjobs,pods,services,secrets,configmaps"
        return self.kubectl(
            "get", kinds, "--selector=app.kubernetes.io/managed-by=petctl", "--output=name", self.there
        ).split()


@pytest.fixture
def owner(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Owner]:
    """Somebody in whose namespace an operator is at work."""
    with operator(cluster, namespace, tmp_path):
        yield Owner(cluster, namespace)


def test_from_apply_to_delete(owner: Owner) -> None:
    owner.make(replicas=2, minReplicas=1, maxReplicas=3)
    status = owner.ready(2)
    assert owner.names() == ["job-node-0", "job-node-1"]
    assert owner.names("coordinator") == ["job-coordinator-0"]
    assert (status["coordinators"], status["nodes"], status["wanted"]) == (1, 2, 2)
    owner.stepping("job-node-0", 2)
    table = owner.kubectl("get", "ej", "job", owner.there).splitlines()
    assert table[0].split() == ["NAME", "MIN", "MAX", "WANTED", "READY", "STATE", "CAUSE", "AGE"]
    assert table[1].split()[:6] == ["job", "1", "3", "2", "2", "Running"]
    owner.finish()
    status = owner.phase("Succeeded")
    assert (status["exitCode"], status["message"]) == (0, "succeeded: all workers finished successfully")
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "Created": "True",
        "Running": "False",
        "Succeeded": "True",
    }
    about = ("events", "--field-selector=involvedObject.kind=ElasticJob", owner.there)
    wanted = {"ElasticJobRunning", "ElasticJobSucceeded", "SuccessfulCreatePod"}
    until(lambda: wanted <= {e["reason"] for e in owner.kubectl.get(*about)["items"]}, "the events", 60, 0.2)
    owner.kubectl("delete", "elasticjob", "job", owner.there)
    until(lambda: not owner.left(), "nothing is left", 60, 0.2)


def test_a_lost_node_is_replaced_at_once_and_a_lost_coordinator_costs_no_step(owner: Owner) -> None:
    owner.make(replicas=2, minReplicas=1, maxReplicas=2)
    owner.ready(2)
    first = owner.stepping("job-node-0", 2)[2]
    owner.kubectl("delete", "pod", "job-node-1", "--force", "--grace-period=0", owner.there)
    until(lambda: "job-node-1" in owner.names() or "job-node-2" in owner.names(), "another is made", 90, 0.1)
    # The pod's object goes before its process does: the round that lost it may step on for a moment.
    step, _, number, process = owner.stepping("job-node-0", 2, later_round=first)
    owner.ready(2)
    owner.kubectl("delete", "pod", "job-coordinator-0", "--force", "--grace-period=0", owner.there)
    until(lambda: owner.names("coordinator") == ["job-coordinator-1"], "another coordinator is made", 90, 0.1)
    owner.ready(2)
    later = owner.stepping("job-node-0", 2, step + 50)
    assert later[2:] == (number, process)  # the same worker, in the same round


def test_a_word_that_pods_do_not_have_is_told(owner: Owner) -> None:
    container = {"name": "trains", "image": owner.image, "command": ["true"]}
    template = {"spec": {"containers": [container], "nodeSelectr": {"gpu": "a100"}}}
    job = {"apiVersion": "petctl.dev/v1", "kind": "ElasticJob", "metadata": {"name": "job"}}
    owner.kubectl.apply([{**job, "spec": {"template": template}}], owner.there)
    status = owner.phase("Failed")
    assert "spec.template has fields that pods do not have: spec.nodeSelectr" in status["message"]
    assert owner.pods() == []


@pytest.mark.long
def test_a_node_that_no_machine_takes_is_not_waited_for(owner: Owner) -> None:
    """Three nodes want half of all processors each: there is room for two of them, or for one."""
    processors = min(int(node["status"]["allocatable"]["cpu"]) for node in owner.kubectl.get("nodes")["items"])
    container = {"resources": {"requests": {"cpu": f"{processors * 600}m"}}}
    owner.make(replicas=3, minReplicas=1, maxReplicas=3, container=container)
    until(lambda: any(owner.stuck()), "the scheduler has said no", 60, 0.2)
    began = time.monotonic()
    (first, *_) = sorted(set(owner.names()) - set(owner.stuck()))
    until(lambda: owner.last_step(first)[0] >= 0, "those that are there train", 60, 0.2)
    assert time.monotonic() - began < 20  # not the 30 s for which expected nodes are waited for
    assert owner.status()["absent"]


def test_scaling_goes_both_ways_and_bounds_hold(owner: Owner) -> None:
    owner.make(replicas=1, minReplicas=1, maxReplicas=3)
    owner.ready(1)
    owner.stepping("job-node-0", 1)
    owner.kubectl("scale", "elasticjob", "job", "--replicas=3", owner.there)
    owner.ready(3)
    owner.stepping("job-node-0", 3)
    owner.kubectl("scale", "elasticjob", "job", "--replicas=2", owner.there)
    owner.ready(2)
    survivors = owner.names()
    assert len(survivors) == 2
    assert owner.status()["wanted"] == 2
    owner.stepping(survivors[0], 2)
    refused = owner.kubectl.attempt("scale", "elasticjob", "job", "--replicas=4", owner.there)
    assert refused.returncode != 0
    assert "replicas" in refused.stderr


def test_suspending_removes_all_pods_and_resuming_starts_again(owner: Owner) -> None:
    owner.make(replicas=2)
    owner.ready(2)
    owner.stepping("job-node-0", 2)
    owner.change(suspend=True)
    owner.phase("Suspended")
    until(lambda: not owner.pods(), "its pods are gone", 60, 0.2)
    owner.change(suspend=False)
    owner.ready(2)
    owner.stepping("job-node-0", 2)
    assert owner.names("coordinator") == ["job-coordinator-1"]


def test_deadline_and_time_to_live(owner: Owner) -> None:
    owner.make(replicas=1, activeDeadlineSeconds=4, ttlSecondsAfterFinished=5, cleanPodPolicy="None")
    status = owner.phase("Failed")
    assert status["exitCode"] == 124
    assert "activeDeadlineSeconds" in status["message"]
    until(lambda: not owner.left(), "it is gone, with all that was its", 60, 0.2)


@pytest.mark.parametrize(("policy", "roles"), [("All", []), ("None", ["coordinator", "node"])])
def test_what_is_left_of_a_job_that_failed(owner: Owner, policy: str, roles: list[str]) -> None:
    owner.make(script="raise SystemExit(7)", replicas=1, backoffLimit=0, cleanPodPolicy=policy)
    status = owner.phase("Failed")
    assert status["exitCode"] == 7
    until(
        lambda: sorted(p["metadata"]["labels"]["petctl.dev/role"] for p in owner.pods()) == roles,
        "it is clean",
        60,
        0.2,
    )


def test_exit_codes_decide_whether_it_goes_on(owner: Owner) -> None:
    script = "import os, sys; sys.exit(0 if os.environ['PETCTL_ROUND'] > '1' else {})"
    owner.make("good", script.format(138), restartPolicy="ExitCode")
    owner.make("bad", script.format(3), restartPolicy="ExitCode")
    assert owner.phase("Succeeded", "good")["exitCode"] == 0
    assert owner.phase("Failed", "bad")["exitCode"] == 3


def test_what_no_machine_has_room_for_is_given_up_and_tried_again(owner: Owner) -> None:
    """Between one and three nodes of which each needs more than half a machine: there are two machines."""
    machines = owner.kubectl.get("nodes")["items"]
    if len(machines) != 2:
        pytest.skip("counts on two machines")
    cpu = min(float(_cores(machine["status"]["allocatable"]["cpu"])) for machine in machines)
    big = {"resources": {"requests": {"cpu": f"{int(cpu * 550)}m"}}}
    owner.make(container=big, minReplicas=1, maxReplicas=3)
    status = owner.until(lambda s: s.get("room") and s["replicas"] == 2, "one is given up")
    assert status["room"]["size"] == 2
    owner.ready(2)
    first, second = owner.names()
    owner.stepping(first, 2)
    owner.kubectl("delete", "pod", second, "--wait=false", owner.there)
    owner.until(lambda status: status["readyReplicas"] == 2, "the room of one that went is used")


def _cores(text: str) -> float:
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)


def test_the_same_name_again_at_once(owner: Owner) -> None:
    for _ in range(2):
        owner.make(replicas=2)
        owner.ready(2)
        owner.stepping(owner.names()[0], 2)
        owner.kubectl("delete", "elasticjob", "job", "--wait=false", owner.there)
        until(lambda: owner.kubectl.attempt("get", "ej", "job", owner.there).returncode != 0, "it is deleted", 90)


def test_another_ones_object_is_not_touched(owner: Owner) -> None:
    owner.kubectl("create", "configmap", "job", "--from-literal=mine=1", owner.there)
    owner.make(replicas=1)
    status = owner.until(lambda status: "not this job's" in status.get("message", ""), "it says what is in the way")
    assert "ConfigMap job" in status["message"] or "job is not" in status["message"]
    assert owner.names("coordinator") == []
    owner.kubectl("delete", "configmap", "job", owner.there)
    owner.ready(1)


def test_a_second_operator_takes_over_when_the_first_is_killed(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    owner = Owner(cluster, namespace)
    with operator(cluster, namespace, tmp_path) as first:
        owner.make(replicas=2, minReplicas=1, maxReplicas=2)
        owner.ready(2)
        owner.stepping("job-node-0", 2)
        log = tmp_path / "second.log"
        with log.open("wb") as file:
            second = subprocess.Popen(_words(cluster, namespace), stdout=file, stderr=file)
        try:
            until(lambda: b"waits to become leader" in log.read_bytes(), "the second waits")
            first.send_signal(signal.SIGKILL)
            first.wait()
            owner.change(replicas=1)
            killed = time.monotonic()
            until(lambda: b" became leader\n" in log.read_bytes(), "the second leads", 90)
            assert time.monotonic() - killed > 1
            owner.ready(1)
            (survivor,) = owner.names()
            assert owner.stepping(survivor, 1)
            assert owner.names("coordinator") == ["job-coordinator-0"]
        finally:
            second.terminate()
            second.wait(30)


@pytest.mark.long
def test_whoever_is_killed_at_any_write_is_replaced_by_one_that_ends_the_same(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """The life of a small job, once calm and recorded, and once for each moment before and after one of its writes."""
    with defined(cluster):
        calm, record = life(cluster, f"{namespace}-calm", tmp_path, -1)
        moments = range(2 * len(record))
        assert len(record) > 10
        with ThreadPoolExecutor(4) as several:
            ends = list(several.map(lambda m: life(cluster, f"{namespace}-{m}", tmp_path, m)[0], moments))
    differ = {m: {key: end[key] for key in end if end[key] != calm[key]} for m, end in zip(moments, ends, strict=True)}
    assert {moment: what for moment, what in differ.items() if what} == {}, calm


def life(cluster: Cluster, namespace: str, directory: Path, moment: int) -> tuple[Object, list[str]]:
    """How a job ends whose first operator is killed at that moment, and all that was written for it."""
    kubectl, record = cluster.kubectl, directory / f"writes-{moment}"
    record.touch()
    words = [sys.executable, "-m", "tests.k8s.killed_operator", str(record), str(moment)]
    kubectl("create", "namespace", namespace)
    try:
        kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={namespace}", "--timeout=60s")
        owner = Owner(cluster, namespace)
        owner.make(script="import time; time.sleep(0.5)", replicas=2, cleanPodPolicy="None")
        with (directory / f"operator-{moment}.log").open("wb") as log:
            first = subprocess.Popen([*words, *_words(cluster, namespace)[3:]], stdout=log, stderr=log)
            try:
                until(lambda: first.poll() is not None or _over(owner), f"killed at {moment}, or over", 120, 0.2)
            finally:
                first.kill()
                first.wait()
            kubectl("delete", "lease", "--all", f"--namespace={namespace}")  # it is dead: nobody need wait for that
            second = subprocess.Popen(_words(cluster, namespace), stdout=log, stderr=log)
            try:
                until(lambda: _over(owner), f"killed at {moment}: it ends", 120, 0.2)
                owner.until(lambda status: status["replicaStatuses"]["succeeded"] == 2, "its nodes have ended")
                return picture(owner), record.read_text().splitlines()
            finally:
                second.terminate()
                second.wait(30)
    finally:
        kubectl("delete", "namespace", namespace, "--wait=false")


def _over(owner: Owner) -> bool:
    return bool(owner.status().get("completionTime"))


def picture(owner: Owner) -> Object:
    """All that is there and stays, but for moments, and numbers that may have gaps."""
    found = owner.kubectl.get("pods,services,secrets,configmaps", "--selector=petctl.dev/job=job", owner.there)["items"]
    things = Counter(
        f"{item['kind']} {item['metadata']['labels'].get('petctl.dev/role', item['metadata']['name'])} "
        f"{item.get('status', {}).get('phase', '')}"
        for item in found
        if not item["metadata"].get("deletionTimestamp")
    )
    status = owner.status()
    kept = ("phase", "message", "exitCode", "replicas", "replicaStatuses", "wanted", "observedGeneration")
    conditions = sorted((c["type"], c["reason"]) for c in status["conditions"] if c["status"] == "True")
    return {"things": dict(things), "conditions": conditions, **{name: status.get(name) for name in kept}}


def _words(cluster: Cluster, namespace: str) -> list[str]:
    words = [sys.executable, "-m", "petctl.clusters.kubernetes.operator.run", "--kubeconfig", str(cluster.kubeconfig)]
    return [*words, "--namespace", namespace, "--lease-namespace", namespace]


@pytest.mark.long
def test_a_quota_is_told_and_does_not_make_it_hurry(owner: Owner) -> None:
    """Two nodes where the quota has room for a coordinator and one of them: it trains, and asks again with pauses."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}
    owner.kubectl.apply([quota], owner.there)
    until(lambda: owner.kubectl.get("quota", "few", owner.there)["status"].get("hard"), "the quota holds", 30)
    owner.make(replicas=2, minReplicas=1, maxReplicas=2)
    owner.until(lambda status: "exceeded quota" in status.get("message", ""), "it says so")
    owner.stepping("job-node-0", 1)
    before, begin = owner.status()["nodes"], time.monotonic()
    owner.stepping("job-node-0", 1, owner.last_step("job-node-0")[0] + 100)
    spent = time.monotonic() - begin
    assert owner.status()["nodes"] - before <= 2 + spent  # each attempt is counted
    raised = time.monotonic()
    owner.kubectl("delete", "quota", "few", owner.there)
    owner.ready(2)
    assert time.monotonic() - raised < 15  # it asks every 5 s, and then the pod has to start


@pytest.mark.long
@pytest.mark.timeout(420)
def test_an_operator_goes_on_when_the_api_server_is_back(own_cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    # Last in its file: it stops the API server itself, for everybody.
    owner, log, kubectl = Owner(own_cluster, namespace), tmp_path / "operator.log", own_cluster.kubectl
    control = own_cluster.machine("control")
    with operator(own_cluster, namespace, tmp_path) as process:
        owner.make(replicas=2, minReplicas=1, maxReplicas=3)
        owner.ready(2)
        step, _, *same = owner.stepping("job-node-0", 2)
        control.stop("kube-apiserver")
        try:
            until(lambda: b"lost leadership" in log.read_bytes(), "it leads no longer")
        finally:
            control.start_again("kube-apiserver")
        until(lambda: kubectl.attempt("get", "--raw", "/readyz").stdout == "ok", "the API server is back", 60, 0.2)
        until(lambda: log.read_bytes().count(b" became leader\n") == 2, "it leads again")
        kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s")
        assert process.poll() is None
        assert list(owner.stepping("job-node-0", 2, step + 50)[2:]) == same  # the same worker, in the same round
        owner.change(replicas=3)
        owner.ready(3)
        owner.stepping("job-node-0", 3)
        assert owner.names() == ["job-node-0", "job-node-1", "job-node-2"]
        assert owner.names("coordinator") == ["job-coordinator-0"]
