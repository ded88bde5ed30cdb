"""What is kept of pods that ended badly, in the job's status: they are removed when their successors are made. Pure.

    noted(status, pods)      the last ends, what is new among them, and how often pods asked for too little

Pods that were killed because they asked for too little are counted like failures of workers: with more than
`backoffLimit` of them the job has failed. As with workers, all that ends together counts once: the pods that there are
when one is counted are not counted within the next minute. That is told by the pods' numbers, since clocks of machines
differ. A pod that somebody deleted is not counted, however it ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from petctl import causes
from petctl.clusters.kubernetes.names import NODE
from petctl.clusters.kubernetes.operator.actions import Announce
from petctl.clusters.kubernetes.operator.elasticjob import Object
from petctl.clusters.kubernetes.operator.pods import number_of, role_of
from petctl.clusters.kubernetes.pods.pod_termination import End, end_of
from petctl.kube.objects import has_ended, is_live, seconds, terminates, written

KEPT = 8
"""So many ends are remembered."""
TOGETHER = 60.0
"""Seconds: pods that there were before end together if they end so close to each other."""


class Noted(NamedTuple):
    """What the ends of pods lead to."""

    status: dict[str, Any]  # the fields that hold them
    new: list[End]  # those not known before
    kill: End | None  # what is counted now

    def told(self) -> list[Announce]:
        """What is new, for people."""
        return [Announce(_reason(end), end.sentence, warning=True) for end in self.new]


def noted(status: Mapping[str, Any], pods: Iterable[Object]) -> Noted:
    """Looks at all pods of a job; at the second look nothing is new."""
    over = [pod for pod in pods if not is_live(pod)]
    entries, new = _remembered(status, over)
    fields: dict[str, Any] = {"ends": entries} if entries else {}
    since, last = int(status.get("killsFrom") or 0), seconds(status.get("killedAt"))
    kill: End | None = None
    for pod in over:
        end = end_of(pod) if role_of(pod) == NODE and has_ended(pod) and not terminates(pod) else None
        if end and end.own and (number_of(pod) >= since or end.time > last + TOGETHER):
            kill = end if kill is None or end.time > kill.time else kill
    if kill is not None:
        fields |= {"kills": int(status.get("kills") or 0) + 1, "killedAt": written(max(last, kill.time))}
        fields["killsFrom"] = int(status.get("nodes") or 0)
    return Noted(fields, new, kill)


def last_cause(status: Mapping[str, Any]) -> str:
    """Why a pod was lost last; empty where none was, where the job is whole again, or where the cause is unknown."""
    ends = status.get("ends") or [{}]
    return "" if ends[-1].get("over") else str(ends[-1].get("cause") or "")


def closed(entries: Iterable[Mapping[str, Any]], with_own: bool) -> list[dict[str, Any]]:
    """Marks ends as over: all pods that the job wants run again. Pods that were killed for their own use may be killed
    again, so theirs are marked only `with_own`."""
    return [{**entry, "over": True} if with_own or not entry.get("own") else dict(entry) for entry in entries]


def _remembered(status: Mapping[str, Any], pods: Iterable[Object]) -> tuple[list[dict[str, Any]], list[End]]:
    """The last ones of all that are known, so that those that fell out stay out; and the ends that came in."""
    kept = list(status.get("ends") or ())
    known = {entry.get("uid") for entry in kept}
    ends = {end.uid: end for end in map(end_of, pods) if end and end.uid not in known}
    entries = sorted([*kept, *map(_entry, ends.values())], key=lambda entry: (entry["time"], entry["uid"]))[-KEPT:]
    return entries, [ends[entry["uid"]] for entry in entries if entry["uid"] in ends]


def _entry(end: End) -> dict[str, Any]:
    about = {"node": end.node, "pod": end.name, "message": end.words, "time": written(end.time)}
    return {**about, "cause": causes.find(end.sentence), "uid": end.uid, **({"own": True} if end.own else {})}


def _reason(end: End) -> str:
    """The cause as events are named."""
    return "".join(word.capitalize() for word in causes.find(end.sentence).split("-")) or "PodEnded"
