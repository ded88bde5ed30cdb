"""How a job's pods ended that nobody of the job asked to end: killed for memory, evicted, preempted, gone with their
machine.

What an operator remembers of pods that it has removed is read here too. A pod that left by itself, or whose agent said
why it failed, is not told of. The words show their cause (`petctl.causes`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from petctl.clusters.kubernetes.names import CONTAINER, node_of
from petctl.clusters.node_ends import NodeEnd
from petctl.kube.objects import Object, disruption, ended_at, seconds, unexpected_end


@dataclass(frozen=True)
class End(NodeEnd):
    """A pod's."""

    kind = "pod"


def end_of(pod: Object) -> End | None:
    """How it ended, or is about to; None: it goes on, or there is nothing to tell."""
    found, about = unexpected_end(pod, CONTAINER), pod["metadata"]
    if found is None:
        return None
    time = max(ended_at(pod), seconds(disruption(pod).get("lastTransitionTime")))
    return End(node_of(pod), str(about["name"]), found[0], time, str(about.get("uid", "")), found[1])


def ends_of(pods: Iterable[Object], owner: Object) -> list[End]:
    """Those of a job, the oldest first: of pods that are there, and of those that its operator remembers."""
    remembered = [
        End(
            node=str(entry.get("node", "")),
            name=str(entry["pod"]),
            words=str(entry["message"]),
            time=seconds(entry.get("time")),
            uid=str(entry.get("uid", "")),
            own=bool(entry.get("own")),
        )
        for entry in owner.get("status", {}).get("ends") or ()
    ]
    told = [*remembered, *filter(None, map(end_of, pods))]
    return sorted({end.uid: end for end in told}.values(), key=lambda end: end.time)
