"""What is known of one job at one moment, and small questions about it."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

from petctl.clusters.kubernetes.names import INDEX, NODE
from petctl.clusters.kubernetes.operator.actions import SpareReply
from petctl.clusters.kubernetes.operator.elasticjob import ElasticJob, Object
from petctl.clusters.kubernetes.operator.pods import number_of, role_of
from petctl.kube.objects import is_live, runs


class Seen(NamedTuple):
    """All that is known of one job."""

    job: ElasticJob
    pods: Sequence[Object] = ()  # those that it owns
    service: bool = False  # is there one?
    taken: Container[int] = ()  # indices of which an earlier job of that name still has a pod
    room_at: float = 0.0  # when a machine may have got room last
    told: SpareReply | None = None  # just now
    malformed: str = ""  # why it can never run, as the server said just now
    kept: int | None = None  # nodes that its PodDisruptionBudget keeps; 0: it has none, None: that is not known


def of_role(seen: Seen, role: str) -> list[Object]:
    """The job's pods of that role that the operator made."""
    return [pod for pod in seen.pods if role_of(pod) == role and number_of(pod) >= 0]


def index_of(pod: Object) -> int:
    return number_of(pod, INDEX)


def names_of(pods: Sequence[Object]) -> tuple[str, ...]:
    return tuple(str(index_of(pod)) for pod in pods)


def generation_of(job: ElasticJob) -> int:
    return int(job.object["metadata"].get("generation") or 0)


def counts_of(seen: Seen, failed: bool = False) -> dict[str, Any]:
    """Counts the pods of nodes by their state. Nodes end with 0 once they are told that the job is over, however it
    ended: those of a `failed` job have not succeeded."""
    nodes = of_role(seen, NODE)
    live = [pod for pod in nodes if is_live(pod)]
    phases = [pod.get("status", {}).get("phase") for pod in nodes]
    well, badly = phases.count("Succeeded"), phases.count("Failed")
    ready = sum(runs(pod) for pod in live)
    return {
        "replicas": len(live),
        "readyReplicas": ready,
        "replicaStatuses": {
            "active": ready,
            "pending": len(live) - ready,
            "succeeded": 0 if failed else well,
            "failed": badly + well if failed else badly,
        },
    }
