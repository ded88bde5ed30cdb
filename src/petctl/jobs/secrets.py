"""Secrets by name: what `petctl secret` and jobs refer to. Each cluster keeps the values where its jobs find them."""

from __future__ import annotations

from petctl.clusters.base import find_cluster
from petctl.errors import UsageError
from petctl.jobs.home import petctl_home


def set_secret(name: str, value: str, cluster: str = "") -> None:
    """Keeps a value under a name, in place of an older one."""
    if not name or not value:
        raise UsageError("a secret needs a name and a value that is not empty")
    find_cluster(cluster, petctl_home()).set_secret(name, value)


def list_secrets(cluster: str = "") -> list[str]:
    """The names, never the values."""
    return find_cluster(cluster, petctl_home()).list_secrets()


def remove_secret(name: str, cluster: str = "") -> None:
    """Forgets a secret."""
    find_cluster(cluster, petctl_home()).remove_secret(name)
