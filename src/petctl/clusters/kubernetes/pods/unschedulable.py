"""Why nodes that a job wants do not run: in the words of their pods, or of what should make their pods and may not.

A coordinator knows only those that have come to it. What keeps the others away, only Kubernetes can tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from petctl.clusters.kubernetes.job_status import why_blocked
from petctl.clusters.kubernetes.names import by_age, node_of
from petctl.clusters.kubernetes.pods.pod_termination import end_of
from petctl.job.status import JobStatus, NodeStatus
from petctl.kube.api import Api, Items, path
from petctl.kube.failures import Forbidden
from petctl.rendezvous.core.decide import natural

NOBODY_MAKES_IT = "its submission was interrupted; cancel the job and submit it again"
_REASONS = ("FailedCreate", "Hindered")  # of the Job controller, and of petctl's operator
_TROUBLES = ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox")  # of the kubelet
_BEFORE = re.compile(r"^(?:.*Error creating: )?(?:pods \S+ is forbidden: )?", re.DOTALL)  # with a name of the moment
_LIMITS = "options.kubernetes.limits for nodes, options.kubernetes.coordinator for the coordinator"
_WHERE = re.compile(r" \(the Kubernetes API server [^()]*(?:\([^()]*\))?\).*", re.DOTALL)


def explained(
    status: JobStatus, pods: Items, refused: Callable[[], str], troubles: Callable[[], Mapping[str, str]]
) -> JobStatus:
    """The same with the nodes that have not come, and what keeps them. `refused` is asked where there are no pods,
    `troubles` where a pod does not say itself why it does not start."""
    come, wanted = {node.name for node in status.nodes}, status.size.wanted
    newest = {node_of(pod): pod for pod in by_age(pods)}
    awaited = {node: pod for node, pod in newest.items() if node not in come}
    kept = {node: why for node, pod in awaited.items() if (why := why_blocked(pod, "it") or _why_ended(pod))}
    silent = {node: pod["metadata"]["name"] for node, pod in awaited.items() if node not in kept and _waits(pod)}
    known = troubles() if silent else {}
    kept |= {node: f"it cannot start: {known[name]}" for node, name in silent.items() if name in known}
    alive = {node for node, pod in newest.items() if pod.get("status", {}).get("phase") != "Failed"}
    without = [str(index) for index in range(wanted) if str(index) not in {*come, *alive, *kept}]
    without = without[: max(0, wanted - len({*come, *alive, *kept}))]
    if without and (why := refused()):
        kept |= dict.fromkeys(without, why)
    rows = [*status.nodes, *(NodeStatus(node, "pending", sentence=why) for node, why in kept.items())]
    words = [status.sentence, *_sentences(kept)]
    rows.sort(key=lambda row: natural(row.name))
    cut_short = status.cut_short or NOBODY_MAKES_IT in kept.values()
    return replace(status, nodes=rows, sentence="; ".join(words), cut_short=cut_short)


def _why_ended(pod: Mapping[str, Any]) -> str:
    """What was the end of a pod that was not replaced yet."""
    end = end_of(pod)
    return f"its pod {end.words}" if end else ""


def _sentences(kept: Mapping[str, str]) -> list[str]:
    """One for each reason."""
    nodes: dict[str, list[str]] = {}
    for node in sorted(kept, key=natural):
        nodes.setdefault(kept[node], []).append(node)
    return [f"node{'s' if len(names) > 1 else ''} {', '.join(names)}: {why}" for why, names in nodes.items()]


def refusal(api: Api, namespace: str, kind: str, name: str) -> str:
    """Why the object that should make pods has made none; empty where nobody has said so."""
    told = _events(api, namespace, f"involvedObject.kind={kind},involvedObject.name={name}", _REASONS)
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
    told = _events(api, namespace, "involvedObject.kind=Pod", _TROUBLES)
    return {event["involvedObject"]["name"]: str(event.get("message") or event["reason"]) for event in told}


def trouble_of(api: Api, namespace: str, pods: Items) -> str:
    """What keeps the newest of these, where it does not say so itself."""
    newest = by_age(pods)[-1]
    name = str(newest["metadata"]["name"])
    if not _waits(newest) or why_blocked(newest, name):
        return ""
    why = troubles(api, namespace).get(name)
    return f"{name} cannot start: {why}" if why else ""


def _waits(pod: Mapping[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") in (None, "Pending")


def _events(api: Api, namespace: str, which: str, reasons: Sequence[str]) -> list[dict[str, Any]]:
    """Warnings for these reasons, the newest last."""
    try:
        found = api.get(path("events", namespace), fieldSelector=f"{which},type=Warning")["items"]
    except Forbidden:  # a role from before that right was part of it
        return []
    return sorted((event for event in found if event.get("reason") in reasons), key=_time)


def _time(event: Mapping[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")
