"""Jobs on a real cluster, without operator: everything is done with the documented role, through the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
import yaml

from tests.k8s.cluster.waiting import until
from tests.k8s.gate import gate_of
from tests.k8s.user import User

pytestmark = [pytest.mark.root]


def test_a_job_runs_on_two_nodes_and_one_delete_removes_it(user: User) -> None:
    (user.project / "hello.py").write_text("import os; print('hello', os.environ['RANK'], os.environ['WORLD_SIZE'])")
    done = user.petctl("run", "-c", "k8s", "-n", "2", "--name", "My.Job_1", "hello.py")
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["[0] hello 0 2", "[1] hello 1 2"]), done.stderr
    (listed,) = json.loads(user.petctl("list", "-c", "k8s", "-o", "json").stdout)
    job = listed["id"]
    assert job.startswith("My.Job_1-") and listed["state"] == "succeeded"
    assert sorted(user.petctl("logs", job).stdout.splitlines()) == ["[0] hello 0 2", "[1] hello 1 2"]
    assert user.left()
    assert user.petctl("rm", job).returncode == 0
    until(lambda: not user.left(), "nothing is left")


@pytest.mark.long  # the server collects what nobody owns in its own time
def test_jobs_share_an_agent_and_one_with_a_time_to_live_goes_by_itself(user: User) -> None:
    stays = user.submit("--", "true")
    user.configure(ttl_after_finished="3s")
    goes = user.submit("--", "true")
    agents = [name for name in user.left() if name.startswith("ConfigMap/petctl.agent-")]
    assert len(agents) == 1
    assert not [name for name in user.left() if name.endswith(".agent")]  # of one job alone
    until(lambda: not [name for name in user.left() if goes in name], f"{goes} is gone, with all that it had", 90)
    assert agents[0] in user.left()
    assert user.petctl("rm", "--force", stays).returncode == 0
    until(lambda: not user.left(), "nothing is left, nor is the agent", 90)


def test_a_worker_of_python_3_9_that_fails_is_the_jobs_end(user: User) -> None:
    (user.project / "fails.py").write_text("import sys; print(sys.version); sys.exit(7)")
    image = user.cluster.image("3.9")
    done = user.petctl("run", "-c", "k8s", "--image", image, "--restarts", "1", "fails.py")
    assert done.returncode == 7, done.stderr
    assert done.stdout.count("3.9.") == 2
    (job,) = json.loads(user.petctl("list", "-c", "k8s", "-o", "json").stdout)
    assert (job["state"], job["exit_code"], job["error"]["code"], job["spent"]) == ("failed", 7, 7, 1)


def test_scale_up_and_down(user: User) -> None:
    job = user.submit("-n", "1:1:3", "steps.py")
    first = user.running(job, 1)
    assert "from 1 to 3" in user.petctl("scale", job, "3").stdout
    second = user.running(job, 3, after=first["round"])
    assert second["spent"] == 0
    assert user.petctl("scale", job, "2").returncode == 0
    third = user.running(job, 2, after=second["round"])
    assert [node["name"] for node in third["nodes"]] == ["0", "1"]
    until(lambda: len(user.pods(job, "node")) == 2, "the third pod is gone")
    assert user.petctl("scale", job, "4").returncode == 2
    user.finish(job)
    assert user.ended(job)["state"] == "succeeded"


@pytest.mark.long
def test_a_size_outlives_the_loss_of_all_pods(user: User) -> None:
    job = user.submit("-n", "1:1:3", "steps.py")
    first = user.running(job, 1)
    for size in ("3", "2"):
        assert user.petctl("scale", job, size).returncode == 0
    before = user.running(job, 2)
    assert before["round"] > first["round"]
    user.cluster.kubectl("delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false", user.there)
    until(lambda: user.status(job)["epoch"] > before["epoch"], "another coordinator", 90)
    after = user.running(job, 2)
    assert after["size"]["wanted"] == 2
    assert "already at 2" in user.petctl("scale", job, "2").stdout
    user.finish(job)
    assert user.ended(job)["state"] == "succeeded"


def test_a_replaced_coordinator_disturbs_nobody(user: User) -> None:
    job = user.submit("-n", "2", "steps.py")
    before = user.running(job, 2)
    until(lambda: len(user.steps(job)) == 2, "both step")
    steps = user.steps(job)
    (pod,) = user.pods(job, "coordinator")
    user.cluster.kubectl("delete", "pod", pod["metadata"]["name"], user.there)
    until(lambda: user.status(job)["epoch"] > before["epoch"], "another coordinator", 90)
    after = user.running(job, 2)
    assert (after["round"], after["spent"]) == (before["round"], 0)
    now = user.steps(job)
    assert {key: pid for key, (_, pid) in now.items()} == {key: pid for key, (_, pid) in steps.items()}
    assert all(now[key][0] > step for key, (step, _) in steps.items())
    user.finish(job)
    assert user.ended(job)["state"] == "succeeded"


def another(user: User, job: str, epoch: int) -> None:
    """Waits until a later coordinator has the job."""
    until(lambda: user.status(job)["epoch"] > epoch, "another coordinator", 90)
    user.running(job, 1)


@pytest.mark.long
@pytest.mark.timeout(420)
def test_the_fifth_loss_of_a_coordinator_costs_no_more_than_the_second(user: User) -> None:
    """The back-off of a Job would double: 10, 20, 40, 80 s, and nodes stop after 60 s without a coordinator."""
    job = user.submit("-n", "1", "steps.py")
    before, waits = user.running(job, 1), []
    for _ in range(5):
        epoch, began = user.status(job)["epoch"], time.monotonic()
        live = [pod for pod in user.pods(job, "coordinator") if pod["status"]["phase"] == "Running"]
        for pod in live:
            name = pod["metadata"]["name"]
            user.cluster.kubectl("delete", "pod", name, user.there, "--grace-period=1", "--wait=false")
        another(user, job, epoch)
        waits.append(time.monotonic() - began)
    assert max(waits) < 45, waits
    after = user.status(job)
    assert (after["round"], after["spent"]) == (before["round"], 0)
    user.finish(job)
    assert user.ended(job)["state"] == "succeeded"
    assert not [pod for pod in user.pods(job, "coordinator") if pod["status"]["phase"] in ("Pending", "Running")]


@pytest.mark.parametrize("how", ["--grace-period=0 --force", pytest.param("--grace-period=20", marks=pytest.mark.long)])
def test_a_deleted_node_is_replaced_and_costs_no_restart(user: User, how: str) -> None:
    job = user.submit("-n", "1:2:2", "steps.py")
    first = user.running(job, 2)
    pod = next(pod for pod in user.pods(job, "node") if pod["metadata"]["name"].startswith(f"{job}-node-0-"))
    user.cluster.kubectl("delete", "pod", pod["metadata"]["name"], user.there, "--wait=false", *how.split())
    until(lambda: user.status(job)["round"] > first["round"], "the survivor goes on")
    third = user.running(job, 2, after=first["round"])  # the replacement may come before the survivor has gone on
    assert (third["spent"], [node["name"] for node in third["nodes"]]) == (0, ["0", "1"])
    user.finish(job)
    assert user.ended(job)["state"] == "succeeded"


def test_a_pod_made_by_hand_takes_part(user: User) -> None:
    job = user.submit("-n", "1:1:2", "steps.py")
    first = user.running(job, 1)
    template = user.cluster.kubectl.get("job", f"{job}-node", user.there)["spec"]["template"]
    template["metadata"]["labels"] = {
        name: value for name, value in template["metadata"]["labels"].items() if name.startswith("petctl.dev/")
    }
    template["metadata"]["name"] = "by-hand"
    user.cluster.kubectl.apply([{"apiVersion": "v1", "kind": "Pod", **template}], user.there)
    until(lambda: len(user.status(job)["nodes"]) == 2, "the pod has joined")
    standby = next(node for node in user.status(job)["nodes"] if node["name"] != "0")
    assert standby["name"].startswith("by-hand")
    assert user.status(job)["round"] == first["round"]  # nobody wanted it yet
    assert user.petctl("cancel", job).returncode == 0
    assert user.ended(job)["state"] == "cancelled"


def test_a_quota_on_limits_is_told_and_kept_to(user: User) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "limits"}}
    user.cluster.kubectl.apply([{**quota, "spec": {"hard": {"limits.cpu": "4"}}}], user.there)
    hard = ("get", "resourcequota", "limits", user.there, "--output=jsonpath={.status.hard}")
    until(lambda: "limits.cpu" in user.cluster.kubectl(*hard), "the quota holds")
    job = user.submit("-n", "1", "steps.py")
    user.told(job, "must specify limits.cpu", "kubernetes.coordinator for the coordinator")
    assert user.petctl("cancel", job).returncode == 0
    limits = {"limits": {"cpu": "1"}}
    user.configure(**limits, coordinator={"spec": {"containers": [{"resources": limits}]}})
    job = user.submit("-n", "1", "steps.py")
    user.running(job, 1)
    user.finish(job)
    assert user.ended(job)["state"] == "succeeded"


def test_a_job_that_cannot_start_says_why_and_can_be_cancelled(user: User) -> None:
    job = user.submit("--image", "petctl.test/nobody:1", "steps.py")
    until(lambda: "the image petctl.test/nobody:1 is not available" in user.status(job)["sentence"], "it says why")
    assert user.status(job)["state"] == "starting"
    assert user.petctl("cancel", job).returncode == 0
    status = user.ended(job)
    assert (status["state"], status["exit_code"]) == ("cancelled", 130)
    assert user.petctl("rm", job).returncode == 0
    until(lambda: not user.left(), "nothing is left")


def test_nodes_that_no_machine_takes_say_so(user: User) -> None:
    user.configure(pod={"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}})
    job = user.submit("-n", "2", "steps.py")
    words = "nodes 0, 1: no machine of the cluster can take it: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu"
    status = user.told(job, words)
    assert status["state"] == "starting"
    assert [(node["name"], node["state"]) for node in status["nodes"]] == [("0", "pending"), ("1", "pending")]
    assert user.petctl("cancel", job).returncode == 0
    assert user.ended(job)["state"] == "cancelled"


@pytest.mark.long
def test_a_node_that_no_machine_takes_is_not_waited_for(user: User) -> None:
    """Three nodes want more than half of a machine's processors each: there is room for two of them, or for one."""
    machines = user.cluster.kubectl.get("nodes")["items"]
    processors = min(int(machine["status"]["allocatable"]["cpu"]) for machine in machines)
    requests = {"cpu": f"{processors * 600}m"}
    user.configure(pod={"spec": {"containers": [{"resources": {"requests": requests}}]}})
    job = user.submit("-n", "1:3:3", "steps.py")
    user.told(job, "no machine of the cluster can take it")
    until(lambda: any(node["state"] not in ("pending", "starting") for node in user.status(job)["nodes"]), "one joined")
    began = time.monotonic()
    until(lambda: user.status(job)["state"] == "running", "those that are there train")
    assert time.monotonic() - began < 20  # not the 30 s for which expected nodes are waited for
    states = [node["state"] for node in user.status(job)["nodes"]]
    assert "running" in states and "pending" in states, states
    assert user.petctl("cancel", job).returncode == 0
    assert user.ended(job)["state"] == "cancelled"


def test_nodes_whose_image_cannot_be_had_say_so(user: User) -> None:
    user.configure(pod={"spec": {"containers": [{"image": "petctl.test/nobody:1"}]}})
    job = user.submit("steps.py")
    user.told(job, "node 0: the image petctl.test/nobody:1 is not available")
    assert user.petctl("cancel", job).returncode == 0


def test_a_python_that_the_image_does_not_have_is_named(user: User) -> None:
    user.configure(python="python9")
    job = user.submit("steps.py")
    status = user.told(job, "cannot start", "python9")
    assert status["state"] == "starting"
    assert user.petctl("cancel", job).returncode == 0


def test_a_volume_that_cannot_be_had_is_named(user: User) -> None:
    volume = {"name": "keys", "secret": {"secretName": "missing"}}
    mount = {"volumeMounts": [{"name": "keys", "mountPath": "/keys"}]}
    user.configure(pod={"spec": {"volumes": [volume], "containers": [mount]}})
    job = user.submit("steps.py")
    user.told(job, "node 0: it cannot start: MountVolume.SetUp failed", 'secret "missing" not found')
    assert user.petctl("cancel", job).returncode == 0


def test_a_quota_that_allows_no_further_pod_is_named(user: User) -> None:
    user.limit_pods(2)
    job = user.submit("-n", "1:2:2", "steps.py")
    user.running(job, 1)
    status = user.told(job, "running on 1 node", "node 1: the namespace's quota does not allow its pod: exceeded")
    assert [(node["name"], node["state"]) for node in status["nodes"]] == [("0", "running"), ("1", "pending")]
    second = user.submit("steps.py")  # not even its coordinator
    status = user.told(second, "waiting: the namespace's quota does not allow its pod: exceeded quota: few")
    assert (status["state"], status["nodes"]) == ("starting", [])
    for one in (job, second):
        assert user.petctl("cancel", one).returncode == 0


def test_a_pod_that_the_namespaces_security_refuses_is_named(user: User) -> None:
    user.cluster.kubectl("label", "namespace", user.namespace, "pod-security.kubernetes.io/enforce=restricted")
    user.configure(pod={"spec": {"containers": [{"securityContext": {"privileged": True}}]}})
    job = user.submit("steps.py")
    user.told(job, "node 0: the namespace's pod security does not allow its pod: violates PodSecurity", "privileged")
    assert user.petctl("cancel", job).returncode == 0


def test_secrets_reach_workers_and_no_object_that_others_read(user: User) -> None:
    assert user.petctl("secret", "set", "-c", "k8s", "key", text="s3cret-value").returncode == 0
    (user.project / "shows.py").write_text("import os; print('got', os.environ['KEY'][:2])")
    done = user.petctl("run", "-c", "k8s", "--secret", "KEY=key", "shows.py")
    assert (done.returncode, done.stdout) == (0, "got s3\n"), done.stderr
    kinds = user.cluster.kubectl("get", "jobs,pods,configmaps", "--output=yaml", user.there)
    assert "s3cret-value" not in kinds
    missing = user.petctl("run", "-c", "k8s", "--secret", "KEY=nokey", "shows.py")
    assert missing.returncode == 2 and "there is no secret 'nokey'" in missing.stderr


def test_only_the_coordinator_has_the_key_and_no_pod_has_rights(user: User) -> None:
    job = user.submit("steps.py")
    user.running(job, 1)
    (node,) = user.pods(job, "node")
    seen = yaml.safe_dump([volume for volume in node["spec"]["volumes"] if "secret" in volume])
    assert "join.json" in seen and "tls.key" not in seen
    for pod in (node, *user.pods(job, "coordinator")):
        assert pod["spec"]["automountServiceAccountToken"] is False
    assert user.petctl("cancel", job).returncode == 0
    user.ended(job)


def test_forward_leads_to_a_port_of_a_node(user: User) -> None:
    (user.project / "serve.py").write_text(
        "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000, bind='127.0.0.1')"
    )
    job = user.submit("serve.py")
    user.running(job, 1)
    assert "serve.py" in user.page(job, 8000)
    assert user.petctl("cancel", "--kill", job).returncode == 0
    user.ended(job)


def test_a_watch_begins_and_goes_on_while_the_server_is_away(user: User) -> None:
    job = user.submit("steps.py")
    user.running(job, 1)
    words = [sys.executable, "-m", "petctl", "status", "--watch", job]
    with gate_of(user.kubeconfig) as gate:
        gate.shut()
        with subprocess.Popen(
            words, cwd=user.project, env=user.environment, stdout=subprocess.PIPE, text=True
        ) as watch:
            try:
                until(lambda: gate.refused >= 2, "it has asked twice, in vain")
                gate.open()
                assert watch.stdout is not None
                assert "running on 1 node" in watch.stdout.readline()
                gate.shut()
                refused = gate.refused
                until(lambda: gate.refused > refused, "it has asked again")
                gate.open()
                assert user.petctl("cancel", "--kill", job).returncode == 0
                assert "cancelled" in watch.stdout.read().splitlines()[-1]
                assert watch.wait(90) == 0
            finally:
                watch.kill()


def test_the_coordinators_pod_passes_the_restricted_pod_security(user: User) -> None:
    job = user.submit("steps.py")
    user.running(job, 1)
    (pod,) = user.pods(job, "coordinator")
    described = {"apiVersion": "v1", "kind": "Pod", "spec": pod["spec"], "metadata": {"name": "again"}}
    described["spec"].pop("nodeName")
    user.cluster.kubectl("label", "namespace", user.namespace, "pod-security.kubernetes.io/enforce=restricted")
    create = ("create", "--dry-run=server", "--filename=-", user.there)
    user.cluster.kubectl(*create, text=json.dumps(described))
    described["spec"]["containers"][0].pop("securityContext")
    refused = user.cluster.kubectl.attempt(*create, text=json.dumps(described))
    assert "violates PodSecurity" in refused.stderr  # so the first answer meant something
    assert user.petctl("cancel", "--kill", job).returncode == 0
    user.ended(job)


def test_a_job_without_an_image_is_refused(user: User) -> None:
    (user.project / "petctl.yaml").write_text(json.dumps({"clusters": {"k8s": {"namespace": user.namespace}}}))
    done = user.petctl("run", "-c", "k8s", "steps.py")
    assert done.returncode == 2 and "--image" in done.stderr
    assert not user.left()
