"""What becomes of a job, from objects as the API server tells them."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from petctl.clusters.agent_archive import OLD_PYTHON
from petctl.clusters.kubernetes import job_status
from petctl.clusters.kubernetes.names import COMPLETION_INDEX, ID
from petctl.clusters.printed import final_status
from petctl.job.status import ErrorStatus
from tests.unit.records import job_record

RECORD = job_record(cluster="k8s", command="train.py", cwd="/home/somebody")
OUTCOME = {"state": "failed", "code": 7, "sentence": "rank 0 failed"}
MESSAGE = {"outcome": OUTCOME, "started": 1_001.0, "finished": 1_010.0, "spent": 1, "round": 3, "rounds": 3}


def job(conditions: list[dict[str, str]] | None = None, suspend: bool = False, **more: Any) -> dict[str, Any]:
    metadata = {"name": "train-2222-coordinator", "creationTimestamp": "2026-01-02T03:04:05Z", **more}
    status = {"conditions": conditions} if conditions is not None else {}
    return {"metadata": metadata, "spec": {"suspend": suspend}, "status": status}


def pod(name: str, born: int, phase: str, state: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "creationTimestamp": f"2026-01-02T03:04:{born:02d}Z", **more}
    containers = [{"name": "petctl", "image": "example.org/image:1", "ready": False, "state": state}] if state else []
    status: dict[str, Any] = {"phase": phase}
    if containers:
        status["containerStatuses"] = containers
    return {"metadata": metadata, "status": status}


def ended_pod(name: str, born: int, message: str, code: int = 0) -> dict[str, Any]:
    terminated = {"exitCode": code, "reason": "Completed", "message": message, "containerID": "containerd://0"}
    return pod(name, born, "Failed" if code else "Succeeded", {"terminated": terminated})


def condition(kind: str, status: str = "True", **more: str) -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": "1970-01-01T00:20:00Z", **more}


def test_a_job_goes_on_while_nothing_says_otherwise() -> None:
    pods = [pod("c-0-a", 1, "Running", {"running": {"startedAt": "2026-01-02T03:04:06Z"}})]
    assert job_status.ended(job(), pods) is None
    assert job_status.ended(job([condition("Complete", "False"), condition("Suspended")]), pods) is None
    assert job_status.ended({"metadata": {}, "spec": {}}, [{"metadata": {"creationTimestamp": None}}]) is None


def test_a_coordinator_that_was_replaced_twice_left_the_outcome_in_its_second_pod() -> None:
    pods = [
        pod("c-0-c", 9, "Pending"),
        ended_pod("c-0-b", 5, json.dumps(MESSAGE)),
        ended_pod("c-0-a", 1, "Terminated by signal", code=143),
    ]
    assert job_status.ended(job(), pods) == MESSAGE


def test_the_first_outcome_is_the_outcome() -> None:
    later = {**MESSAGE, "outcome": {**OUTCOME, "state": "succeeded"}}
    pods = [ended_pod("c-0-b", 5, json.dumps(later)), ended_pod("c-0-a", 1, json.dumps(MESSAGE))]
    assert job_status.ended(job(), pods) == MESSAGE


@pytest.mark.parametrize(
    "message",
    [
        "",
        "OOMKilled",
        json.dumps(MESSAGE)[:-9],
        "[]",
        "7",
        '"outcome"',
        "{}",
        '{"outcome": "failed"}',
        '{"outcome": {"state": "failed"}}',
        '{"outcome": {"state": "failed", "code": "7", "sentence": "x"}}',
        json.dumps({**MESSAGE, "finished": "yesterday"}),
    ],
)
def test_a_message_that_no_coordinator_wrote_is_no_outcome(message: str) -> None:
    assert job_status.ended(job(), [ended_pod("c-0-a", 1, message, code=137)]) is None
    annotated = job(annotations={job_status.OUTCOME: message})
    assert job_status.ended(annotated, []) is None


def test_a_job_that_was_ended_from_outside_says_so_in_an_annotation() -> None:
    annotated = job(annotations={job_status.OUTCOME: json.dumps(MESSAGE)}, suspend=True)
    assert job_status.ended(annotated, [pod("c-0-a", 1, "Pending")]) == MESSAGE
    succeeded = {**MESSAGE, "outcome": {**OUTCOME, "state": "succeeded"}}
    # It had ended before it was cancelled.
    assert job_status.ended(annotated, [ended_pod("c-0-a", 1, json.dumps(succeeded))]) == succeeded


@pytest.mark.parametrize(
    "found, words",
    [
        (condition("Complete"), "its coordinator's pod is gone"),
        (condition("Failed", reason="DeadlineExceeded", message="Job was active too long"), "Job was active too long"),
        (condition("Failed", reason="FailedIndexes"), "FailedIndexes"),
    ],
)
def test_a_job_whose_end_nobody_recorded_is_lost(found: dict[str, str], words: str) -> None:
    message = job_status.ended(job([condition("Suspended", "False"), found]), [])
    assert message is not None
    status = final_status(RECORD, message)
    assert (status.state, status.exit_code, status.finished, status.final) == ("lost", 70, 1200.0, True)
    assert words in status.sentence


def test_a_final_status_has_what_the_coordinator_left() -> None:
    status = final_status(RECORD, {**MESSAGE, "size": {"min": 1, "wanted": 3, "max": 4}})
    assert (status.state, status.exit_code, status.sentence) == ("failed", 7, "rank 0 failed")
    assert (status.started, status.finished, status.spent, status.round) == (1_001.0, 1_010.0, 1, 3)
    assert status.size.wanted == 3
    bare = final_status(RECORD, {"outcome": OUTCOME})
    assert (bare.finished, bare.started, bare.size.wanted) == (0.0, None, 2)


def test_a_final_status_has_all_that_the_coordinator_printed_if_it_is_of_the_same_end() -> None:
    error = ErrorStatus("0", 0, 0, 7, traceback="long")
    before = job_status.waiting_status(RECORD, job(), [])
    printed = replace(before, state="failed", round=3, spent=1, error=error)
    status = final_status(RECORD, MESSAGE, replace(printed, finished=5.0))
    assert (status.round, status.error, status.finished, status.exit_code) == (3, error, 1_010.0, 7)
    other = final_status(RECORD, MESSAGE, replace(printed, state="succeeded", sentence="wrong"))
    assert other == final_status(RECORD, MESSAGE)


def waiting(coordinator: dict[str, Any], *pods: dict[str, Any]) -> tuple[str, str]:
    status = job_status.waiting_status(RECORD, coordinator, pods)
    assert not status.final and status.finished is None
    return status.state, status.sentence


def test_a_suspended_job_is_queued() -> None:
    assert waiting(job(suspend=True)) == ("queued", "queued: its Job is suspended")


def test_a_submission_that_was_cut_short_says_so() -> None:
    found = job_status.bare_record("train-2222", "k8s", job())
    status = job_status.waiting_status(found, job(suspend=True), [])
    assert (status.state, status.name, status.submitted) == ("queued", "train", 1767323045.0)
    assert status.cut_short and "petctl rm --force" in status.sentence


@pytest.mark.parametrize("generation, short", [(1, True), (2, False)], ids=["never woken", "suspended by somebody"])
def test_a_job_that_sleeps_with_all_that_it_needs(generation: int, short: bool) -> None:
    owner = job(suspend=True, generation=generation, annotations={ID: "train-2222"})
    assert waiting(owner) == ("queued", "queued: its Job is suspended")
    assert job_status.waiting_status(RECORD, owner, []).cut_short is short


def test_a_job_that_was_made_asleep_with_kubectl_is_queued() -> None:
    assert not job_status.waiting_status(RECORD, job(suspend=True, generation=1), []).cut_short


def test_a_job_without_a_pod_yet_is_starting() -> None:
    assert waiting(job()) == ("starting", "waiting: its coordinator is starting")
    running = pod("c-0-a", 1, "Running", {"running": {}})
    assert waiting(job(), running) == ("starting", "waiting: its coordinator is starting")


@pytest.mark.parametrize(
    "coordinator, pods",
    [
        ({**job(), "status": {"failed": 1}}, []),
        (job(), [pod("c-0-a", 1, "Running", {"running": {}}, deletionTimestamp="2026-01-02T03:05:00Z")]),
        (job(), [pod("c-0-b", 9, "Running", {"running": {}}, annotations={job_status.FAILED: "2"})]),
        (
            job(),
            [pod("c-1-b", 9, "Running", {"running": {}}, annotations={job_status.FAILED: "0", COMPLETION_INDEX: "1"})],
        ),
        (
            job(),
            [
                pod(
                    "c-0-b",
                    9,
                    "Running",
                    {"running": {}},
                    annotations={job_status.FAILED: "0", job_status.IGNORED: "1"},
                )
            ],
        ),
    ],
)
def test_a_job_whose_coordinator_is_being_replaced_is_not_starting(
    coordinator: dict[str, Any], pods: list[dict[str, Any]]
) -> None:
    going = pod("n-2", 1, "Running", deletionTimestamp="2026-01-02T03:05:00Z")
    ended = [pod("n-0", 1, "Failed"), pod("n-1", 1, "Pending"), going]
    fenced = pod("n-3", 1, "Running")
    fenced["status"]["conditions"] = [condition("Ready", "False")]
    idle, alive = [*ended, fenced], [*ended, fenced, pod("n-4", 1, "Running")]
    for nodes, meanwhile in (
        ([], "no node is running"),
        (ended, "no node is running"),
        (idle, "its nodes are waiting"),
        (alive, "its workers keep running"),
    ):
        status = job_status.waiting_status(RECORD, coordinator, pods, nodes=partial(list, nodes))
        assert status.state == "recovering"
        assert status.sentence == f"its coordinator is being replaced, and {meanwhile} meanwhile"


def test_a_replacement_that_cannot_start_says_why() -> None:
    unscheduled = pod("c-0-b", 9, "Pending")
    unscheduled["status"]["conditions"] = [condition("PodScheduled", "False", message="0/2 nodes are available")]
    state, sentence = waiting({**job(), "status": {"failed": 1}}, unscheduled)
    assert state == "recovering"
    assert sentence.endswith("; no machine of the cluster can take c-0-b: 0/2 nodes are available")


def test_a_coordinator_that_could_not_start_keeps_its_reason_while_the_next_is_made() -> None:
    ended = {"terminated": {"reason": "StartError", "message": 'exec: "python9": not found'}}
    pods = [pod("c-0-b", 9, "Pending"), pod("c-0-a", 1, "Failed", ended)]
    why = 'waiting: the container of c-0-a cannot start: exec: "python9": not found'
    assert waiting(job(), *pods) == ("starting", why)
    assert waiting({**job(), "status": {"failed": 1}}, *pods[1:]) == ("starting", why)  # no worker is at work
    running = pod("c-0-b", 9, "Running", {"running": {}})
    assert waiting(job(), running, pods[1]) == ("starting", "waiting: its coordinator is starting")


@pytest.mark.parametrize(
    "reason, message",
    [
        ("StartError", 'exec: "python3": executable file not found in $PATH: unknown'),
        ("Error", f"{OLD_PYTHON} 3.9 or newer, and here is 3.6\n"),
    ],
)
def test_an_image_without_a_python_for_the_agent_is_told_of_with_what_to_do(reason: str, message: str) -> None:
    ended = pod("c-0-a", 1, "Failed", {"terminated": {"reason": reason, "exitCode": 1, "message": message}})
    state, sentence = waiting({**job(), "status": {"failed": 1}}, ended)
    assert state == "starting" and f"cannot start: {message.strip()}; " in sentence
    assert sentence.endswith("set one that has it: options.kubernetes.agent_image")


def test_the_first_pod_of_a_fresh_job_was_not_replaced() -> None:
    first = pod("c-0-a", 1, "Pending", annotations={job_status.FAILED: "0", job_status.IGNORED: "0"})
    assert not job_status.was_replaced(job(), [first])
    assert not job_status.was_replaced(job(), [pod("c-0-a", 1, "Pending", annotations={job_status.FAILED: ""})])


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"])
def test_an_image_that_cannot_be_had_is_named(reason: str) -> None:
    told = pod("c-0-a", 1, "Pending", {"waiting": {"reason": reason, "message": "not found"}})
    assert job_status.why_not_running(told) == "the image example.org/image:1 is not available (not found)"
    silent = pod("c-0-a", 1, "Pending", {"waiting": {"reason": reason}})
    assert job_status.why_not_running(silent) == f"the image example.org/image:1 is not available ({reason})"


def test_why_a_pod_does_not_run() -> None:
    broken = {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "petctl-secrets" not found'}}
    assert job_status.why_not_running(pod("c", 1, "Pending", broken)) == (
        'the container of c cannot start: secret "petctl-secrets" not found'
    )
    creating = pod("c", 1, "Pending", {"waiting": {"reason": "ContainerCreating"}})
    assert job_status.why_not_running(creating) == "c is being created"
    gated = pod("c", 1, "Pending")
    gated["status"]["conditions"] = [condition("PodScheduled", "False", reason="SchedulingGated")]
    assert job_status.why_not_running(gated) == "no machine of the cluster can take c: SchedulingGated"
    assert job_status.why_not_running({"metadata": {"name": "c"}}) == "c is being created"
    for phase in ("Running", "Succeeded", "Failed", "Unknown"):
        assert job_status.why_not_running(pod("c", 1, phase)) == ""
