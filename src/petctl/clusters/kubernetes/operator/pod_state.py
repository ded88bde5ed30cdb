"""The life of a pod, as its object tells it: whether it runs, since when it waits, when and how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from petctl.clusters.kubernetes.names import CONTAINER
from petctl.clusters.kubernetes.operator.elasticjob import Object
from petctl.clusters.kubernetes.pods.manifests import LEFT
from petctl.clusters.kubernetes.pods.pod_termination import end_of
from petctl.kube.timestamps import seconds

_FROM_OUTSIDE = {LEFT, 130, 137, 143}
"""Exit codes of a pod that left or was made to; nothing is wrong with it."""


def terminates(pod: Object) -> bool:
    """Is it being deleted?"""
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_live(pod: Object) -> bool:
    """Does it run, or will it?"""
    return not terminates(pod) and not ended(pod)


def ended(pod: Object) -> bool:
    """Has it run to its end, whatever that was?"""
    return _phase(pod) in ("Failed", "Succeeded")


def runs(pod: Object) -> bool:
    """Does it run now?"""
    return _phase(pod) == "Running" and not terminates(pod)


def took_room(pod: Object) -> bool:
    """Did a machine take it?"""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(entry["type"] == "PodScheduled" and entry["status"] == "True" for entry in conditions)


def is_stuck(pod: Object) -> bool:
    """Does no machine take it?"""
    return stuck_since(pod) > 0


def stuck_since(pod: Object) -> float:
    """Since when no machine takes it; 0.0: one did, or it was not tried yet."""
    for condition in pod.get("status", {}).get("conditions") or ():
        refused = condition["type"] == "PodScheduled" and condition["status"] == "False"
        if refused and condition.get("reason") == "Unschedulable" and not terminates(pod):
            return seconds(condition.get("lastTransitionTime"))
    return 0.0


def may_retry(pod: Object) -> bool:
    """Did it end because it left, or because others wanted it? Then another may come at once."""
    status, end = pod.get("status", {}), end_of(pod)
    if end is not None and end.own:
        return False
    disrupted = any(
        entry["type"] == "DisruptionTarget" and entry["status"] == "True" for entry in status.get("conditions") or ()
    )
    codes = {int(end.get("exitCode", 1)) for name, end in _ends(pod) if name == CONTAINER}
    return disrupted or status.get("reason") in ("Evicted", "Preempted") or not codes.isdisjoint(_FROM_OUTSIDE)


def lived(pod: Object) -> float:
    """For how many seconds it ran."""
    return max(0.0, ended_at(pod) - began_at(pod))


def began_at(pod: Object) -> float:
    """When a machine took it up; as soon as it was made, where none has said so."""
    return seconds(pod.get("status", {}).get("startTime") or pod["metadata"].get("creationTimestamp"))


def ended_at(pod: Object) -> float:
    """When the last of its containers ended; as soon as it was made, where none ever began."""
    moments = [seconds(end.get("finishedAt")) for _, end in _ends(pod)]
    return max([*moments, seconds(pod["metadata"].get("creationTimestamp"))])


def _ends(pod: Object) -> Iterator[tuple[str, dict[str, Any]]]:
    status = pod.get("status", {})
    for container in chain(status.get("initContainerStatuses") or (), status.get("containerStatuses") or ()):
        end = container.get("state", {}).get("terminated")
        if end:
            yield str(container.get("name")), end


def _phase(pod: Object) -> str:
    return str(pod.get("status", {}).get("phase") or "Pending")
