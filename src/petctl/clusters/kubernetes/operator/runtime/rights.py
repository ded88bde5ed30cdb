"""Whether this operator may do its work: somebody may take its rights away at any time, and nothing else would show it.

The server is asked about a few of them again and again; what it answers is part of the operator's readiness. Where it
cannot be asked, the last answer holds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

from petctl.clusters.kubernetes.elastic_jobs import GROUP
from petctl.kube.api import Api
from petctl.kube.failures import KubernetesError

EVERY = 10.0  # seconds
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_NEEDED = (
    ("create", "", "pods", ""),
    ("delete", "", "pods", ""),
    ("create", "", "pods", "portforward"),
    ("create", "", "services", ""),
    ("create", "policy", "poddisruptionbudgets", ""),
    ("create", "", "secrets", ""),
    ("create", "", "configmaps", ""),
    ("list", GROUP, "elasticjobs", ""),
    ("patch", GROUP, "elasticjobs", "status"),
)
"""A right for each kind of object without which a job cannot run; objects.py says what all an operator has."""

log = logging.getLogger(__name__)


def missing_rights(api: Api, namespace: str) -> Iterator[str]:
    """Those of the needed rights that these credentials do not have; `namespace`: empty for all of them."""
    for verb, group, resource, part in _NEEDED:
        asked = {"verb": verb, "group": group, "resource": resource, "subresource": part, "namespace": namespace}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        answer = api.create(REVIEWS, {**body, "spec": {"resourceAttributes": asked}})
        if not (answer.get("status") or {}).get("allowed"):
            yield f"{verb} {resource}{f'/{part}' if part else ''}"


def watch_rights(api: Api, namespace: str, tell: Callable[[str], None], stop: threading.Event) -> None:
    """Tells what is missing, or an empty text, until `stop`."""
    said = ""
    while True:
        try:
            lacks = ", ".join(missing_rights(api, namespace))
        except KubernetesError:
            lacks = said
        if lacks != said:
            log.warning("lacks the right to %s", lacks) if lacks else log.info("has all its rights again")
        said = lacks
        tell(lacks)
        if stop.wait(EVERY):
            return
