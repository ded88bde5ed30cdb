"""Secrets by name: what `petctl secret` and jobs refer to. Each cluster keeps the values where its jobs find them."""

from __future__ import annotations

from petctl.clusters.base import Cluster, find_cluster
from petctl.errors import PetctlError, UsageError
from petctl.home import petctl_home
from petctl.job.record import OWN_SECRET


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


def own_secrets(cluster: Cluster, job_id: str) -> list[str]:
    """Secrets that were kept for this job, and that no other job of the cluster uses."""
    found = [name for name in _named(cluster, job_id) if name.startswith(OWN_SECRET)]
    others = [other for other in cluster.ids() if other != job_id] if found else []
    used = {name for other in others for name in _named(cluster, other)}
    return [name for name in found if name not in used]


def _named(cluster: Cluster, job_id: str) -> list[str]:
    try:
        record = cluster.record(job_id)
        return [*record.secrets.values(), record.job.get("image_credentials", "")]
    except PetctlError:
        return []  # damaged, or removed by somebody else
