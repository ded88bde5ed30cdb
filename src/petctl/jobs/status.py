"""The status of a job, for those who look at it: the model is `petctl.job.status`."""

from __future__ import annotations

from petctl.errors import InternalError
from petctl.job.status import FINAL as FINAL
from petctl.job.status import ErrorStatus as ErrorStatus
from petctl.job.status import JobStatus as JobStatus
from petctl.job.status import NodeStatus as NodeStatus
from petctl.job.status import ProgressStatus as ProgressStatus
from petctl.job.status import RankProgress as RankProgress
from petctl.job.status import RoleStatus as RoleStatus
from petctl.job.status import RoundStatus as RoundStatus
from petctl.job.status import SizeStatus as SizeStatus

Status = JobStatus


def damaged_status(job_id: str, cluster: str, sentence: str) -> Status:
    """What a list shows of a job whose files cannot be read: the others must still be listed."""
    size = SizeStatus(min=0, wanted=0, max=0)
    return Status(job_id, job_id, cluster, "lost", 0.0, sentence, size, 0.0, exit_code=InternalError.code)
