"""An image that nobody here can run: those of old documents are often not to be had, and their jobs go without one."""

from __future__ import annotations

from pathlib import Path

from petctl.clusters.base import HERE, cluster_kind, find_cluster
from petctl.errors import UsageError
from petctl.machine.engines import find_engine


def lacks_engine(home: Path, cluster: str, image: str) -> bool:
    """Whether jobs of that cluster run on this machine, where nobody can run a container of the image."""
    if not image or HERE not in find_cluster(cluster, home).capabilities:
        return False
    try:
        find_engine(cluster_kind(cluster, home)[1], image)
    except UsageError:
        return True
    return False
