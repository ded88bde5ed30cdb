"""How the operator's process comes from what changed to what it does, in a server in memory."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest

from petctl.clusters.kubernetes.coordinator_client import CoordinatorClient
from petctl.clusters.kubernetes.names import NUMBER, OWNER
from petctl.clusters.kubernetes.operator import run
from petctl.clusters.kubernetes.operator.reconcile import AT_ONCE
from petctl.clusters.kubernetes.operator.run import Looks
from petctl.clusters.kubernetes.operator.runtime.health import Health
from petctl.clusters.kubernetes.operator.runtime.options import Options
from petctl.errors import PetctlError
from petctl.kube.api import Items
from petctl.kube.failures import Forbidden, Invalid, KubernetesError
from tests.unit.operator.held import CORE, JOBS, Held, Object, elastic_job

KEY = ("team", "hello")


@pytest.fixture
def server() -> Held:
    return Held()


@pytest.fixture
def looks(server: Held) -> Looks:
    """One that nobody has started: a test tells it what changed, and has it look."""
    return Looks(server.api, "", Health())


def changed(looks: Looks, server: Held) -> None:
    """All that the server has is known."""
    for path, thing in server.objects.items():
        if path.startswith(f"{CORE}/pods/"):
            looks.pods.put(thing)
        elif path.startswith(JOBS):
            looks.jobs.put(thing)


def machine(version: int, ready: str = "True", uid: str = "m") -> Object:
    about = {"name": "big", "uid": uid, "resourceVersion": str(version)}
    status = {"conditions": [{"type": "Ready", "status": ready}], "allocatable": {"cpu": "8"}}
    return {"metadata": about, "status": status}


def test_nodes_of_a_larger_job_that_had_the_name_are_stepped_over(looks: Looks, server: Held) -> None:
    for index in range(5):
        owner = {"kind": "ElasticJob", "name": "hello", "uid": "the earlier one", "controller": True}
        about = {"name": f"hello-node-{index}", "labels": {NUMBER: str(index), OWNER: "the earlier one"}}
        going = {"ownerReferences": [owner], "deletionTimestamp": "2026-01-02T03:04:06Z"}
        server.add(f"{CORE}/pods", {"kind": "Pod", "metadata": {**about, **going}})
    server.add(JOBS, elastic_job(replicas=2))
    changed(looks, server)
    looks._look(KEY)
    job = server.objects[f"{JOBS}/hello"]
    made = [name for name in ("hello-node-5", "hello-node-6") if f"{CORE}/pods/{name}" in server.objects]
    assert made == ["hello-node-5", "hello-node-6"]
    assert job["status"]["nodes"] == 2  # and no number was spent on names that are taken


@pytest.mark.timeout(30)
def test_a_huge_job_of_an_older_definition_costs_a_look_no_more_than_its_batch(looks: Looks, server: Held) -> None:
    job = elastic_job(minReplicas=1, maxReplicas=2_000_000_000)
    server.add(JOBS, {**job, "status": {"coordinators": 1, "nodes": 0}})
    changed(looks, server)
    again = looks._look(KEY)
    made = [path for path in server.objects if "-node-" in path]
    assert len(made) == AT_ONCE
    assert again is not None and again <= time.time()


def test_a_template_with_a_word_that_pods_do_not_have_fails_and_says_which(looks: Looks, server: Held) -> None:
    server.add(JOBS, elastic_job(replicas=1))
    said = 'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.nodeSelectr"'
    server.refusals[f"TRY {CORE}/pods/hello-node-0"] = Invalid(said)
    changed(looks, server)
    looks._look(KEY)
    status = server.objects[f"{JOBS}/hello"]["status"]
    assert (status["phase"], status["exitCode"]) == ("Failed", 2)
    assert "spec.template has fields that pods do not have: spec.nodeSelectr; delete the job" in status["message"]
    assert not [path for path in server.objects if "/pods/" in path]


@pytest.mark.parametrize("refusal", [Forbidden("exceeded quota: few"), Invalid("admission webhook: no dry run")])
def test_a_refusal_of_another_kind_is_left_to_the_pod_itself(
    looks: Looks, server: Held, refusal: KubernetesError
) -> None:
    server.add(JOBS, elastic_job(replicas=1))
    server.refusals[f"TRY {CORE}/pods/hello-node-0"] = refusal
    changed(looks, server)
    looks._look(KEY)
    assert f"{CORE}/pods/hello-node-0" in server.objects


def test_a_machine_that_has_gone_is_forgotten_and_is_news_when_it_comes_again(looks: Looks) -> None:
    def tell(kind: str, thing: Object) -> bool:
        """Whether others hear that there may be room."""
        looks._room_at = 0.0
        looks.machines._tell(looks.machines._take_in(kind, thing))
        return looks._room_at > 0

    assert tell("ADDED", machine(1))
    assert not tell("MODIFIED", machine(2))  # its heartbeat
    assert tell("MODIFIED", machine(3, "False"))
    assert tell("MODIFIED", machine(4))
    assert not tell("DELETED", machine(5))
    assert looks._rooms == {}
    assert tell("ADDED", machine(6, uid="another"))


def test_a_job_whose_name_another_has_is_forgotten(looks: Looks) -> None:
    first, second = (
        {**elastic_job(), "metadata": {"name": "hello", "namespace": "team", "uid": uid, "resourceVersion": version}}
        for uid, version in (("first", "5"), ("second", "8"))
    )
    for found, version in (([first], "6"), ([second], "9")):  # nobody heard of what was between the two lists
        items = Items(found)
        items.version = version
        looks.jobs._tell(looks.jobs._take_over(items, set()))
    assert list(looks._said) == ["second"]


def test_a_piece_for_the_coordinator_that_went_wrong_later_is_told(looks: Looks, server: Held) -> None:
    server.add(JOBS, elastic_job(replicas=1))
    changed(looks, server)
    looks._look(KEY)
    job = server.objects[f"{JOBS}/hello"]
    job["spec"]["coordinator"] = {"spec": {"containers": [{"name": "petctl", "command": ["sh"]}]}}
    del server.objects[f"{CORE}/pods/hello-coordinator-0"]
    again = Looks(server.api, "", Health())
    changed(again, server)
    with pytest.raises(PetctlError, match="command is reserved by petctl"):
        again._look(KEY)
    status: Any = server.objects[f"{JOBS}/hello"]["status"]
    assert "spec.coordinator.spec.containers: command is reserved by petctl" in status["message"]


def test_what_a_coordinator_refuses_is_one_line_and_tried_again(
    looks: Looks, server: Held, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "petctl.clusters.kubernetes.operator")
    tries = []

    def look(key: object) -> None:
        tries.append(key)
        if len(tries) == 2:
            looks._queue.close()
        raise PetctlError("hello is ending: cancelled by the user")

    monkeypatch.setattr(looks, "synced", lambda timeout: True)
    monkeypatch.setattr(looks, "_look", look)
    looks._queue.add(KEY)
    looks._run()
    assert tries == [KEY, KEY]
    assert [record.getMessage() for record in caplog.records] == [
        "team/hello: hello is ending: cancelled by the user"
    ] * 2
    assert not any(record.exc_info for record in caplog.records)


def test_a_quota_keeps_nodes_from_being_made_and_not_the_coordinator_from_being_told(
    looks: Looks, server: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scaled from one to four nodes where there is room for one more: that one is to take part."""
    server.add(JOBS, elastic_job(replicas=1, minReplicas=1, maxReplicas=4))
    changed(looks, server)
    looks._look(KEY)
    for path, pod in server.objects.items():
        if path.startswith(f"{CORE}/pods/"):
            pod["status"] = {"phase": "Running"}
    server.objects[f"{JOBS}/hello"]["spec"]["replicas"] = 4
    again, told = Looks(server.api, "", Health()), []
    changed(again, server)

    def ask(self: CoordinatorClient, job_id: str, pods: Items, call: str, patience: float, **params: Any) -> Object:
        told.append(params)
        return {"release": []}

    monkeypatch.setattr(CoordinatorClient, "ask", ask)
    server.refusals[f"POST {CORE}/pods/hello-node-2"] = Forbidden("exceeded quota: few")
    with pytest.raises(PetctlError, match="exceeded quota"):
        again._look(KEY)
    assert told == [{"wanted": 4, "nodes": ["0", "1", "2", "3"]}]
    status = server.objects[f"{JOBS}/hello"]["status"]
    assert (status["wanted"], status["message"]) == (4, "exceeded quota: few")
    assert f"POST {CORE}/pods/hello-node-3" not in server.asked  # nobody asks in vain for each of many


@pytest.mark.timeout(30)
def test_who_loses_the_lead_before_the_lists_are_there_does_not_go_on_waiting(
    server: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its looks would begin when the lists come, and another leads by then."""
    begun, stopped = threading.Event(), threading.Event()

    class Listing:
        """Looks whose lists never come."""

        def __init__(self, *words: object) -> None:
            self.synced = threading.Event().wait
            self.stop = stopped.set

        def start(self, workers: int) -> None:
            begun.set()

    monkeypatch.setattr(run, "Looks", Listing)
    health, lost = Health(), threading.Event()
    health.stands_by()
    leading = threading.Thread(target=run.Operator(server.api, Options(), health).lead, args=(lost,))
    leading.start()
    assert begun.wait(20)
    lost.set()
    leading.join(20)
    assert not leading.is_alive() and stopped.is_set()
    assert health.ready  # to lead again


def test_who_leads_without_lists_is_not_ready() -> None:
    health = Health()
    health.stands_by()
    health.takes_up()
    assert not health.ready and "petctl_operator_leading 1" in health.text()
    health.leads()
    assert health.ready
