"""What each node of a job has for itself, whatever the kind of cluster.

    resources: {cpu: 4, memory: 16GiB, gpus: 1, shm: 8GiB}

Each kind honours these, or says in words that it does not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Optional

import msgspec

from petctl.job.spec import values
from petctl.job.spec.problems import Problem, shown, wrong
from petctl.job.spec.quantities import format_bytes, parse_bytes
from petctl.job.spec.shape import Checked, Form
from petctl.job.spec.volumes import Volume

SHARED_MEMORY = "/dev/shm"
_CPU = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,18})?)(m?)", re.ASCII)


def processors(value: object) -> float:
    """Processors as people write them (4, 0.5) or as Kubernetes' users do (500m)."""
    match = _CPU.fullmatch(values.text(value).strip()) if not isinstance(value, bool) else None
    if match is None:
        raise wrong(f"expected processors such as 4, 0.5 or 500m, got {shown(value)}")
    thousandths = round(float(match[1]) * (1 if match[2] else 1000))
    if not thousandths:
        raise wrong("must be at least 0.001")
    return thousandths / 1000


def _whole_if_it_is(amount: float) -> float:
    return int(amount) if amount == int(amount) else amount


Processors = Annotated[Optional[float], Form(values.optional(processors), _whole_if_it_is)]
Bytes = Annotated[Optional[int], Form(values.optional(values.above_zero(parse_bytes)), format_bytes)]
Count = Annotated[Optional[int], Form(values.optional(values.whole(0)))]


class Resources(Checked, frozen=True, kw_only=True):
    """What a node has; None: what the cluster gives to jobs that do not say."""

    cpu: Processors = None  # in thousandths
    memory: Bytes = None  # the most that it may use
    gpus: Count = None
    shm: Bytes = None  # of /dev/shm

    def over(self, weaker: Resources) -> Resources:
        """These, and where they say nothing what the weaker ones say."""
        return Resources(**{**_said(weaker), **_said(self)})

    def asked(self) -> list[str]:
        """The names of what a cluster must be able to give."""
        return [name for name, amount in _said(self).items() if amount]


def shared_memory_problems(resources: Resources, volumes: Sequence[Volume]) -> list[Problem]:
    """Shared memory that would be there twice."""
    if not resources.shm or all(volume.path != SHARED_MEMORY for volume in volumes):
        return []
    sentence = f"there is a volume at {SHARED_MEMORY} already; keep one of them"
    return [Problem(("resources", "shm"), sentence)]


def _said(resources: Resources) -> dict[str, Any]:
    return {name: amount for name, amount in msgspec.structs.asdict(resources).items() if amount is not None}
