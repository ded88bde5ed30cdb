"""How a pod ended that nobody of the job asked to end: killed for memory, evicted, preempted, gone with its machine.

Objects in, words out. The words show their cause (`petctl.causes`); what an operator remembers of pods that it has
removed is read here too. A pod that left by itself, or whose agent said why it failed, is not told of.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from petctl.clusters.kubernetes.names import CONTAINER, node_of
from petctl.job.status import JobStatus
from petctl.kube.timestamps import seconds

KILLED = 137
LONG_LIFE = 60.0
"""Seconds: a round of all nodes that has run so long shows that they are well."""
_OWN_LIMITS = ("exceeds the", "exceeded its")  # in a kubelet's words: the pod's limits, not the machine's
_DISRUPTED = {
    "PreemptionByScheduler": "was preempted",
    "EvictionByEvictionAPI": "had to leave its machine",
    "TerminationByKubelet": "had to leave its machine",
    "DeletionByTaintManager": "was lost with its machine",
    "DeletionByPodGC": "was lost with its machine",
}
"""Reasons of the condition DisruptionTarget."""

Object = Mapping[str, Any]


class End(NamedTuple):
    """One of them."""

    node: str
    pod: str
    words: str  # behind its name
    time: float
    uid: str  # of the pod: another may have its name
    own: bool = False  # the pod asked for too little: the next one ends like it

    @property
    def sentence(self) -> str:
        """What people read."""
        of_node = f" of node {self.node}" if self.node != self.pod else ""  # a coordinator's is of none
        return f"pod {self.pod}{of_node} {self.words}"


def end_of(pod: Object) -> End | None:
    """How it ended, or is about to; None: it goes on, or there is nothing to tell."""
    found = _evicted(pod) or _disrupted(pod) or _killed(pod)
    if found is None:
        return None
    words, own = found
    about = pod["metadata"]
    return End(node_of(dict(pod)), str(about["name"]), words, _ended_at(pod), str(about.get("uid", "")), own)


def ends_of(pods: Iterable[Object], owner: Object) -> list[End]:
    """Those of a job, the oldest first: of pods that are there, and of those that its operator remembers."""
    told = [*remembered(owner.get("status") or {}), *filter(None, map(end_of, pods))]
    return sorted({end.uid: end for end in told}.values(), key=lambda end: end.time)


def remembered(status: Object) -> Iterator[End]:
    """What an ElasticJob's status says of pods that are gone."""
    for entry in status.get("ends") or ():
        yield End(
            str(entry.get("node", "")),
            str(entry["pod"]),
            str(entry["message"]),
            seconds(entry.get("time")),
            str(entry.get("uid", "")),
            bool(entry.get("own")),
        )


def explained(status: JobStatus, ends: Sequence[End]) -> JobStatus:
    """The status with the last of these in its sentence; while the job goes on, only what may happen again counts."""
    going, now = status.finished is None, time.time()
    counted = [end for end in ends if not going or (end.own and not _is_over(end, status, now))]
    if not counted or counted[-1].words in status.sentence:  # it is said already
        return status
    last = counted[-1]
    times = sum(end.words == last.words for end in counted)
    often = f" ({times} pods ended so)" if times > 1 else ""
    return replace(status, sentence=f"{status.sentence}; {last.sentence}{often}")


def _is_over(end: End, status: JobStatus, now: float) -> bool:
    """Did all the nodes that are wanted train for a while since?"""
    starts = [past.started or now for past in status.rounds]
    return any(
        begun >= end.time and until - begun >= LONG_LIFE and len(past.nodes) >= status.size.wanted
        for past, begun, until in zip(status.rounds, starts, [*starts[1:], now], strict=False)
    )


def may_have_lost(status: JobStatus) -> bool:
    """Whether it is worth a look: nodes were lost, or the job ended for no reason of its workers."""
    if status.finished is not None:
        return status.state in ("failed", "lost") and status.error is None
    return status.nodes_lost > 0


def _killed(pod: Object) -> tuple[str, bool] | None:
    """By the kernel, for memory. Of a process that the agent outlived, the agent tells; a deleted pod had to end."""
    status = pod.get("status", {})
    if pod["metadata"].get("deletionTimestamp"):
        return None
    for container in chain(status.get("initContainerStatuses") or (), status.get("containerStatuses") or ()):
        end = container.get("state", {}).get("terminated") or {}
        if status.get("phase") == "Failed" and end.get("reason") == "OOMKilled" and end.get("exitCode") == KILLED:
            name = str(container.get("name"))
            who = "it" if name == CONTAINER else f"its container {name}"
            limit = container.get("resources", {}).get("limits", {}).get("memory") or _limit(pod, name)
            amount = f"than its {limit} of memory" if limit else "memory than there was for it"
            return f"was killed: {who} used more {amount} (OOMKilled)", True
    return None


def _limit(pod: Object, name: str) -> str:
    """As it was asked for; an operator knows the status only."""
    spec = pod.get("spec", {})
    for container in chain(spec.get("initContainers") or (), spec.get("containers") or ()):
        if container.get("name") == name:
            return str(container.get("resources", {}).get("limits", {}).get("memory", ""))
    return ""


def _evicted(pod: Object) -> tuple[str, bool] | None:
    """By its kubelet: it used more than it may, or the machine ran short."""
    status = pod.get("status", {})
    if status.get("reason") != "Evicted":
        return None
    message = str(status.get("message") or "its machine ran short").strip().rstrip(".")
    return f"was evicted: {message}", any(words in message for words in _OWN_LIMITS)


def _disrupted(pod: Object) -> tuple[str, bool] | None:
    for condition in pod.get("status", {}).get("conditions") or ():
        words = _DISRUPTED.get(condition.get("reason", ""))
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True" and words:
            message = str(condition.get("message") or condition["reason"]).strip().rstrip(".")
            return f"{words}: {message}", False
    return None


def _ended_at(pod: Object) -> float:
    status = pod.get("status", {})
    containers = chain(status.get("initContainerStatuses") or (), status.get("containerStatuses") or ())
    ends = [container.get("state", {}).get("terminated") or {} for container in containers]
    moments = [seconds(end.get("finishedAt")) for end in ends]
    conditions = [entry for entry in status.get("conditions") or () if entry["type"] == "DisruptionTarget"]
    moments += [seconds(entry.get("lastTransitionTime")) for entry in conditions]
    return max([*moments, seconds(pod["metadata"].get("creationTimestamp"))])
