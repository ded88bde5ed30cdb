"""What an operator can do about a job, as plain data: `reconcile.py` decides it, `apply.py` does it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from petctl.clusters.kubernetes.operator.elasticjob import Object


class SpareReply(NamedTuple):
    """What a coordinator answered: which nodes it can spare."""

    wanted: int
    nodes: tuple[str, ...]
    release: tuple[str, ...]


class Prepare(NamedTuple):
    """Secret, ConfigMaps and Service, as far as they are missing: nothing is counted before they are there."""

    wanted: int


class CreateCoordinator(NamedTuple):
    """A pod."""

    number: int
    alone: bool  # no node runs


class CreateService(NamedTuple):
    """The one address of the coordinator."""


class CreateNode(NamedTuple):
    """A pod."""

    node: int
    number: int


class Delete(NamedTuple):
    """One pod, with its grace."""

    pod: Object


class DeleteService(NamedTuple):
    """The job is over, and nobody asks its coordinator any more."""


class KeepNodes(NamedTuple):
    """A PodDisruptionBudget: whoever drains machines must leave so many nodes that take part."""

    least: int


class DeleteBudget(NamedTuple):
    """The PodDisruptionBudget: nothing is left for it to keep."""


class DeleteJob(NamedTuple):
    """The ElasticJob, and all that it owns."""


class Tell(NamedTuple):
    """The coordinator, how many nodes are wanted, and which there are; then decide again with its answer."""

    wanted: int
    nodes: tuple[str, ...]


class Announce(NamedTuple):
    """An event for people. It may be lost."""

    reason: str
    message: str
    warning: bool = False


Step = (
    Prepare
    | CreateCoordinator
    | CreateService
    | CreateNode
    | Delete
    | DeleteService
    | KeepNodes
    | DeleteBudget
    | DeleteJob
    | Tell
    | Announce
)


class Decision(NamedTuple):
    """What a look led to."""

    status: Mapping[str, Any]
    steps: tuple[Step, ...] = ()
    look_at: float | None = None
