"""petctl's verbs on ElasticJobs, whoever made them: everything is done with the documented role."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from petctl.text import counted
from tests.k8s.cluster.waiting import until
from tests.k8s.elasticjobs import defined
from tests.k8s.operators import operator
from tests.k8s.user import STEPS, User

pytestmark = [pytest.mark.root]


@pytest.fixture
def operated(user: User, tmp_path: Path) -> Iterator[User]:
    """A user in whose namespace an operator is at work."""
    with operator(user.cluster, user.namespace, tmp_path):
        user.configure(operator=True)
        yield user


def elastic_job(user: User, job: str) -> dict[str, Any]:
    return user.cluster.kubectl.get("elasticjob", job, user.there)


def by_kubectl(user: User, name: str, script: str = STEPS, **spec: Any) -> str:
    """An ElasticJob that petctl did not make; its name."""
    container = {"name": "trains", "image": user.cluster.image("3.11"), "command": ["python3", "-c", script]}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 12}}
    made = {"apiVersion": "petctl.dev/v1", "kind": "ElasticJob", "metadata": {"name": name}}
    user.cluster.kubectl.apply([{**made, "spec": {"template": template, **spec}}], user.there)
    return name


def test_a_job_runs_and_one_delete_removes_it(operated: User) -> None:
    (operated.project / "hello.py").write_text(
        "import os; print('hello', os.environ['RANK'], os.environ['WORLD_SIZE'])"
    )
    done = operated.petctl("run", "-c", "k8s", "-n", "2", "--name", "My.Job_1", "hello.py")
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["[0] hello 0 2", "[1] hello 1 2"]), done.stderr
    (listed,) = json.loads(operated.petctl("list", "-c", "k8s", "-o", "json").stdout)
    job = listed["id"]
    assert (listed["state"], listed["cluster"]) == ("succeeded", "k8s") and job.startswith("My.Job_1-")
    assert sorted(operated.petctl("logs", job).stdout.splitlines()) == ["[0] hello 0 2", "[1] hello 1 2"]
    again = operated.petctl("resubmit", job)
    assert again.returncode == 0, again.stderr
    other = again.stdout.strip()
    assert operated.petctl("wait", other).returncode == 0
    for one in (job, other):
        assert operated.petctl("rm", one).returncode == 0
    until(lambda: not operated.left(), "nothing is left")


def test_a_job_is_scaled_looked_into_and_cancelled(operated: User, tmp_path: Path) -> None:
    job = operated.submit("-n", "1:1:3", "steps.py")
    first = operated.running(job, 1)
    assert elastic_job(operated, job)["spec"]["replicas"] == 1
    assert "from 1 to 2" in operated.petctl("scale", job, "2").stdout
    second = operated.running(job, 2, after=first["round"])
    assert [node["name"] for node in second["nodes"]] == ["0", "1"]
    refused = operated.petctl("scale", job, "4")
    assert refused.returncode == 2 and "may have 1 to 3 nodes, not 4" in refused.stderr
    asked = operated.petctl("exec", "--node", "1", job, "--", "sh", "-c", "echo $PETCTL_NODE of $WORLD_SIZE in $PWD")
    assert re.fullmatch(r"1 of 2 in /petctl/state/code/\w+/?\n", asked.stdout), asked
    assert operated.petctl("token", "--file", str(tmp_path / "join.json"), job).returncode == 0
    assert json.loads((tmp_path / "join.json").read_text())["job"] == job
    assert "from 2 to 1" in operated.petctl("scale", job, "1").stdout
    operated.running(job, 1, after=second["round"])
    until(lambda: len(operated.pods(job, "node")) == 1, "the second pod is gone")
    assert operated.petctl("cancel", job).returncode == 0
    waited = operated.petctl("wait", job)
    assert waited.returncode == 130, waited.stderr
    assert operated.status(job)["state"] == "cancelled"


def test_a_job_made_with_kubectl_is_like_any_other(operated: User) -> None:
    job = by_kubectl(operated, "train", minReplicas=1, maxReplicas=2, replicas=1, backoffLimit=1)
    first = operated.running(job, 1)
    assert (first["id"], first["cluster"], first["restarts"]) == ("train", "k8s", 1)
    (listed,) = json.loads(operated.petctl("list", "-c", "k8s", "-o", "json").stdout)
    assert (listed["id"], listed["state"]) == (job, "running")
    assert operated.petctl("scale", job, "2").returncode == 0
    operated.running(job, 2, after=first["round"])
    assert "step" in operated.petctl("logs", "--tail", "1", job).stdout
    operated.finish(job)
    assert operated.ended(job)["state"] == "succeeded"
    again = operated.petctl("resubmit", job)
    assert again.returncode == 0, again.stderr
    other = again.stdout.strip()
    assert other.startswith("train-") and elastic_job(operated, other)["spec"]["maxReplicas"] == 2
    operated.running(other, 1)  # as many as the first began with
    assert operated.petctl("cancel", "--kill", other).returncode == 0
    operated.ended(other)
    for one in (job, other):
        assert operated.petctl("rm", one).returncode == 0
    until(lambda: not operated.left(), "nothing is left")


def test_forward_leads_to_a_port_of_a_node(operated: User) -> None:
    serve = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000, bind='127.0.0.1')"
    job = by_kubectl(operated, "serves", serve)
    operated.running(job, 1)
    assert "Directory listing" in operated.page(job, 8000)
    assert operated.petctl("cancel", "--kill", job).returncode == 0
    assert operated.ended(job)["state"] == "cancelled"


def test_the_end_is_known_when_all_pods_are_gone(operated: User) -> None:
    job = by_kubectl(operated, "fails", "import sys; sys.exit(7)", backoffLimit=0, cleanPodPolicy="All")
    status = operated.ended(job)
    until(lambda: not operated.pods(job, "coordinator") + operated.pods(job, "node"), "no pod is left")
    after = operated.status(job)
    assert (after["state"], after["exit_code"], after["finished"]) == ("failed", 7, status["finished"])


@pytest.fixture
def unattended(user: User) -> Iterator[User]:
    """A user in whose namespace there is no operator, though the cluster knows ElasticJobs."""
    with defined(user.cluster):
        user.configure(operator=True)
        yield user


def test_a_job_that_no_operator_sees_says_so_and_can_be_cancelled(unattended: User) -> None:
    user = unattended
    job = user.submit("steps.py")
    assert user.status(job)["state"] == "pending"
    until(lambda: "petctl operator install" in user.status(job)["sentence"], "somebody misses the operator")
    assert user.petctl("cancel", job).returncode == 0
    status = user.ended(job)
    assert (status["state"], status["exit_code"], status["sentence"]) == (
        "cancelled",
        130,
        "cancelled by the user before it started",
    )
    assert user.petctl("rm", job).returncode == 0
    until(lambda: not user.left(), "nothing is left")


def test_a_suspended_job_waits_and_can_be_cancelled(operated: User) -> None:
    job = by_kubectl(operated, "later", suspend=True)
    until(lambda: operated.status(job)["state"] == "queued", "it is queued")
    assert operated.status(job)["sentence"] == "queued: its ElasticJob is suspended"
    assert operated.petctl("cancel", job).returncode == 0
    assert operated.petctl("wait", job).returncode == 130
    until(lambda: elastic_job(operated, job)["status"].get("phase") == "Failed", "the operator knows it")


@pytest.mark.long
def test_a_quota_that_hinders_the_operator_is_named(operated: User) -> None:
    operated.limit_pods(2)
    job = operated.submit("-n", "1:2", "steps.py")
    words = "node 1: the namespace's quota does not allow its pod: exceeded quota: few"
    operated.running(job, 1)
    status = operated.told(job, "running on 1 node", words)
    assert [(node["name"], node["state"]) for node in status["nodes"]] == [("0", "running"), ("1", "pending")]
    assert operated.petctl("cancel", "--kill", job).returncode == 0
    assert operated.ended(job)["state"] == "cancelled"


def test_a_job_that_has_all_the_room_there_is_says_so(operated: User) -> None:
    port = {"ports": [{"containerPort": 9, "hostPort": 45997}]}  # which every machine has once
    operated.configure(operator=True, pod={"spec": {"containers": [port]}})
    most = len(operated.cluster.nodes)
    job = operated.submit("-n", f"1:{most + 1}", "steps.py")
    nodes = counted(most, "node")
    operated.told(job, f"running on {nodes}", f"node {most}: the cluster has room for {nodes} now")
    assert operated.petctl("cancel", "--kill", job).returncode == 0
    assert operated.ended(job)["state"] == "cancelled"


def test_a_rendered_job_is_started_by_kubectl_and_removed_by_petctl(operated: User) -> None:
    shown = operated.petctl("render", "-c", "k8s", "-n", "1:2", "steps.py")
    assert [found["kind"] for found in yaml.safe_load_all(shown.stdout)][-1] == "ElasticJob"
    rendered = operated.petctl("render", "-c", "k8s", "-n", "1", "--with-secrets", "steps.py")
    operated.cluster.kubectl("apply", "--filename=-", operated.there, text=rendered.stdout)
    job = next(
        found["metadata"]["name"] for found in yaml.safe_load_all(rendered.stdout) if found["kind"] == "ElasticJob"
    )
    operated.running(job, 1)
    operated.finish(job)
    assert operated.ended(job)["state"] == "succeeded"
    assert operated.petctl("rm", job).returncode == 0
    until(lambda: not operated.left(), "nothing is left")


def test_a_submission_that_was_cut_short_is_listed_and_removed(unattended: User) -> None:
    user = unattended
    asleep = "import petctl.clusters.kubernetes.payload as m, os\nm.new_credentials = lambda *words: os._exit(9)\n"
    script = asleep + "import sys; from petctl.cli.main import main; sys.argv = ['petctl', *sys.argv[1:]]; main()"
    words = [sys.executable, "-c", script, "submit", "-c", "k8s", "steps.py"]
    assert subprocess.run(words, cwd=user.project, env=user.environment).returncode == 9
    (listed,) = json.loads(user.petctl("list", "-c", "k8s", "-o", "json").stdout)
    assert listed["state"] == "queued" and "interrupted" in listed["sentence"]
    removed = user.petctl("rm", "--force", listed["id"])
    assert removed.returncode == 0, removed.stderr
    until(lambda: not user.left(), "nothing is left")
