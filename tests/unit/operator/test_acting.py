"""What the operator asks of the server when it does what was decided."""

from __future__ import annotations

import pytest

from petctl.clusters.kubernetes.operator.apply import Acting, Done, StepBlocked
from petctl.clusters.kubernetes.operator.elasticjob import ElasticJob, read_job
from petctl.clusters.kubernetes.operator.observation import Seen
from petctl.clusters.kubernetes.operator.reconcile import decide
from petctl.clusters.kubernetes.operator.runtime.cache import Cache
from petctl.kube.failures import Conflict, Forbidden
from tests.unit.operator.held import CORE, JOBS, Held, elastic_job

NOW = 1_800_000_000.0
PODS = f"{CORE}/pods"
BUDGETS = "/apis/policy/v1/namespaces/team/poddisruptionbudgets"


@pytest.fixture
def server() -> Held:
    return Held()


def act(server: Held) -> Done:
    """One look of an operator that has just begun, and what it leads to."""
    jobs, pods, budgets = (Cache(server.api, path, "", lambda thing: None) for path in (JOBS, PODS, BUDGETS))
    for path, thing in server.objects.items():
        if path.startswith(f"{PODS}/"):
            pods.put(thing)
    job, service = found(server), f"{CORE}/services/hello" in server.objects
    kept = server.objects.get(f"{BUDGETS}/hello", {}).get("spec", {}).get("minAvailable", 0)
    decision = decide(Seen(job, pods.of(job.uid), service, kept=kept), NOW)
    return Acting(server.api, jobs, pods, budgets).carry_out(job, decision)


def found(server: Held) -> ElasticJob:
    return read_job(server.objects[f"{JOBS}/hello"])


def asked(server: Held) -> list[str]:
    """Without the events, which may be lost."""
    return [words.replace(CORE, "").replace(JOBS, "") for words in server.asked if not words.endswith("/events")]


def pods_of(server: Held) -> list[str]:
    return sorted(path.rpartition("/")[2] for path in server.objects if path.startswith(f"{PODS}/"))


def test_a_new_job_takes_one_request_for_each_object(server: Held) -> None:
    server.add(JOBS, elastic_job(replicas=2))
    act(server)
    assert asked(server) == [
        "TRY /pods/hello-node-0",  # does the server know all words of its template?
        "TRY /pods/hello-coordinator-0",
        "GET /configmaps/hello",  # has somebody submitted it?
        "POST /secrets/hello",
        "POST /configmaps/hello.agent",
        "POST /configmaps/hello.agent-rest",
        "POST /configmaps/hello",
        "POST /services/hello",
        "PATCH /hello/status",
        "LIST /pods",  # is there a coordinator that the cache has not heard of?
        "POST /pods/hello-coordinator-0",
        "POST /pods/hello-node-0",
        "POST /pods/hello-node-1",
        f"POST {BUDGETS}/hello",
    ]


def test_a_budget_follows_the_size(server: Held) -> None:
    server.add(JOBS, elastic_job(replicas=3, minReplicas=1, maxReplicas=4))
    act(server)
    made = server.objects[f"{BUDGETS}/hello"]
    owner, job = made["metadata"]["ownerReferences"][0], found(server)
    assert (made["spec"]["minAvailable"], owner["uid"]) == (2, job.uid)
    nodes = [server.objects[f"{PODS}/hello-node-{index}"]["metadata"]["labels"] for index in range(3)]
    assert all(made["spec"]["selector"]["matchLabels"].items() <= labels.items() for labels in nodes)
    server.objects[f"{JOBS}/hello"]["spec"]["replicas"] = 4
    act(server)
    assert server.objects[f"{BUDGETS}/hello"]["spec"]["minAvailable"] == 3
    server.objects[f"{JOBS}/hello"]["spec"]["suspend"] = True
    act(server)
    assert f"{BUDGETS}/hello" not in server.objects


def test_a_budget_that_cannot_be_made_keeps_nobody_from_training(server: Held) -> None:
    server.add(JOBS, elastic_job(replicas=2))
    server.refusals[f"POST {BUDGETS}/hello"] = Forbidden("may not create poddisruptionbudgets")
    assert act(server).obstacle is None
    assert pods_of(server) == ["hello-coordinator-0", "hello-node-0", "hello-node-1"]
    told = [thing for path, thing in server.objects.items() if "/events/" in path]
    assert [event["message"] for event in told if event["reason"] == "Unprotected"] == [
        "evictions are not limited: may not create poddisruptionbudgets"
    ]


def test_the_next_coordinator_reads_the_record_once(server: Held) -> None:
    server.add(JOBS, elastic_job(replicas=1))
    act(server)
    del server.objects[f"{PODS}/hello-coordinator-0"]
    server.asked.clear()
    act(server)
    assert [words for words in asked(server) if "configmaps" in words] == ["GET /configmaps/hello"]
    assert pods_of(server) == ["hello-coordinator-1", "hello-node-0"]


def test_numbers_that_were_counted_and_never_given_leave_a_gap_and_nothing_else(server: Held) -> None:
    """Killed when the status was written, and before the coordinator's pod was made."""
    server.add(JOBS, elastic_job(replicas=2))
    server.refusals[f"POST {PODS}/hello-coordinator-0"] = Conflict("killed here")
    with pytest.raises(Conflict, match="killed here"):
        act(server)
    before = found(server).status
    assert (before["coordinators"], before["nodes"], before["phase"]) == (1, 2, "Starting")
    for _ in range(2):
        act(server)
    after = found(server).status
    assert (after["coordinators"], after["nodes"]) == (2, 4)
    assert pods_of(server) == ["hello-coordinator-1", "hello-node-0", "hello-node-1"]
    for name in ("phase", "wanted", "conditions", "startTime", "selector"):
        assert after[name] == before[name]


def test_a_node_that_the_namespace_refuses_is_an_obstacle_to_that_alone(server: Held) -> None:
    server.add(JOBS, elastic_job(replicas=2))
    server.refusals[f"POST {PODS}/hello-node-0"] = Forbidden("exceeded quota")
    assert str(act(server).obstacle) == "exceeded quota"
    assert pods_of(server) == ["hello-coordinator-0"]
    server.refusals.clear()
    assert act(server).obstacle is None
    assert pods_of(server) == ["hello-coordinator-0", "hello-node-0", "hello-node-1"]


def test_a_coordinator_that_the_namespace_refuses_ends_the_look(server: Held) -> None:
    server.add(JOBS, elastic_job(replicas=1))
    server.refusals[f"POST {PODS}/hello-coordinator-0"] = Forbidden("exceeded quota")
    with pytest.raises(StepBlocked, match="exceeded quota"):
        act(server)
    assert pods_of(server) == []  # nodes would only take the room that it needs


def test_what_is_another_ones_is_an_obstacle_and_is_not_touched(server: Held) -> None:
    server.add(JOBS, elastic_job(replicas=1))
    server.add(f"{CORE}/configmaps", {"kind": "ConfigMap", "metadata": {"name": "hello"}, "data": {"mine": "1"}})
    with pytest.raises(StepBlocked, match="the ConfigMap hello is not this job's"):
        act(server)
    assert not [words for words in server.asked if words.startswith(("POST", "PATCH", "DELETE"))]
