"""Which kinds of clusters there are: petctl's own, and those that other packages bring.

A package brings a kind by an entry point of the group `petctl.clusters`: its name is the kind, its object is called
with $PETCTL_HOME and the cluster's settings and gives a `Cluster` (`petctl.clusters.base`). Entry points are read only
for a kind that is none of petctl's own, since reading them takes longer than most commands.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

GROUP = "petctl.clusters"
DEFAULT = "local"
KINDS = {
    "debug": "petctl.clusters.debug.backend",
    "local": "petctl.clusters.local.backend",
    "kubernetes": "petctl.clusters.kubernetes.backend",
    "k8s": "petctl.clusters.kubernetes.backend",
}
"""Petctl's own, each with the module that holds its `connect`."""
PROVISIONER_GROUP = "petctl.provisioners"
PROVISIONERS = {"local": "petctl.clusters.local.pools.pool"}
"""Of petctl's own kinds, each with the module that makes clusters."""


def find_kind(kind: str) -> Callable[..., Any]:
    """What makes a cluster of this kind, which there is."""
    if kind in KINDS:
        connect: Callable[..., Any] = importlib.import_module(KINDS[kind]).connect
        return connect
    brought: Callable[..., Any] = _brought()[kind].load()
    return brought


def load_provisioner(kind: str) -> Any:
    """What makes clusters of this kind (`petctl.clusters.provisioner`); None where nothing does."""
    if kind in PROVISIONERS:
        return importlib.import_module(PROVISIONERS[kind])
    point = None if kind in KINDS else _brought(PROVISIONER_GROUP).get(kind)
    return None if point is None else point.load()


def is_kind(name: str) -> bool:
    """Whether there is a kind of this name; nothing of it is imported."""
    return name in KINDS or name in _brought()


def all_kinds() -> list[str]:
    """The names of all kinds, in order."""
    return sorted({*KINDS, *_brought()})


@cache
def _brought(group: str = GROUP) -> dict[str, Any]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=group)}
