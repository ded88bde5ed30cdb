"""Records of jobs for tests that need one and are not about how it is made."""

from __future__ import annotations

from typing import Any

from petctl.job.record import JobRecord
from petctl.job.task import SHELL, Task
from petctl.rendezvous.core.events import Config


def job_record(job_id: str = "train-2222", task: dict[str, Any] | None = None, **fields: Any) -> JobRecord:
    """One of a job with nothing to do, in the words of the test; `task`: fields of its task."""
    known: dict[str, Any] = {
        "name": job_id.rpartition("-")[0],
        "cluster": "local",
        "submitted": 1_000.0,
        "command": "true",
        "config": Config(1, 4, 2),
        "task": Task(**{"job": job_id, "kind": SHELL, "words": ["true"], **(task or {})}),
    }
    return JobRecord(id=job_id, **{**known, **fields})
