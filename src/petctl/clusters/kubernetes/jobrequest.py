"""What only Kubernetes knows of a job, in its record: operators read it too, so standard library only. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List

from petctl.errors import InternalError
from petctl.job.fields import decode
from petctl.job.record import JobRecord


@dataclass(frozen=True)
class KubernetesRequest:
    """The objects that a job consists of, and what its pods are given beside them."""

    namespace: str
    pieces: int = 0  # of the code's archive, an object each
    agent: str = ""  # the object that holds the agent, if it is not the job's own
    numbered: bool = True  # whether nodes have the indices 0 to their number, and no others
    objects: List[Dict[str, Any]] = field(default_factory=list)  # the owner first; not kept in the cluster
    claims: List[Dict[str, Any]] = field(default_factory=list)  # made where there are none of that name

    @classmethod
    def of(cls, record: JobRecord) -> KubernetesRequest:
        """InternalError says what is wrong with it."""
        try:
            return decode(cls, record.request)
        except ValueError as error:
            raise InternalError(f"the record of {record.id} is damaged: request: {error}") from None
