"""A namespace of a test's own."""

from __future__ import annotations

import contextlib
import secrets
from typing import Iterator

from tests.k8s.cluster.cluster import Cluster


@contextlib.contextmanager
def own_namespace(cluster: Cluster) -> Iterator[str]:
    """Ready for pods; all in it goes with it."""
    name = f"petctl-test-{secrets.token_hex(4)}"
    cluster.kubectl("create", "namespace", name)
    try:
        cluster.kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={name}", "--timeout=60s")
        yield name
    finally:
        try:
            # Jobs first: where failures are counted per index, a pod goes when the next is made, which never happens in
            # a namespace that is being deleted; and that waits for its pods.
            cluster.kubectl("delete", "jobs", "--all", f"--namespace={name}", "--wait=false")
        finally:
            cluster.kubectl("delete", "namespace", name, "--wait=false")
