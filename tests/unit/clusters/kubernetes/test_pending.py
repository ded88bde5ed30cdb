"""Why nodes do not run, from their pods and from the events of what should make them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from petctl.clusters.kubernetes.pods.pod_events import absent, refusal, trouble_of, troubles
from petctl.clusters.node_ends import is_short, with_absent
from petctl.job.status import JobStatus, NodeStatus, SizeStatus
from petctl.kube.api import Api, Items
from petctl.kube.failures import Forbidden
from tests.unit.clusters.kubernetes.pods import Pod
from tests.unit.clusters.kubernetes.test_cluster import RUNNING

HERE = NodeStatus("0", "running")
ROOM = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available: 2 Insufficient cpu."}


TROUBLES = {"n-3-0": 'MountVolume.SetUp failed for volume "data"'}


def status(wanted: int, *nodes: NodeStatus) -> JobStatus:
    return replace(RUNNING, size=SizeStatus(1, wanted, 4), nodes=list(nodes))


def node(index: int, phase: str = "Pending", born: int = 0, **more: Any) -> dict[str, Any]:
    pod = Pod(f"n-{index}-{born}", index, phase=phase, born=born).object
    pod["status"] |= more
    return pod


def nobody() -> str:
    raise AssertionError("all pods are there: nobody need be asked")


def said(found: JobStatus, wanted: int, *pods: dict[str, Any], refused: str | None = None) -> JobStatus:
    ask = nobody if refused is None else lambda: str(refused)
    made = with_absent(found, absent(pods, {row.name for row in found.nodes}, wanted, ask, lambda: TROUBLES))
    assert JobStatus.from_dict(made.pack()) == made
    assert is_short(made) == (len(found.nodes) < wanted)
    return made


def test_a_node_that_no_machine_takes() -> None:
    found = said(status(2, HERE), 2, node(0, "Running"), node(1, conditions=[ROOM]))
    why = "no machine of the cluster can take it: 0/2 nodes are available: 2 Insufficient cpu."
    assert found.sentence == f"all is well; node 1: {why}"
    assert [(row.name, row.state, row.sentence) for row in found.nodes] == [
        ("0", "running", ""),
        ("1", "pending", why),
    ]


def test_one_reason_is_said_once_and_nodes_are_in_their_order() -> None:
    pods = [node(index, conditions=[ROOM]) for index in (10, 9)]
    image = {"state": {"waiting": {"reason": "ErrImagePull"}}, "image": "none:1"}
    found = said(status(3), 3, *pods, node(2, containerStatuses=[image]))
    assert found.sentence == (
        "all is well; node 2: the image none:1 is not available (ErrImagePull); nodes 9, 10: no machine of the cluster "
        "can take it: 0/2 nodes are available: 2 Insufficient cpu."
    )
    assert [row.name for row in found.nodes] == ["2", "9", "10"]


def test_nodes_that_only_take_their_time_are_not_mentioned() -> None:
    creating = {"state": {"waiting": {"reason": "ContainerCreating"}}}
    found = status(3)
    pods = node(0), node(1, containerStatuses=[creating]), node(2, "Running")
    assert said(found, 3, *pods) == found


def test_a_pod_that_does_not_get_its_volumes() -> None:
    creating = {"state": {"waiting": {"reason": "ContainerCreating"}}}
    found = said(status(2), 2, node(3, containerStatuses=[creating]), node(4))
    assert found.sentence == ('all is well; node 3: it cannot start: MountVolume.SetUp failed for volume "data"')
    assert said(status(1), 1, node(3, "Running")).nodes == []  # that was before


@pytest.mark.parametrize("containers", ["containerStatuses", "initContainerStatuses"])
def test_a_container_that_cannot_start(containers: str) -> None:
    broken = {"state": {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "x" not found'}}}
    pod = node(0)
    pod["status"][containers] = [broken]
    found = said(status(1), 1, pod)
    assert found.sentence == 'all is well; node 0: its container cannot start: secret "x" not found'


def test_a_pod_whose_container_never_began_is_told_until_it_is_replaced() -> None:
    ended = {"state": {"terminated": {"reason": "StartError", "message": 'exec: "python9": not found'}}}
    broken = node(0, "Failed", 1, containerStatuses=[ended])
    assert 'node 0: its container cannot start: exec: "python9"' in said(status(1), 1, broken).sentence
    again = said(status(1), 1, broken, node(0, "Pending", 2))
    assert again.sentence == "all is well"


def test_pods_that_are_not_made_are_asked_for() -> None:
    found = said(status(3, HERE), 3, node(0, "Running"), node(1), refused="no more")
    assert found.sentence == "all is well; node 2: no more"
    left = {"state": {"terminated": {"exitCode": 91}}}
    gone = said(status(2, HERE), 2, node(0, "Running"), node(1, "Failed", containerStatuses=[left]), refused="no more")
    assert gone.sentence == "all is well; node 1: no more"
    assert said(status(2, HERE), 2, node(0, "Running"), refused="").sentence == "all is well"


def test_nodes_that_come_by_themselves_count() -> None:
    by_hand = replace(HERE, name="by-hand")
    assert not is_short(status(2, HERE, by_hand))
    assert said(status(3, HERE, by_hand), 3, node(0, "Running"), refused="no").sentence == "all is well; node 1: no"


def test_an_ended_job_lacks_nobody() -> None:
    assert not is_short(replace(status(2), finished=5.0))


class Events:
    def __init__(self, *events: dict[str, Any]) -> None:
        self.events, self.asked = events, ""

    def get(self, path: str, fieldSelector: str) -> dict[str, Any]:
        assert path == "/api/v1/namespaces/team/events"
        self.asked = fieldSelector
        return {"items": list(self.events)}


def event(message: str, second: int = 0, reason: str = "FailedCreate") -> dict[str, Any]:
    return {"reason": reason, "message": message, "metadata": {}, "lastTimestamp": f"2026-01-02T03:04:{second:02d}Z"}


def refused(*events: dict[str, Any]) -> str:
    return refusal(cast(Api, Events(*events)), "team", "Job", "train-node")


def test_the_newest_refusal_counts_in_the_servers_own_words() -> None:
    api = Events(
        event('Error creating: pods "train-node-0-abcde" is forbidden: exceeded quota: few, used: pods=2', 9),
        event("Error creating: something else", 8),
        event("it was restarted", 10, "Other"),
    )
    assert refusal(cast(Api, api), "team", "Job", "train-node") == (
        "the namespace's quota does not allow its pod: exceeded quota: few, used: pods=2"
    )
    assert api.asked == "involvedObject.kind=Job,involvedObject.name=train-node,type=Warning"


@pytest.mark.parametrize(
    "message, words",
    [
        (
            '(combined from similar events): Error creating: pods "x" is forbidden: violates PodSecurity "restricted"',
            'the namespace\'s pod security does not allow its pod: violates PodSecurity "restricted"',
        ),
        (
            'pods "x-node-1" is forbidden: exceeded quota: few, used: pods=2 (the Kubernetes API server '
            "https://10.0.0.1:443 (context west)); request less, or stop something else first",
            "the namespace's quota does not allow its pod: exceeded quota: few, used: pods=2",
        ),
        ("Error creating: webhook says no", "its pod cannot be created: webhook says no"),
    ],
)
def test_a_refusal_in_plain_words(message: str, words: str) -> None:
    assert refused(event(message, reason="Hindered")) == words


def test_the_newest_trouble_of_each_pod() -> None:
    about = [("a", "old", 1), ("a", "new", 5), ("b", "its own", 3)]
    events = [{**event(text, when, "FailedMount"), "involvedObject": {"name": name}} for name, text, when in about]
    api = Events(*events, event("x", 9, "Unhealthy"))
    assert troubles(cast(Api, api), "team") == {"a": "new", "b": "its own"}
    assert api.asked == "involvedObject.kind=Pod,type=Warning"
    pods = Items([Pod("a", 0, phase="Pending").object])
    assert trouble_of(cast(Api, api), "team", pods) == "a cannot start: new"
    blocked = Items([node(0, conditions=[ROOM]), node(1, "Running", 1)])
    for quiet in (blocked, Items(blocked[:1]), Items([Pod("c", 0, phase="Pending").object])):
        assert trouble_of(cast(Api, api), "team", quiet) == ""


def test_who_may_not_see_events_hears_nothing_of_them() -> None:
    class Closed:
        def get(self, path: str, **query: str) -> dict[str, Any]:
            raise Forbidden("may not list events")

    assert refusal(cast(Api, Closed()), "team", "Job", "train-node") == ""
    assert refused() == refused(event("x", reason="Other")) == ""
