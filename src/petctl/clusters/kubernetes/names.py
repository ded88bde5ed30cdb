"""Names and labels of the objects that are made for a job.

Kubernetes allows less in a name than petctl does in a job's id: lower-case letters, digits and dashes, at most 63, a
letter first. What had to be changed gets a digest of the id, so that two ids do not share a name (if ever they did, the
second could not be created, and its job gets another id); the id itself is kept in an annotation. Pure: nothing here
asks a cluster.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from petctl.kube.objects import annotations_of, labels_of

LONGEST = 40  # of 63: what is made from it gets an ending, and the pods' names yet another
JOB = "petctl.dev/job"
ROLE = "petctl.dev/role"
ID = "petctl.dev/id"
ABOUT = "petctl.dev/about"
"""Annotation of a job's owner: what lists show of the job, as JSON."""
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation of a pod that a Job made: which node it is."""
INDEX, NUMBER, OWNER = "petctl.dev/index", "petctl.dev/number", "petctl.dev/owner"
"""Labels of pods that the operator made: which node it is, how many there were before, and whose (a uid)."""
COORDINATOR, NODE = "coordinator", "node"
CONTAINER = "petctl"
"""In every pod of a job; users may add others beside it."""
MANAGED = {"app.kubernetes.io/managed-by": "petctl"}


def object_name(job_id: str) -> str:
    """The name that everything of a job begins with."""
    cleaned = re.sub(r"[^a-z0-9-]+", "-", job_id.lower()).strip("-")
    if not cleaned[:1].isalpha():
        cleaned = f"j-{cleaned}".rstrip("-")
    if cleaned == job_id and len(cleaned) <= LONGEST:
        return cleaned
    digest = hashlib.sha256(job_id.encode()).hexdigest()[:6]
    return f"{cleaned[: LONGEST - len(digest) - 1].rstrip('-')}-{digest}"


def labels(job_id: str, role: str = "") -> dict[str, str]:
    """Those of one object; every object of a job has them, and nothing else does."""
    return {**MANAGED, JOB: object_name(job_id), **({ROLE: role} if role else {})}


def selector(job_id: str, role: str = "") -> str:
    """What finds a job's objects by their labels."""
    return f"{JOB}={object_name(job_id)}" + (f",{ROLE}={role}" if role else "")


def node_of(pod: Mapping[str, Any]) -> str:
    """The node that a pod is: its index, or for one that was made by hand its own name."""
    found = labels_of(pod).get(INDEX, annotations_of(pod).get(COMPLETION_INDEX))
    return str(found if found is not None else pod["metadata"]["name"])
