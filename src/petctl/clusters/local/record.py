"""The record and the status of a local job, as its directory keeps them. It reads and writes these files only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

from petctl.clusters.local.job_directory import JobDirectory, write_json
from petctl.errors import InternalError, NotFound
from petctl.files import read_json_or_none
from petctl.job.fields import decode
from petctl.job.record import JobRecord
from petctl.job.status import JobStatus


@dataclass(frozen=True)
class LocalRequest:
    """What only this machine knows of a job: how it is started here, and what it takes up."""

    supervisor: List[str]  # the words that start it
    slots: int  # that the machine has, for jobs of the cluster that is always there
    nodes: List[List[str]] = field(default_factory=list)  # the words that start the first ones, for people
    listen: str = "127.0.0.1"
    address: str = "127.0.0.1"  # at which others reach it
    priority: int = 0
    container: Dict[str, Any] = field(default_factory=dict)  # how nodes are put into one; empty: they are not
    gpus: int = 0  # of each node
    devices: List[str] = field(default_factory=list)  # all that there are for the job
    limits: Dict[str, float] = field(default_factory=dict)  # of a node that is no container: memory, cpu

    @classmethod
    def of(cls, record: JobRecord) -> LocalRequest:
        """ValueError says what is wrong with it."""
        return decode(cls, record.request)


def read_record(directory: JobDirectory) -> JobRecord:
    """What was submitted."""
    data = read_json_or_none(directory.job)
    if data is None and not directory.path.exists():
        raise NotFound(f"job {directory.id!r} no longer exists; another process removed it")
    try:
        return _record(data)
    except ValueError as error:
        why = "missing or damaged" if data is None else f"damaged ({error})"
        raise InternalError(f"{directory.job} is {why}; forget the job with: petctl rm {directory.id}") from None


def find_record(directory: JobDirectory) -> Optional[JobRecord]:
    """The same for whoever can do without: None where it is missing or damaged."""
    try:
        return _record(read_json_or_none(directory.job))
    except ValueError:
        return None


def write_record(directory: JobDirectory, record: JobRecord) -> None:
    """Keeps it; from here on the job can be accepted."""
    write_json(directory.job, record.to_dict(), durable=True)


def read_status(directory: JobDirectory) -> Optional[JobStatus]:
    """The last one that was written down; None where there is none, or a crash has torn it."""
    data = read_json_or_none(directory.status)
    return JobStatus.from_dict(data) if data is not None else None


def find_status(directory: JobDirectory) -> Optional[JobStatus]:
    """The same for whoever can do without: None also where it is damaged."""
    try:
        return read_status(directory)
    except InternalError:
        return None


def _record(data: object) -> JobRecord:
    record = JobRecord.from_dict(data)
    try:
        LocalRequest.of(record)
    except ValueError as error:
        raise ValueError(f"request: {error}") from None
    return record
