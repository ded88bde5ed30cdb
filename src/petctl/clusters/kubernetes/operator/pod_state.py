"""The life of a pod: since when it waits, for how long it ran, whether another may come."""

from __future__ import annotations

from petctl.clusters.kubernetes.names import CONTAINER
from petctl.clusters.kubernetes.operator.elasticjob import Object
from petctl.clusters.kubernetes.pods.manifests import LEFT
from petctl.clusters.kubernetes.pods.pod_termination import end_of
from petctl.kube.objects import condition, created, disruption, ended_at, ends, seconds, terminates

_FROM_OUTSIDE = {LEFT, 130, 137, 143}
"""Exit codes of a pod that left or was made to; nothing is wrong with it."""


def took_room(pod: Object) -> bool:
    """Did a machine take it?"""
    return condition(pod, "PodScheduled").get("status") == "True"


def is_stuck(pod: Object) -> bool:
    """Does no machine take it?"""
    return stuck_since(pod) > 0


def stuck_since(pod: Object) -> float:
    """Since when no machine takes it; 0.0: one did, or it was not tried yet."""
    found = condition(pod, "PodScheduled")
    refused = found.get("status") == "False" and found.get("reason") == "Unschedulable" and not terminates(pod)
    return seconds(found.get("lastTransitionTime")) if refused else 0.0


def may_retry(pod: Object) -> bool:
    """Did it end because it left, or because others wanted it? Then another may come at once."""
    end = end_of(pod)
    if end is not None and end.own:
        return False
    codes = {int(end.get("exitCode", 1)) for container, end in ends(pod) if container.get("name") == CONTAINER}
    asked_to = disruption(pod) or pod.get("status", {}).get("reason") in ("Evicted", "Preempted")
    return bool(asked_to) or not codes.isdisjoint(_FROM_OUTSIDE)


def lived(pod: Object) -> float:
    """For how many seconds it ran."""
    return max(0.0, ended_at(pod) - began_at(pod))


def began_at(pod: Object) -> float:
    """When a machine took it up; as soon as it was made, where none has said so."""
    return seconds(pod.get("status", {}).get("startTime")) or created(pod)
