"""What objects tell of themselves: times, pods, machines; and how a piece of one is merged into it.

Objects are mappings, as the API server gives them. A pod's phase alone misleads: one that is being deleted still says
Running, and may do so for long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeVar

from petctl.kube.failures import Forbidden

if TYPE_CHECKING:
    from petctl.kube.api import Api

Object = Mapping[str, Any]
Pod = TypeVar("Pod", bound=Object)

KILLED = 137
"""Exit code of a process that the kernel ended."""
_OWN_LIMITS = ("exceeds the", "exceeded its")  # in a kubelet's words: the pod's limits, not the machine's
_DISRUPTED = {
    "PreemptionByScheduler": "was preempted",
    "EvictionByEvictionAPI": "had to leave its machine",
    "TerminationByKubelet": "had to leave its machine",
    "DeletionByTaintManager": "was lost with its machine",
    "DeletionByPodGC": "was lost with its machine",
}
"""Reasons of the condition DisruptionTarget."""
_NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
_GPU = "nvidia.com/gpu"
_NAMES = {"volumeMounts": "mountPath", "tolerations": "key", "ports": "containerPort"}
"""What tells items of a list apart, where that is not their name."""


# -- times: RFC 3339, whole seconds ------------------------------------------------------------------------------------


def written(seconds: float) -> str:
    """A moment as it stands in an object."""
    return datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: object) -> float:
    """When that was, since 1970; 0.0 where it says nothing."""
    return datetime.fromisoformat(str(text)).timestamp() if text else 0.0


def created(found: Object) -> float:
    """When an object was made."""
    return seconds(found["metadata"].get("creationTimestamp"))


def annotations_of(found: Object) -> Mapping[str, str]:
    """What was written on an object beside what it is."""
    return found["metadata"].get("annotations") or {}


def labels_of(found: Object) -> Mapping[str, str]:
    """What it is found by."""
    return found["metadata"].get("labels") or {}


# -- pods --------------------------------------------------------------------------------------------------------------


def by_age(pods: Iterable[Pod]) -> list[Pod]:
    """The oldest first."""
    return sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")))


def running(pods: Iterable[Pod]) -> list[Pod]:
    """Those that run, the one to turn to last: the newest, and not one that is being deleted."""
    return sorted((pod for pod in by_age(pods) if phase(pod) == "Running"), key=lambda pod: not terminates(pod))


def phase(pod: Object) -> str:
    """How far it is."""
    return str(pod.get("status", {}).get("phase") or "Pending")


def terminates(pod: Object) -> bool:
    """Is it being deleted?"""
    return bool(pod["metadata"].get("deletionTimestamp"))


def has_ended(pod: Object) -> bool:
    """Has it run to its end, whatever that was?"""
    return phase(pod) in ("Failed", "Succeeded")


def is_live(pod: Object) -> bool:
    """Does it run, or will it?"""
    return not terminates(pod) and not has_ended(pod)


def runs(pod: Object) -> bool:
    """Does it run, and is to go on?"""
    return phase(pod) == "Running" and not terminates(pod)


def condition(found: Object, kind: str) -> Object:
    """What an object says of itself under this name; nothing where it does not."""
    told = found.get("status", {}).get("conditions") or ()
    return next((entry for entry in told if entry["type"] == kind), {})


def is_ready(pod: Object) -> bool:
    """Does it run, and take part?"""
    return runs(pod) and condition(pod, "Ready").get("status") == "True"


def ready_since(pod: Object) -> float:
    """Since when it is as it is: ready, or not."""
    return seconds(condition(pod, "Ready").get("lastTransitionTime"))


def containers(pod: Object) -> list[Object]:
    """What is known of each container, of those first that run before the others."""
    status = pod.get("status", {})
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def ends(pod: Object) -> list[tuple[Object, Object]]:
    """Containers that have ended, and how."""
    return [(one, end) for one in containers(pod) if (end := one.get("state", {}).get("terminated"))]


def ended_at(pod: Object) -> float:
    """When the last of its containers ended; as soon as it was made, where none ever began."""
    return max([created(pod), *(seconds(end.get("finishedAt")) for _, end in ends(pod))])


def why_blocked(pod: Object, called: str, why_ended: Callable[[Object], str]) -> str:
    """What keeps a pod from starting, if it is more than the time that it takes; `called`: its name, or "it";
    `why_ended`: why a container ended before it did anything, as `why_not_begun` or with more words."""
    own = "its container" if called == "it" else f"the container of {called}"
    for container in containers(pod):
        waits = container.get("state", {}).get("waiting", {})
        if waits.get("reason") in _NO_IMAGE:
            return f"the image {container.get('image')} is not available ({waits.get('message') or waits['reason']})"
        slow = waits.get("reason") in (None, "ContainerCreating", "PodInitializing")
        why = why_ended(container) if slow else str(waits.get("message") or waits["reason"])
        if why:
            return f"{own} cannot start: {why}"
    refused = condition(pod, "PodScheduled")
    if phase(pod) == "Pending" and refused.get("status") == "False":
        return f"no machine of the cluster can take {called}: {refused.get('message') or refused.get('reason')}"
    return ""


def why_not_begun(container: Object) -> str:
    """Why a container could not be started; empty otherwise."""
    end = container.get("state", {}).get("terminated", {})
    if end.get("reason") not in ("StartError", "ContainerCannotRun"):
        return ""
    return str(end.get("message") or "").strip() or str(end["reason"])


def disruption(pod: Object) -> Object:
    """Why others made it go; nothing where they did not."""
    found = condition(pod, "DisruptionTarget")
    return found if found.get("status") == "True" else {}


def unexpected_end(pod: Object, main: str) -> tuple[str, bool] | None:
    """How a pod ended, or is about to, that neither it nor its owner wanted: words that go behind its name, and whether
    it asked for too little itself. `main`: the container that is meant where none is named."""
    status, why = pod.get("status", {}), disruption(pod)
    if status.get("reason") == "Evicted":
        message = str(status.get("message") or "its machine ran short").strip().rstrip(".")
        return f"was evicted: {message}", any(words in message for words in _OWN_LIMITS)
    if words := _DISRUPTED.get(why.get("reason", "")):
        return f"{words}: {str(why.get('message') or why['reason']).strip().rstrip('.')}", False
    if phase(pod) != "Failed" or terminates(pod):  # a deleted pod had to end
        return None
    for container, end in ends(pod):
        if end.get("reason") == "OOMKilled" and end.get("exitCode") == KILLED:
            name = str(container.get("name"))
            limit = _memory(container) or _memory(_asked(pod, name))
            who = "it" if name == main else f"its container {name}"
            amount = f"than its {limit} of memory" if limit else "memory than there was for it"
            return f"was killed: {who} used more {amount} (OOMKilled)", True
    return None


def _memory(container: Object) -> str:
    return str(container.get("resources", {}).get("limits", {}).get("memory", ""))


def _asked(pod: Object, container: str) -> Object:
    """A container as its pod asked for it; who keeps only the status of pods does not know."""
    spec = pod.get("spec", {})
    asked = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    return next((one for one in asked if one.get("name") == container), {})


# -- machines ----------------------------------------------------------------------------------------------------------


def machines(api: Api) -> dict[str, object]:
    """Nodes, and GPUs where the user may list all pods; empty for users who may not list nodes."""
    try:
        nodes = api.list("/api/v1/nodes")
    except Forbidden:
        return {}
    total = sum(int(node["status"].get("allocatable", {}).get(_GPU, 0)) for node in nodes)
    ready = sum(map(takes_pods, nodes))
    found: dict[str, object] = {"max_nodes": len(nodes), "unusable_nodes": len(nodes) - ready, "total_gpu": total}
    if total:
        with suppress(Forbidden):
            found["free_gpu"] = total - sum(map(gpus_of, api.list("/api/v1/pods")))
    return found


def takes_pods(node: Object) -> bool:
    """Whether a machine does."""
    return condition(node, "Ready").get("status") == "True" and not node["spec"].get("unschedulable")


def gpus_of(pod: Object) -> int:
    """What a pod holds; one that has ended, or has no machine yet, holds nothing."""
    if has_ended(pod) or not pod["spec"].get("nodeName"):
        return 0
    limits = (container.get("resources", {}).get("limits", {}) for container in pod["spec"]["containers"])
    return sum(int(limit.get(_GPU, 0)) for limit in limits)


# -- pieces of objects -------------------------------------------------------------------------------------------------


def merged(old: Object, new: Object) -> dict[str, Any]:
    """Mappings are merged; lists whose items have names (containers, volumes, env, tolerations by key) are merged item
    by item, each with one that was there before; any other list, and everything else, replaces what was there."""
    result = dict(old)
    for name, value in new.items():
        before = result.get(name)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            result[name] = merged(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            result[name] = __merged_lists(before, value, name)
        else:
            result[name] = value
    return result


def __merged_lists(old: list[Any], new: list[Any], name: str) -> list[Any]:
    key = _NAMES.get(name, "name")
    nameless = name == "tolerations"  # one without a key stands for every key, and beside the others
    if not all(isinstance(item, Mapping) and (key in item or nameless) for item in (*old, *new)):
        return new
    result, free = list(old), list(range(len(old)))
    for item in new:
        places = [place for place in free if key in item and old[place].get(key) == item[key]]
        if places:
            result[places[0]] = merged(result[places[0]], item)
            free.remove(places[0])
        else:
            result.append(item)
    return result
