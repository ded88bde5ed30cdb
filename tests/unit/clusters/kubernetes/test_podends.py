"""How pods ended, in words that show the cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from petctl import causes
from petctl.clusters.kubernetes.pods.pod_termination import End, end_of, ends_of
from petctl.clusters.node_ends import explained, explained_as_they_come, may_have_lost, with_ends
from petctl.job.status import ErrorStatus, RoundStatus, SizeStatus
from tests.unit.clusters.kubernetes.pods import Pod
from tests.unit.clusters.kubernetes.test_cluster import RUNNING

WHEN = "2026-01-02T03:05:00Z"
TIME = 1_767_323_100.0
LIMITS = {"containers": [{"name": "petctl", "resources": {"limits": {"memory": "64Mi"}}}]}


def terminated(reason: str = "OOMKilled", code: int = 137, name: str = "petctl") -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"reason": reason, "exitCode": code, "finishedAt": WHEN}}}


def ended(spec: dict[str, Any] | None = None, phase: str = "Failed", **status: Any) -> dict[str, Any]:
    pod = Pod("n-0-a", 0, phase=phase).object
    pod["status"] |= status
    return {**pod, "spec": spec or {}}


def disrupted(reason: str, message: str, phase: str = "Failed") -> dict[str, Any]:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    return ended(phase=phase, conditions=[{**condition, "lastTransitionTime": WHEN}])


MEMORY = ended(LIMITS, containerStatuses=[terminated()])
FULL = ended(reason="Evicted", message="Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ")
LOW = "The node was low on resource: {}. Threshold quantity: 100Mi, available: 50Mi. "


@pytest.mark.parametrize(
    ("pod", "words", "cause", "own"),
    [
        (MEMORY, "was killed: it used more than its 64Mi of memory (OOMKilled)", "host-out-of-memory", True),
        (
            ended(containerStatuses=[{**terminated(), "resources": {"limits": {"memory": "1Gi"}}}]),
            "was killed: it used more than its 1Gi of memory (OOMKilled)",
            "host-out-of-memory",
            True,
        ),
        (
            ended(containerStatuses=[terminated()]),
            "was killed: it used more memory than there was for it (OOMKilled)",
            "host-out-of-memory",
            True,
        ),
        (
            ended(
                {"initContainers": [{"name": "fill", "resources": {"limits": {"memory": "1Gi"}}}]},
                initContainerStatuses=[terminated(name="fill")],
            ),
            "was killed: its container fill used more than its 1Gi of memory (OOMKilled)",
            "host-out-of-memory",
            True,
        ),
        (
            FULL,
            "was evicted: Pod ephemeral local storage usage exceeds the total limit of containers 10Mi",
            "ephemeral-storage",
            True,
        ),
        (
            ended(reason="Evicted", message='Usage of EmptyDir volume "state" exceeds the limit "10Mi". '),
            'was evicted: Usage of EmptyDir volume "state" exceeds the limit "10Mi"',
            "ephemeral-storage",
            True,
        ),
        (
            ended(reason="Evicted", message=LOW.format("ephemeral-storage")),
            f"was evicted: {LOW.format('ephemeral-storage')[:-2]}",
            "ephemeral-storage",
            False,
        ),
        (
            ended(reason="Evicted", message=LOW.format("memory")),
            f"was evicted: {LOW.format('memory')[:-2]}",
            "evicted",
            False,
        ),
        (ended(reason="Evicted"), "was evicted: its machine ran short", "evicted", False),
        (  # a worker was killed for memory before, and the agent had told of it
            ended(reason="Evicted", message=LOW.format("memory"), containerStatuses=[terminated()]),
            f"was evicted: {LOW.format('memory')[:-2]}",
            "evicted",
            False,
        ),
        (
            disrupted("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod"),
            "was preempted: default-scheduler: preempting to accommodate a higher priority pod",
            "preempted",
            False,
        ),
        (
            disrupted("EvictionByEvictionAPI", "Eviction API: evicting", "Running"),
            "had to leave its machine: Eviction API: evicting",
            "drained",
            False,
        ),
        (
            disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
            "was lost with its machine: Taint manager: deleting due to NoExecute taint",
            "node-lost",
            False,
        ),
    ],
)
def test_an_end_is_told_and_shows_its_cause(pod: dict[str, Any], words: str, cause: str, own: bool) -> None:
    end = end_of(pod)
    assert end is not None and (end.node, end.name, end.words, end.own) == ("0", "n-0-a", words, own)
    assert causes.find(end.sentence) == cause
    assert causes.find(f"only 0 of at least 1 nodes joined; {end.sentence}") == cause
    assert causes.find(f"node 0 is gone: its connection closed; {end.sentence}") == cause


@pytest.mark.parametrize(
    "pod",
    [
        Pod("n-0-a", 0).object,
        ended(containerStatuses=[terminated("Error", 1)]),
        ended(containerStatuses=[terminated("Error", 137)]),  # killed by whomever
        ended(containerStatuses=[terminated("OOMKilled", 91)]),  # a worker was, and the agent has told of it
        ended(phase="Running", containerStatuses=[terminated(name="beside")]),
        {**MEMORY, "metadata": {**MEMORY["metadata"], "deletionTimestamp": WHEN}},  # somebody had asked it to end
    ],
)
def test_there_is_nothing_to_tell_of_others(pod: dict[str, Any]) -> None:
    assert end_of(pod) is None


def test_the_end_of_a_pod_is_that_of_its_last_container() -> None:
    end = end_of(ended(initContainerStatuses=[terminated(name="fill")], containerStatuses=[{"name": "petctl"}]))
    assert end is not None and end.time == TIME


def test_a_pod_that_is_no_node_is_called_by_its_name() -> None:
    pod = Pod("c-0-a", None, phase="Failed").object
    pod["status"]["containerStatuses"] = [terminated()]
    end = end_of(pod)
    assert end is not None and end.sentence == f"pod c-0-a {end.words}"


def test_what_an_operator_remembers_is_told_with_the_rest_each_once() -> None:
    entry = {"node": "1", "pod": "n-1-a", "message": "was preempted: for another", "time": "2026-01-02T03:00:00Z"}
    same = {"node": "0", "pod": "n-0-a", "uid": "uid-n-0-a", "message": "older words", "time": WHEN, "own": True}
    found = ends_of([MEMORY], {"status": {"ends": [entry, same]}})
    assert [(end.node, end.own) for end in found] == [("1", False), ("0", True)]
    assert found[1] == end_of(MEMORY) and found[1].time == TIME
    assert ends_of([], {}) == []


def test_a_status_tells_what_will_happen_again_and_at_the_end_whatever_there_was() -> None:
    own, other = end_of(MEMORY), end_of(disrupted("PreemptionByScheduler", "for another"))
    assert own and other
    assert with_ends(RUNNING, [other]) == RUNNING
    once = with_ends(RUNNING, [own, other])
    assert once.sentence == f"all is well; pod n-0-a of node 0 {own.words}"
    assert with_ends(once, [own]) == once
    again = with_ends(RUNNING, [own, replace(own, name="n-0-b", uid="u-2")])
    assert again.sentence.endswith(f"pod n-0-b of node 0 {own.words} (2 pods ended so)")
    over = replace(RUNNING, finished=5.0)
    assert with_ends(over, [own, other]).sentence.endswith("was preempted: for another")


def test_a_kill_is_not_told_of_a_job_that_is_well_again(monkeypatch: pytest.MonkeyPatch) -> None:
    own = end_of(MEMORY)
    assert own
    monkeypatch.setattr("petctl.clusters.node_ends.time.time", lambda: own.time + 100)
    running, both = replace(RUNNING, size=SizeStatus(1, 2, 4)), {"0": (0, 1), "1": (1, 1)}
    before = RoundStatus.of(1, "", both, started=own.time - 500)
    since = RoundStatus.of(2, "", both, started=own.time + 20)
    assert with_ends(replace(running, rounds=[before, since]), [own]).sentence == "all is well"
    for rounds in (
        [before],  # nothing since
        [before, replace(since, blocks=[("0", 0, 1)])],  # not all of them
        [before, replace(since, started=own.time + 50)],  # not long
        [before, since, replace(since, started=own.time + 45)],
    ):
        assert "OOMKilled" in with_ends(replace(running, rounds=rounds), [own]).sentence, rounds


def test_when_it_is_worth_a_look() -> None:
    assert not may_have_lost(RUNNING) and may_have_lost(replace(RUNNING, nodes_lost=1))
    for state in ("failed", "lost"):
        assert may_have_lost(replace(RUNNING, finished=5.0, state=state))
    assert not may_have_lost(replace(RUNNING, finished=5.0, state="succeeded", nodes_lost=1))
    assert not may_have_lost(replace(RUNNING, finished=5.0, state="failed", error=ErrorStatus("0", 0, 0, 1)))


# -- events ------------------------------------------------------------------------------------------------------------

END = End("0", "n-0-a", "was killed: (OOMKilled)", 100.0, "u-1", True)
JOINED = {"kind": "joined", "time": 90.0, "sentence": "node 0 is here", "node": "0"}
LOST = {"kind": "lost", "time": 99.0, "sentence": "node 0 is gone: no word", "node": "0", "why": "no word"}
TOLD = {"kind": "lost", "time": 100.0, "sentence": END.sentence, "node": "0", "why": END.words}


def test_a_loss_is_told_with_the_end_that_explains_it() -> None:
    stranger = replace(END, node="7", name="n-7-a")
    later = {**LOST, "time": 500.0}
    found = list(explained([JOINED, LOST, later], [END, stranger]))
    assert found[0] == JOINED and found[2] == later
    assert found[1] == {**LOST, "sentence": f"node 0 is gone: no word; {END.sentence}", "why": END.words}
    assert found[3] == {**TOLD, "sentence": stranger.sentence, "node": "7"}


def test_as_events_come_an_end_is_told_once_it_is_known() -> None:
    known: list[list[End]] = [[], [END], [END, replace(END, name="n-0-b", uid="u-2")]]
    asked: list[int] = []

    def look() -> list[End]:
        asked.append(1)
        return known.pop(0)

    left = {**LOST, "why": "it left"}
    found = list(explained_as_they_come([JOINED, left, LOST, JOINED, JOINED, JOINED, LOST], look))
    second = {**TOLD, "sentence": replace(END, name="n-0-b", uid="u-2").sentence}
    assert found == [JOINED, left, LOST, JOINED, TOLD, JOINED, JOINED, LOST, second]
    assert len(asked) == 3


def test_an_end_that_nobody_knows_is_not_looked_for_for_ever() -> None:
    asked: list[int] = []

    def look() -> list[End]:
        asked.append(1)
        return []

    list(explained_as_they_come([LOST, *[JOINED] * 50], look))
    assert len(asked) == 5
