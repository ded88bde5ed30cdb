"""What the cluster's events tell of a job's pods: why they are not made, why they do not start, why they are gone."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from petctl.clusters.kubernetes.job_status import why_blocked
from petctl.clusters.kubernetes.names import NODE, node_of, object_name
from petctl.clusters.kubernetes.pods.pod_termination import End, end_of
from petctl.kube.api import Api, path
from petctl.kube.failures import Forbidden
from petctl.kube.objects import Object, by_age, phase, seconds

NOBODY_MAKES_IT = "its submission was interrupted; cancel the job and submit it again"
_REFUSALS = ("FailedCreate", "Hindered")  # of the Job controller, and of petctl's operator
_TROUBLES = ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox")  # of the kubelet
_DELETIONS = {"Preempted": "was preempted", "TaintManagerEviction": "was lost with its machine"}
_BEFORE = re.compile(r"^(?:.*Error creating: )?(?:pods \S+ is forbidden: )?", re.DOTALL)  # with a name of the moment
_LIMITS = "options.kubernetes.limits for nodes, options.kubernetes.coordinator for the coordinator"
_WHERE = re.compile(r" \(the Kubernetes API server [^()]*(?:\([^()]*\))?\).*", re.DOTALL)


def absent(
    pods: Sequence[Object],
    come: Collection[str],
    wanted: int,
    refused: Callable[[], str],
    troubles: Callable[[], Mapping[str, str]],
) -> dict[str, str]:
    """Why nodes have not come that are `wanted`. `refused` is asked where there are no pods, `troubles` where a pod
    does not say itself why it does not start."""
    newest = {node_of(pod): pod for pod in by_age(pods)}
    awaited = {node: pod for node, pod in newest.items() if node not in come}
    kept = {node: why for node, pod in awaited.items() if (why := why_blocked(pod, "it") or _why_ended(pod))}
    silent = {node: pod["metadata"]["name"] for node, pod in awaited.items() if node not in kept and _waits(pod)}
    known = troubles() if silent else {}
    kept |= {node: f"it cannot start: {known[name]}" for node, name in silent.items() if name in known}
    there = {*come, *kept, *(node for node, pod in newest.items() if phase(pod) != "Failed")}
    without = [node for node in map(str, range(wanted)) if node not in there][: max(0, wanted - len(there))]
    if without and (why := refused()):
        kept |= dict.fromkeys(without, why)
    return kept


def _why_ended(pod: Object) -> str:
    """What was the end of a pod that was not replaced yet."""
    end = end_of(pod)
    return f"its pod {end.words}" if end else ""


def refusal(api: Api, namespace: str, kind: str, name: str) -> str:
    """Why the object that should make pods has made none; empty where nobody has said so."""
    told = _warnings(api, namespace, f"involvedObject.kind={kind},involvedObject.name={name}", _REFUSALS)
    if not told:
        return ""
    why = _WHERE.sub("", _BEFORE.sub("", str(told[-1].get("message") or "")))
    if "quota" in why:
        advice = f"; give it limits ({_LIMITS})" if "must specify limits" in why else ""
        return f"the namespace's quota does not allow its pod: {why}{advice}"
    if "PodSecurity" in why:
        return f"the namespace's pod security does not allow its pod: {why}"
    return f"its pod cannot be created: {why}"


def troubles(api: Api, namespace: str) -> dict[str, str]:
    """What keeps pods from starting that have a machine already, by their names."""
    told = _warnings(api, namespace, "involvedObject.kind=Pod", _TROUBLES)
    return {event["involvedObject"]["name"]: str(event.get("message") or event["reason"]) for event in told}


def trouble_of(api: Api, namespace: str, pods: Sequence[Object]) -> str:
    """What keeps the newest of these, where it does not say so itself."""
    newest = by_age(pods)[-1]
    name = str(newest["metadata"]["name"])
    if not _waits(newest) or why_blocked(newest, name):
        return ""
    why = troubles(api, namespace).get(name)
    return f"{name} cannot start: {why}" if why else ""


def vanished(api: Api, namespace: str, job_id: str) -> list[End]:
    """How nodes' pods ended that were deleted, as long as the cluster keeps its events."""
    first = f"{object_name(job_id)}-{NODE}-"
    found: list[End] = []
    for reason, words in _DELETIONS.items():
        for event in _events(api, namespace, f"involvedObject.kind=Pod,reason={reason}"):
            about, message = event["involvedObject"], str(event.get("message") or reason)
            pod, when = str(about["name"]), event.get("lastTimestamp") or event.get("eventTime")
            if pod.startswith(first) and not message.startswith("Cancelling"):
                node = pod[len(first) :].partition("-")[0]
                text = f"{words}: {message.rstrip('.')}"
                found.append(End(node, pod, text, seconds(when), str(about.get("uid", ""))))
    return found


def _waits(pod: Object) -> bool:
    return phase(pod) == "Pending"


def _warnings(api: Api, namespace: str, which: str, reasons: Sequence[str]) -> list[dict[str, Any]]:
    """Those for these reasons, the newest last."""
    told = _events(api, namespace, f"{which},type=Warning")
    return sorted((event for event in told if event.get("reason") in reasons), key=_time)


def _events(api: Api, namespace: str, which: str) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = api.get(path("events", namespace), fieldSelector=which)["items"]
    except Forbidden:  # a role from before that right was part of it
        return []
    return found


def _time(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")
