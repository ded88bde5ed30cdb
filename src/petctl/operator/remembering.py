"""What is kept of pods that ended badly, in the job's status: they are removed when their successors are made. Pure.

    remembered(status, pods)      the last ends, with what is new among them
    counted(status, pods)         how often pods asked for too little, and until when that was counted

Pods that were killed for what they asked too little of are counted like failures of workers, whose pods they were: from
`backoffLimit` of them the job is restarted. As with workers, all that ends together counts once: only a pod that was
started after the last one that was counted is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from petctl import causes
from petctl.clusters.kubernetes.moments import seconds, written
from petctl.clusters.kubernetes.podends import End, end_of
from petctl.operator.elasticjob import Object
from petctl.operator.lives import began_at

KEPT = 8
"""So many ends are remembered."""


def remembered(status: Mapping[str, Any], pods: Iterable[Object]) -> tuple[list[dict[str, Any]], list[End]]:
    """The entries of the status, and the ends that were not among them."""
    kept, new = list(status.get("ends") or ()), []
    for end in sorted(filter(None, map(end_of, pods)), key=lambda end: end.time):
        time = written(end.time)
        known = any(entry.get("uid") == end.uid for entry in kept)
        older = bool(kept) and time < kept[-1]["time"]  # it was there, and others have taken its place
        if known or older or sum(entry["time"] == time for entry in kept) >= KEPT:
            continue
        new.append(end)
        kept = [*kept, _entry(end, time)][-KEPT:]
    return kept, new


def _entry(end: End, time: str) -> dict[str, Any]:
    about = {"node": end.node, "pod": end.pod, "message": end.words, "time": time, "cause": cause_of(end)}
    return {**about, "uid": end.uid, **({"own": True} if end.own else {})}


def cause_of(end: End) -> str:
    """Its name; empty where it has none."""
    return causes.find(end.sentence)


def last_cause(status: Mapping[str, Any]) -> str:
    """Why a pod was lost last; empty where none was, or nobody knows."""
    ends = status.get("ends") or [{}]
    return str(ends[-1].get("cause") or "")


def counted(status: Mapping[str, Any], pods: Iterable[Object]) -> tuple[int, str, End | None]:
    """How many there were until now, until when, and the last one if it is new."""
    kills, until = int(status.get("kills") or 0), str(status.get("killedAt") or "")
    fresh = [end for pod in pods if began_at(pod) > seconds(until) and (end := end_of(pod)) and end.own]
    if not fresh:
        return kills, until, None
    last = max(fresh, key=lambda end: end.time)
    return kills + 1, written(last.time), last
