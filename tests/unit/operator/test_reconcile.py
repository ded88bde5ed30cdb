"""What the operator decides, in a played cluster."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from petctl.clusters.kubernetes.elastic_jobs import MOST_NODES
from petctl.clusters.kubernetes.job_status import OUTCOME
from petctl.clusters.kubernetes.names import NUMBER
from petctl.clusters.kubernetes.operator.actions import Announce, CreateNode
from petctl.clusters.kubernetes.operator.completion import LINGER
from petctl.clusters.kubernetes.operator.failure_history import KEPT
from petctl.clusters.kubernetes.operator.pods import number_of
from petctl.clusters.kubernetes.operator.reconcile import AT_ONCE, GIVE_UP, TRY_AGAIN, decide
from petctl.clusters.kubernetes.pods.manifests import LEFT
from petctl.kube.objects import written
from tests.unit.operator.world import Killed, World

ONE = {"name": "A", "value": "1"}


def settled(**spec: Any) -> World:
    world = World(**spec)
    world.settle()
    return world


def test_a_new_job_gets_a_coordinator_and_its_nodes() -> None:
    world = World(replicas=2)
    world.look()
    assert world.names == ["hello-coordinator-0", "hello-node-0", "hello-node-1"]
    assert world.prepared
    assert world.service
    assert world.status["phase"] == "Starting"
    world.run()
    world.look()
    assert world.status["phase"] == "Running"
    assert world.status["message"] == "2 of 2 nodes run"
    assert world.status["replicas"] == world.status["readyReplicas"] == 2
    assert world.holds("Running")
    assert world.told == []  # its record says so


def test_a_large_job_is_made_in_batches_so_that_others_have_their_turn() -> None:
    world = World(replicas=3 * AT_ONCE, minReplicas=1, maxReplicas=MOST_NODES)
    decision = decide(world.seen(), world.now)
    assert sum(isinstance(step, CreateNode) for step in decision.steps) == AT_ONCE
    assert decision.look_at == world.now
    world.settle()
    assert len(world.nodes()) == 3 * AT_ONCE and world.status["nodes"] == 3 * AT_ONCE


def test_a_coordinator_hears_of_all_nodes_that_are_to_come_with_the_first_batch() -> None:
    world = settled(room=1000, replicas=1, minReplicas=1, maxReplicas=MOST_NODES)
    world.job["spec"]["replicas"] = 2 * AT_ONCE
    world.settle()
    assert [(told.wanted, len(told.nodes)) for told in world.told] == [(2 * AT_ONCE, 2 * AT_ONCE)]


def test_no_further_batch_is_made_while_no_machine_takes_the_last() -> None:
    world = World(room=5, minReplicas=1, maxReplicas=MOST_NODES)
    world._carry_out(decide(world.seen(), world.now))
    world.run()
    world.settle()
    assert len(world.nodes()) == AT_ONCE
    world.now += GIVE_UP
    world.settle()
    assert len(world.nodes()) == 5


@pytest.mark.parametrize("sizes", [{"maxReplicas": 5_000_000}, {"replicas": MOST_NODES + 1}])
def test_a_job_that_is_too_large_fails_at_once_where_the_definition_is_an_old_one(sizes: dict[str, int]) -> None:
    world = World(**sizes)
    world.settle()
    assert world.pods == {} and world.holds("Failed")
    assert world.status["message"] == f"failed: at most {MOST_NODES} nodes are possible, not {max(sizes.values())}"


def test_a_second_look_does_nothing() -> None:
    world = settled(replicas=2)
    writes = world.writes
    world.look()
    assert world.writes == writes


def test_what_a_pod_is_told_rises_with_every_pod() -> None:
    world = settled(replicas=2)
    for made in (2, 3, 4):
        world.delete(max(world.nodes(), key=number_of)["metadata"]["name"])
        world.settle()
        assert sorted(map(number_of, world.nodes())) == [0, made]


def test_the_successor_of_a_node_does_not_wait_for_its_end() -> None:
    world = settled(replicas=2)
    world.delete("hello-node-0")
    world.look()
    assert "hello-node-2" in world.names
    world.run()
    world.look()
    assert world.status["readyReplicas"] == 2
    world.vanish()
    world.look()
    assert world.names == ["hello-coordinator-0", "hello-node-1", "hello-node-2"]


def test_the_coordinator_is_replaced_at_once_and_has_a_higher_number() -> None:
    world = settled(replicas=1)
    world.delete("hello-coordinator-0")
    world.look()
    assert world.status["phase"] == "Recovering"
    assert "hello-coordinator-1" in world.names
    command = world.pods["hello-coordinator-1"]["spec"]["containers"][0]["command"]
    assert "--nobody" not in command
    world.settle()
    assert world.names == ["hello-coordinator-1", "hello-node-0"]
    assert world.status["phase"] == "Running"


def test_a_coordinator_that_came_late_goes_when_the_newer_one_runs() -> None:
    world = settled(replicas=1)
    newer = copy.deepcopy(world.pods["hello-coordinator-0"])
    newer["metadata"] |= {"name": "hello-coordinator-1", "uid": "p-1"}
    newer["metadata"]["labels"][NUMBER] = "1"
    newer["status"]["phase"] = "Pending"
    world.pods["hello-coordinator-1"] = newer
    world.look()
    world.vanish()
    assert "hello-coordinator-0" in world.names  # nobody else leads the nodes yet
    newer["status"]["phase"] = "Running"
    world.settle()
    assert world.names == ["hello-coordinator-1", "hello-node-0"]


@pytest.mark.parametrize(
    ("code", "reason", "waits"),
    [(LEFT, "", False), (137, "", False), (143, "", False), (1, "Evicted", False), (1, "", True), (2, "", True)],
)
def test_a_node_that_broke_at_its_start_waits(code: int, reason: str, waits: bool) -> None:
    world = settled(replicas=1)
    world.now += 1
    world.end("hello-node-0", code, reason=reason)
    world.look()
    assert ("hello-node-1" not in world.names) is waits
    if waits:
        assert world.look_at is not None
        world.now = world.look_at
        world.settle()
    assert world.status["readyReplicas"] == 1 or not waits


def kill(world: World) -> None:
    """All nodes that run are killed for memory, in the same second."""
    for pod in world.nodes():
        if pod["status"]["phase"] == "Running":
            world.end(pod["metadata"]["name"], 137, how="OOMKilled")


def next_life(world: World) -> None:
    """Until the operator has replaced them; how long it waited is told."""
    world.look()
    world.now = max(world.now + 1, world.look_at or 0.0)
    world.settle()
    world.now += 1


def test_pods_that_are_killed_for_memory_are_counted_as_failures_and_end_the_job() -> None:
    world = settled(replicas=2, backoffLimit=2)
    world.now += 1
    for kills in (1, 2):
        kill(world)
        next_life(world)
        assert (world.status["kills"], world.status["readyReplicas"]) == (kills, 2)  # two nodes, one failure
        assert (world.status["phase"], world.status["cause"]) == ("Running", "host-out-of-memory")
    kill(world)
    world.settle()
    assert world.holds("Failed") and world.status["exitCode"] == 137
    outcome = json.loads(world.status["outcome"])["outcome"]
    assert outcome["sentence"] == (
        "pod hello-node-0 of node 0 was killed: it used more memory than there was for it (OOMKilled), after 2 restarts"
    )
    assert world.status["cause"] == "host-out-of-memory"
    nodes = [0, 1, 2, 3, 0, 1]
    assert [entry["pod"] for entry in world.status["ends"]] == [f"hello-node-{index}" for index in nodes]
    assert world.status["kills"] == 3


def test_what_keeps_being_killed_for_memory_waits_longer_each_time() -> None:
    world = settled(replicas=1, backoffLimit=9)
    waits = []
    for _ in range(3):
        world.now += 1
        kill(world)
        world.look()
        assert world.look_at is not None and world.status["message"].startswith("fewer nodes run than it needs")
        assert "was killed: it used more memory than there was for it (OOMKilled)" in world.status["message"]
        waits.append(world.look_at - world.now)
        world.now = world.look_at
        world.settle()
    assert waits == [2.0, 4.0, 8.0]


def test_a_job_that_never_restarts_ends_when_a_pod_is_killed_for_memory() -> None:
    world = settled(replicas=1, restartPolicy="Never")
    world.now += 1
    kill(world)
    world.settle()
    assert world.holds("Failed")


def test_a_pod_that_others_made_end_is_remembered_and_not_counted() -> None:
    world = settled(replicas=2, backoffLimit=0)
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    world.pods["hello-node-1"]["status"]["conditions"] = [{**condition, "lastTransitionTime": written(world.now)}]
    world.delete("hello-node-1")
    world.look()
    world.look()
    world.vanish()
    world.settle()
    (end,) = world.status["ends"]
    assert (end["node"], end["pod"], end["cause"]) == ("1", "hello-node-1", "preempted")
    assert world.status["phase"] == "Running" and "kills" not in world.status
    world.end("hello-node-0", 1)  # for a reason of its own
    world.look()
    assert world.status["message"] == "fewer nodes run than it needs; 1 of 2 nodes run"
    world.finish()
    world.settle()
    assert "cause" not in world.status


def test_a_cause_goes_when_all_nodes_run_again() -> None:
    world = settled(replicas=2, minReplicas=1)
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    world.pods["hello-node-1"]["status"]["conditions"] = [{**condition, "lastTransitionTime": written(world.now)}]
    world.delete("hello-node-1")
    world.look()
    assert (world.status["phase"], world.status["cause"]) == ("Running", "preempted")
    world.settle()
    assert world.status["readyReplicas"] == 2 and "cause" not in world.status
    world.end("hello-node-0", 1)  # a new trouble, which the old end does not explain
    world.look()
    assert "cause" not in world.status and [end["pod"] for end in world.status["ends"]] == ["hello-node-1"]


def test_the_cause_of_a_kill_for_memory_goes_when_all_nodes_have_lived_long() -> None:
    world = settled(replicas=2, backoffLimit=2)
    world.now += 1
    kill(world)
    next_life(world)
    assert world.status["cause"] == "host-out-of-memory" and world.look_at is not None
    world.now = world.look_at
    world.settle()
    assert (world.status["readyReplicas"], world.status["kills"]) == (2, 1) and "cause" not in world.status


def test_whoever_drains_machines_takes_one_node_at_a_time() -> None:
    world = settled(replicas=3, minReplicas=1, maxReplicas=4)
    assert world.kept == 2
    world.job["spec"]["replicas"] = 4
    world.settle()
    assert world.kept == 3
    world.job["spec"]["suspend"] = True
    world.settle()
    assert world.kept == 0
    world.job["spec"] |= {"suspend": False, "replicas": 2}
    world.settle()
    assert world.kept == 1
    world.finish()
    world.settle()
    assert world.kept == 0  # an ended job has nothing to keep, and budgets that are not met raise alarms
    assert settled(replicas=1).kept == 0
    world = settled(replicas=3)
    world.job["metadata"]["annotations"] = {"petctl.dev/disruption-budget": "none"}
    world.settle()
    assert world.kept == 0


def test_a_budget_follows_the_room_where_the_size_does() -> None:
    world = World(room=2, minReplicas=1, maxReplicas=4)
    world.settle()
    assert world.kept == 3
    world.now = world.look_at or 0.0
    world.settle()
    assert (world.status["room"]["size"], world.kept) == (2, 1)


@pytest.mark.parametrize(("state", "counts"), [("succeeded", (2, 0)), ("failed", (0, 2)), ("cancelled", (0, 2))])
def test_nodes_succeed_only_with_their_job(state: str, counts: tuple[int, int]) -> None:
    world = settled(replicas=2)
    world.finish(state, int(state != "succeeded"))
    world.look()
    found = world.status["replicaStatuses"]
    assert (found["succeeded"], found["failed"]) == counts
    world.settle()
    assert world.status["replicaStatuses"] == found


def test_a_kill_is_counted_once_whenever_the_operator_dies() -> None:
    for moment in range(100):
        world = settled(replicas=2, backoffLimit=2)
        world.now += 1
        kill(world)
        world.killed_at = world.writes * 2 + moment
        try:
            next_life(world)
        except Killed:
            world.killed_at = -1
            next_life(world)
        assert (world.status["kills"], world.status["readyReplicas"]) == (1, 2)
        if world.killed_at > 0:
            break
    assert moment > 8


@pytest.mark.parametrize("wrong", [-300, 300])
def test_kills_are_counted_where_a_machines_clock_is_wrong(wrong: int) -> None:
    world = settled(replicas=1, backoffLimit=9)
    world.now += 400
    for kills in (1, 2):
        world.now += wrong
        kill(world)
        world.now -= wrong
        next_life(world)
        assert world.status["kills"] == kills
        world.now += 1
        wrong = -wrong


def test_a_kill_that_is_told_without_its_time_is_counted_once() -> None:
    world = settled(replicas=1, backoffLimit=1)
    full = "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. "
    world.now += 1
    world.pods["hello-node-0"]["status"] |= {"phase": "Failed", "reason": "Evicted", "message": full}
    world.pods["hello-node-0"]["status"]["startTime"] = written(world.now)
    next_life(world)
    assert (world.status["kills"], world.status["phase"]) == (1, "Running")


def test_nodes_that_are_killed_one_after_the_other_are_counted_each() -> None:
    world = settled(replicas=3, backoffLimit=9)
    for node, kills in (("hello-node-0", 1), ("hello-node-1", 1), ("hello-node-2", 2)):
        world.now += 40
        world.end(node, 137, how="OOMKilled")
        next_life(world)
        assert world.status["kills"] == kills


def test_a_pod_that_was_deleted_is_not_counted_however_it_ends() -> None:
    world = settled(replicas=2, backoffLimit=0)
    world.job["spec"]["replicas"] = 1
    world.look()
    assert world.pods["hello-node-1"]["metadata"]["deletionTimestamp"]
    world.end("hello-node-1", 137, how="OOMKilled")
    world.settle()
    assert world.status["phase"] == "Running" and not {"kills", "ends"} & set(world.status)


def test_ends_are_remembered_in_the_order_of_their_times_however_they_are_seen() -> None:
    world = settled(replicas=3)
    world.now += 60
    for node, late in ((0, 0), (1, -5), (2, 0)):
        world.now += late
        world.end(f"hello-node-{node}", 137, how="OOMKilled")
        world.now -= late
        world.look()
    assert [entry["node"] for entry in world.status["ends"]] == ["1", "0", "2"]


def test_of_many_ends_that_come_at_once_few_are_announced() -> None:
    world = settled(replicas=20)
    for node in range(20):
        world.now += 1
        world.end(f"hello-node-{node}", 137, how="OOMKilled")
    steps = decide(world.seen(), world.now).steps
    assert sum(isinstance(step, Announce) and step.reason == "HostOutOfMemory" for step in steps) == KEPT
    world.look()
    assert [entry["node"] for entry in world.status["ends"]] == [str(node) for node in range(12, 20)]
    steps = decide(world.seen(), world.now).steps
    assert not any(isinstance(step, Announce) for step in steps)


def test_what_ended_a_coordinator_is_announced() -> None:
    world = settled(replicas=1)
    world.now += 1
    world.end("hello-coordinator-0", 137, how="OOMKilled")
    steps = decide(world.seen(), world.now).steps
    words = "pod hello-coordinator-0 was killed: it used more memory than there was for it (OOMKilled)"
    assert Announce("HostOutOfMemory", words, warning=True) in steps
    world.settle()
    assert "kills" not in world.status


def test_of_many_ends_the_last_are_remembered_and_a_second_look_changes_nothing() -> None:
    world = settled(replicas=20)
    world.now += 1
    kill(world)
    world.look()
    assert len(world.status["ends"]) == KEPT
    writes = world.writes
    world.look()
    assert world.writes == writes
    next_life(world)
    assert (world.status["kills"], len(world.status["ends"])) == (1, KEPT)


def test_an_image_that_cannot_be_had_is_the_cause_until_it_can() -> None:
    world = World(replicas=1)
    world.look()
    waits = {"name": "petctl", "image": "none:1", "state": {"waiting": {"reason": "ErrImagePull"}}}
    world.pods["hello-coordinator-0"]["status"] = {"phase": "Pending", "containerStatuses": [waits]}
    world.look()
    assert world.status["cause"] == "image"
    world.pods["hello-coordinator-0"]["status"] = {"phase": "Pending"}
    world.settle()
    assert world.status["phase"] == "Running" and "cause" not in world.status


@pytest.mark.parametrize(
    ("sentence", "failure", "cause"),
    [
        ("only 0 of at least 1 nodes joined", None, "host-out-of-memory"),
        ("over the time limit of 60 s", None, "time-limit"),
        ("rank 0 failed", {"node": "0", "rank": 0, "local_rank": 0, "code": 1}, None),
    ],
)
def test_what_became_of_pods_is_the_cause_where_nothing_else_is(sentence: str, failure: Any, cause: str | None) -> None:
    world = settled(replicas=1)
    world.now += 1
    kill(world)
    world.look()
    outcome = {"state": "failed", "code": 1, "sentence": sentence, "failure": failure}
    world.end("hello-coordinator-0", 0, json.dumps({"outcome": outcome, "finished": world.now}))
    world.settle()
    assert world.status["phase"] == "Failed" and world.status.get("cause") == cause


def test_the_cause_of_a_workers_failure_is_the_jobs() -> None:
    world = settled(replicas=1)
    failure = {"node": "0", "rank": 0, "local_rank": 0, "code": 1, "cause": "missing-module"}
    outcome = {"state": "failed", "code": 1, "sentence": "rank 0 failed", "failure": failure}
    world.end("hello-coordinator-0", 0, json.dumps({"outcome": outcome, "finished": world.now}))
    world.settle()
    assert world.status["cause"] == "missing-module"


def test_a_node_that_broke_after_a_long_life_is_replaced_at_once() -> None:
    world = settled(replicas=1)
    world.now += 3600
    world.end("hello-node-0", 1)
    world.settle()
    assert world.names == ["hello-coordinator-0", "hello-node-1"]


def test_pauses_grow() -> None:
    world, pauses = settled(replicas=1), []
    for _ in range(10):
        world.now += 1
        world.end(world.nodes()[0]["metadata"]["name"], 1)
        world.look()
        assert world.look_at is not None
        pauses.append(world.look_at - world.now)
        world.now = world.look_at
        world.settle()
    assert pauses == sorted(pauses)
    assert pauses[0] < 10
    assert pauses[-1] == 300


def test_pauses_of_a_coordinator_grow_also_where_nodes_live_long() -> None:
    world, pauses = settled(replicas=1), []
    world.now += 3600
    for _ in range(3):
        world.end(world.coordinators()[-1]["metadata"]["name"], 1)
        world.coordinators()[-1]["status"]["startTime"] = written(world.now - 1)
        world.look()
        assert world.look_at is not None
        pauses.append(world.look_at - world.now)
        world.now = world.look_at
        world.settle()
    assert pauses[0] < pauses[1] < pauses[2]


def test_scaling_out_takes_the_lowest_free_indices_and_is_told() -> None:
    world = settled(replicas=1, minReplicas=1, maxReplicas=4)
    world.job["spec"]["replicas"] = 3
    world.settle()
    assert world.names == ["hello-coordinator-0", "hello-node-0", "hello-node-1", "hello-node-2"]
    assert [step.wanted for step in world.told] == [3]
    assert world.status["wanted"] == 3


def test_a_new_coordinator_is_told_the_size_since_all_who_knew_it_may_be_gone() -> None:
    world = settled(replicas=1, minReplicas=1, maxReplicas=4)
    world.job["spec"]["replicas"] = 3
    world.settle()
    world.told.clear()
    for name in world.names:
        world.delete(name)
    world.vanish()
    world.settle()
    assert world.names == ["hello-coordinator-1", "hello-node-0", "hello-node-1", "hello-node-2"]
    assert [(step.wanted, step.nodes) for step in world.told] == [(3, ("0", "1", "2"))]
    assert (world.status["wanted"], world.status["told"]) == (3, 1)
    world.settle()
    assert len(world.told) == 1


def test_a_coordinator_need_not_wait_for_a_node_that_no_machine_takes() -> None:
    world = World(room=2, replicas=3, minReplicas=1, maxReplicas=3)
    world.settle()
    assert [(step.wanted, step.nodes) for step in world.told] == [(3, ("0", "1"))]
    assert world.status["absent"] == [2] and len(world.nodes()) == 3  # it may take part whenever it comes
    world.now += 1
    world.settle()
    assert len(world.told) == 1
    world.room = 3
    world.settle()
    assert world.told[-1].nodes == ("0", "1", "2") and world.status["absent"] == []


def test_scaling_in_deletes_those_whom_the_coordinator_spares() -> None:
    world = settled(replicas=3, minReplicas=1, maxReplicas=3)
    world.job["spec"]["replicas"] = 1
    world.release = ["0", "2"]
    world.settle()
    assert world.names == ["hello-coordinator-0", "hello-node-1"]
    assert world.told[-1].nodes == ("0", "1", "2")


def test_without_a_coordinator_the_last_go() -> None:
    world = World(replicas=3, minReplicas=1, maxReplicas=3)
    world.look()
    world.job["spec"]["replicas"] = 1
    world.look()
    world.vanish()
    assert world.names == ["hello-coordinator-0", "hello-node-0"]
    assert world.told == []


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ("Running", ["hello-coordinator-0", "hello-node-0"]),
        ("None", ["hello-coordinator-0", "hello-node-0", "hello-node-1"]),
        ("All", []),
    ],
)
def test_the_end_is_on_record_before_anything_is_removed(policy: str, left: list[str]) -> None:
    world = settled(replicas=2, cleanPodPolicy=policy)
    world.finish()
    world.pods["hello-node-1"]["status"] = {"phase": "Running"}  # one that does not end
    writes = world.writes
    world.killed_at = (writes + 1) * 2 - 1
    with pytest.raises(Killed):
        world.look()
    assert world.holds("Succeeded")
    assert len(world.names) == 3
    world.killed_at = -1
    world.settle()
    world.now += LINGER
    world.settle()
    assert world.names == left
    assert world.service is (policy != "All")
    assert world.status["exitCode"] == 0
    assert json.loads(world.status["outcome"])["outcome"]["sentence"] == "that was it"
    assert world.status["phase"] == "Succeeded"


def test_a_failure_is_failed_with_its_code() -> None:
    world = settled(replicas=1)
    world.finish("failed", 3)
    world.settle()
    assert world.holds("Failed")
    assert not world.holds("Running")
    assert world.status["exitCode"] == 3
    assert world.status["message"] == "failed: that was it"


def test_after_its_time_a_finished_job_goes() -> None:
    world = settled(replicas=1, ttlSecondsAfterFinished=60)
    world.finish()
    world.settle()
    assert world.look_at == world.now + 60
    assert not world.gone
    world.now += 60
    world.look()
    assert world.gone


def test_the_deadline_counts_from_the_start_whoever_coordinates() -> None:
    world = settled(replicas=1, activeDeadlineSeconds=100)
    assert world.look_at == world.now + 100
    world.delete("hello-coordinator-0")
    world.settle()
    world.now += 100
    world.settle()
    assert world.status["exitCode"] == 124
    assert world.names == []
    assert [c["reason"] for c in world.status["conditions"] if c["type"] == "Failed"] == ["DeadlineExceeded"]
    assert world.status["cause"] == "time-limit"


def test_suspending_lets_nodes_go_first_and_resuming_starts_again() -> None:
    world = settled(replicas=2)
    world.job["spec"]["suspend"] = True
    world.look()
    assert not world.coordinators()[0]["metadata"].get("deletionTimestamp")
    world.settle()
    assert world.names == []
    assert world.status["phase"] == "Suspended"
    assert "startTime" not in world.status
    world.now += 1000
    world.job["spec"]["suspend"] = False
    world.look()
    assert "--nobody" in world.pods["hello-coordinator-1"]["spec"]["containers"][0]["command"]
    world.settle()
    assert world.names == ["hello-coordinator-1", "hello-node-0", "hello-node-1"]
    assert world.status["phase"] == "Running"
    assert [step.wanted for step in world.told] == [2]


def test_a_job_that_is_born_asleep_has_no_pods() -> None:
    assert settled(replicas=2, suspend=True).names == []


def test_one_who_cannot_ask_the_coordinator_cancels_with_a_note() -> None:
    world = settled(replicas=1)
    outcome = {"outcome": {"state": "cancelled", "code": 130, "sentence": "cancelled by the user"}, "finished": 5.0}
    world.job["metadata"]["annotations"] = {OUTCOME: json.dumps(outcome)}
    world.settle()
    assert world.holds("Failed")
    assert world.status["exitCode"] == 130
    assert world.names == []


def test_without_replicas_a_job_has_what_there_is_room_for() -> None:
    world = World(room=2, minReplicas=1, maxReplicas=4)
    world.settle()
    assert len(world.nodes()) == 4
    assert world.look_at == world.now + GIVE_UP
    world.now += GIVE_UP
    world.settle()
    assert world.names == ["hello-coordinator-0", "hello-node-0", "hello-node-1"]
    assert world.status["room"]["size"] == 2
    assert world.status["wanted"] == 4  # whoever comes is taken in
    world.room = 3
    world.now += TRY_AGAIN
    world.settle()
    assert sum(pod["status"]["phase"] == "Running" for pod in world.nodes()) == 3


def test_news_of_room_is_followed_at_once() -> None:
    world = World(room=1, minReplicas=1, maxReplicas=2)
    world.settle()
    world.now += GIVE_UP
    world.settle()
    assert len(world.nodes()) == 1
    world.now += 5
    world.room, world.room_at = 2, world.now
    world.settle()
    assert world.status["readyReplicas"] == 2


def test_pods_below_the_least_size_are_not_given_up() -> None:
    world = World(room=0, minReplicas=2, maxReplicas=4)
    world.settle()
    world.now += GIVE_UP
    world.settle()
    assert len(world.nodes()) == 2
    assert world.status["phase"] == "Starting"
    assert "no room" in world.status["message"]


def test_with_replicas_nobody_is_given_up() -> None:
    world = World(room=1, replicas=3, minReplicas=1, maxReplicas=3)
    world.settle()
    world.now += 1000
    world.settle()
    assert len(world.nodes()) == 3
    assert world.status["phase"] == "Running"


@pytest.mark.parametrize(
    "template",
    [
        {"spec": {"containers": [{"name": "x", "image": "y"}]}},
        {"spec": {"containers": [{"name": "x", "image": "y", "command": ["z"]}], "restartPolicy": "Always"}},
    ],
)
def test_what_cannot_run_fails_with_the_reason(template: dict[str, Any]) -> None:
    world = settled(replicas=1, template=template)
    assert world.names == []
    assert [c["reason"] for c in world.status["conditions"] if c["type"] == "Failed"] == ["Invalid"]
    assert "spec.template" in world.status["message"]


def test_sidecars_stay_and_the_first_container_becomes_the_agents() -> None:
    containers = [
        {
            "name": "trainer",
            "image": "a",
            "command": ["python3"],
            "args": ["t.py"],
            "env": [{"name": "A", "value": "1"}],
        },
        {"name": "side", "image": "b", "command": ["sleep", "1"]},
    ]
    world = settled(
        replicas=1,
        template={
            "metadata": {"labels": {"team": "x", "petctl.dev/job": "no"}},
            "spec": {"containers": containers, "nodeSelector": {"gpu": "yes"}},
        },
    )
    pod = world.pods["hello-node-0"]
    own, side = pod["spec"]["containers"]
    assert own["image"] == "a"
    assert own["name"] == "petctl"
    assert "join" in own["command"]
    assert "args" not in own
    assert ONE in own["env"]
    assert side == containers[1]
    assert pod["spec"]["nodeSelector"] == {"gpu": "yes"}
    assert pod["metadata"]["labels"]["team"] == "x"
    assert pod["metadata"]["labels"]["petctl.dev/job"] == "hello"


def test_an_image_without_python_has_it_from_the_agents_image() -> None:
    world = settled(replicas=1, agentImage="python:3.13-slim")
    node, coordinator = (world.pods[f"hello-{name}-0"]["spec"] for name in ("node", "coordinator"))
    assert [container["image"] for container in node["initContainers"]] == ["python:3.13-slim"]
    assert node["containers"][0]["command"][0] == "/petctl/python/bin/loader"
    assert coordinator["containers"][0]["image"] == "python:3.13-slim"


# -- killed anywhere ---------------------------------------------------------------------------------------------------


def go_on(world: World) -> None:
    """Grows, loses a node and its coordinator, shrinks, sleeps, wakes, ends: from the chapter that the world is in."""

    def lose() -> None:
        world.delete("hello-node-1")
        world.delete(world.coordinators()[-1]["metadata"]["name"])

    chapters: list[Callable[[], None]] = [
        lambda: world.job["spec"].update(replicas=3),
        lose,
        lambda: world.job["spec"].update(replicas=1),
        lambda: world.job["spec"].update(suspend=True),
        lambda: world.job["spec"].update(suspend=False),
        world.finish,
    ]
    world.settle()
    while world.chapter < len(chapters):
        chapters[world.chapter]()
        world.chapter += 1
        world.settle()


def test_whoever_is_killed_anywhere_is_replaced_by_one_that_goes_on() -> None:
    sizes = {"replicas": 2, "minReplicas": 1, "maxReplicas": 3}
    calm = World(**sizes)
    go_on(calm)
    assert calm.status["phase"] == "Succeeded"
    for moment in range(2 * calm.writes):
        world = World(**sizes)
        world.killed_at = moment
        with pytest.raises(Killed):
            go_on(world)
        world.killed_at = -1
        go_on(world)
        assert world.picture() == calm.picture(), moment


@pytest.mark.parametrize("seed", range(200))
def test_whatever_happens_there_is_one_coordinator_and_never_a_number_twice(seed: int) -> None:
    chance = random.Random(seed)
    least = chance.randint(1, 3)
    most = least + chance.randint(0, 3)
    sizes = {"replicas": chance.randint(least, most)} if chance.random() < 0.7 else {}
    world = World(room=chance.randint(0, 6), minReplicas=least, maxReplicas=most, **sizes)
    numbers: set[tuple[str, int]] = set()
    uids: set[str] = set()
    for _ in range(40):
        world.killed_at = world.writes * 2 + chance.randint(0, 9) if chance.random() < 0.3 else -1
        event = chance.randrange(8)
        names = [pod["metadata"]["name"] for pod in world.nodes()]
        if event == 0 and names:
            world.delete(chance.choice(names))
        elif event == 1 and names:
            world.end(chance.choice(names), chance.choice([1, LEFT, 137]))
        elif event == 2 and world.coordinators():
            world.delete(chance.choice(world.coordinators())["metadata"]["name"])
        elif event == 3 and sizes:
            world.job["spec"]["replicas"] = chance.randint(least, most)
        elif event == 4:
            world.room, world.room_at = chance.randint(0, 6), world.now
        elif event == 5:
            world.now += chance.choice([1, 10, 70, 400])
        elif event == 6:
            world.job["spec"]["suspend"] = chance.random() < 0.3
        else:
            world.run()
        if chance.random() < 0.5:
            world.vanish()
        try:
            world.look()
        except Killed:
            pass
        standing = [p for p in world.coordinators() if not p["metadata"].get("deletionTimestamp")]
        assert len([p for p in standing if p["status"]["phase"] in ("Pending", "Running")]) <= 1
        assert len([p for p in world.nodes() if not p["metadata"].get("deletionTimestamp")]) <= most + 8
        for pod in world.pods.values():
            if pod["metadata"]["uid"] not in uids:
                uids.add(pod["metadata"]["uid"])
                which = (pod["metadata"]["labels"]["petctl.dev/role"], number_of(pod))
                assert which not in numbers
                numbers.add(which)
    world.killed_at = -1
    world.job["spec"]["suspend"] = False
    world.room = 100
    for _ in range(6):
        world.now += 400
        world.settle()
    assert world.status["phase"] == "Running"
    assert world.status["readyReplicas"] == world.job["spec"].get("replicas", most)
    assert len(world.nodes()) == world.status["readyReplicas"]
