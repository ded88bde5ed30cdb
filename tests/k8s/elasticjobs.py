"""ElasticJobs for tests: the smallest one, and the definition without which the server knows none."""

from __future__ import annotations

import contextlib
import json
from typing import Any, Iterator

from petctl.clusters.kubernetes.operator.install.crd import NAME, crd
from tests.k8s.cluster.cluster import Cluster
from tests.k8s.cluster.waiting import until


def elastic_job(name: str = "job", **spec: Any) -> dict[str, Any]:
    """One that rests; `spec` is added to, or replaces, what it says."""
    container = {"name": "main", "image": "python:3.11-slim", "command": ["true"]}
    whole = {"suspend": True, "template": {"spec": {"containers": [container]}}, **spec}
    return {"apiVersion": "petctl.dev/v1", "kind": "ElasticJob", "metadata": {"name": name}, "spec": whole}


@contextlib.contextmanager
def defined(cluster: Cluster) -> Iterator[None]:
    """The server knows ElasticJobs; it forgets them afterwards, unless it knew them before."""
    before = cluster.kubectl.attempt("get", "crd", NAME).returncode == 0
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", text=json.dumps(crd()))
    try:
        until(lambda: _established(cluster), "the server knows ElasticJobs", 60, 0.1)
        yield
    finally:
        if not before:
            cluster.kubectl("delete", "crd", NAME)


def _established(cluster: Cluster) -> bool:
    """`kubectl wait` fails where it meets the definition before the server has given it any conditions."""
    status = cluster.kubectl.get("crd", NAME).get("status") or {}
    return any(c["type"] == "Established" and c["status"] == "True" for c in status.get("conditions") or ())
