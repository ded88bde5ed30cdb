"""A coordinator's events with what Kubernetes knows of the nodes that were lost: it only sees that they are gone.

explained(events, ends)             those there are
explained_as_they_come(events, look)
vanished(api, namespace, job_id)    ends of pods that are gone themselves, as the cluster's events tell them
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from petctl.clusters.kubernetes.names import NODE, object_name
from petctl.clusters.kubernetes.pods.pod_termination import End
from petctl.kube.api import Api, path
from petctl.kube.failures import Forbidden
from petctl.kube.timestamps import seconds
from petctl.rendezvous.core.events import NOT_MISSED

NEAR = 60.0
"""Seconds between the loss of a node and the end of its pod, at most."""
_LOOKS = 5  # for the end of a lost node's pod: it may have been deleted, and nobody tells
_REASONS = {"Preempted": "was preempted", "TaintManagerEviction": "was lost with its machine"}
"""Reasons of events about pods that are deleted, in plain words."""

Event = dict[str, Any]


def explained(events: Iterable[Event], ends: Sequence[End]) -> Iterator[Event]:
    """Each end beside the loss that it explains; those that explain none come last."""
    left = list(ends)
    for event in events:
        end = next((end for end in left if _explains(end, event)), None)
        if end is not None:
            left.remove(end)
            event = {**event, "sentence": f"{event['sentence']}; {end.sentence}", "why": end.words}
        yield event
    yield from map(_event, left)


def explained_as_they_come(events: Iterable[Event], look: Callable[[], Sequence[End]]) -> Iterator[Event]:
    """An end is known a while after the loss: it is looked for before each further event, and at the end."""
    told: set[str] = set()
    looks = 0

    def news() -> Iterator[Event]:
        nonlocal looks
        looks -= 1
        for end in look():
            if end.uid not in told:
                told.add(end.uid)
                looks = 0
                yield _event(end)

    for event in events:
        if looks:
            yield from news()
        yield event
        if event.get("kind") == "lost" and event.get("why") not in NOT_MISSED:
            looks = _LOOKS
    if looks:
        yield from news()


def vanished(api: Api, namespace: str, job_id: str) -> list[End]:
    """Of pods that were deleted, as long as the cluster keeps its events."""
    first = f"{object_name(job_id)}-{NODE}-"
    found: list[End] = []
    for reason, words in _REASONS.items():
        try:
            told = api.get(path("events", namespace), fieldSelector=f"involvedObject.kind=Pod,reason={reason}")["items"]
        except Forbidden:  # a role from before that right was part of it
            return []
        for event in told:
            about, when = event["involvedObject"], event.get("lastTimestamp") or event.get("eventTime")
            pod = str(about["name"])
            if pod.startswith(first) and not str(event.get("message")).startswith("Cancelling"):
                message = str(event.get("message") or reason).rstrip(".")
                node = pod[len(first) :].partition("-")[0]
                found.append(End(node, pod, f"{words}: {message}", seconds(when), str(about.get("uid", ""))))
    return found


def _explains(end: End, event: Event) -> bool:
    return event.get("kind") == "lost" and event.get("node") == end.node and abs(event["time"] - end.time) <= NEAR


def _event(end: End) -> Event:
    return {"time": end.time, "kind": "lost", "sentence": end.sentence, "node": end.node, "why": end.words}
