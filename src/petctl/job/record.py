"""A job's record: what was submitted, as it is kept in job.json or a ConfigMap, and all that its controller reads.

It holds names of secrets, never values. What only the job's cluster understands is in `request`; each cluster has a
dataclass of its own for that. The rest is the same on every cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, NamedTuple

from petctl.errors import ProtocolError
from petctl.job.fields import decode, encode
from petctl.job.task import Task, decode_task
from petctl.rendezvous.core.config import Config

OWN_SECRET = "job-file."  # how names of secrets begin whose values were in a job file: they go with the last such job


@dataclass
class ResultsRecord:
    """Where what the job makes will be, for people; empty: in the job's own directory, or nowhere."""

    logs: str = ""
    outputs: Dict[str, str] = field(default_factory=dict)  # "": all that has no place of its own


@dataclass(frozen=True)
class JobRecord:
    """One job as it was submitted."""

    id: str
    name: str
    cluster: str
    submitted: float
    command: str  # as the user might have typed it
    config: Config
    task: Task  # a node's share of it
    cwd: str = ""  # of the submitter
    code: Dict[str, Any] = field(default_factory=dict)  # the snapshot that it runs from; empty: none
    folders: List[Dict[str, Any]] = field(default_factory=list)  # mapped ones, pinned
    results: ResultsRecord = field(default_factory=ResultsRecord)
    in_copy: bool = False  # whether its workers run in a copy of the code and not where the submitter has it
    notes: List[str] = field(default_factory=list)  # what its submitter should hear
    directory: str = ""  # of the job, on clusters that have such a place
    job: Dict[str, Any] = field(default_factory=dict)  # as a job file, for another job like it
    secrets: Dict[str, str] = field(default_factory=dict)  # environment name -> name of the secret
    grants: Dict[str, Dict[str, Any]] = field(default_factory=dict)  # what nodes may ask the coordinator to sign for
    max_time: float = 0.0  # seconds; 0: no limit
    request: Dict[str, Any] = field(default_factory=dict)  # what only its cluster knows

    def to_dict(self) -> Dict[str, Any]:
        """Plain data, as it is kept and shown."""
        plain: Dict[str, Any] = encode(self)
        return plain

    @classmethod
    def from_dict(cls, data: object) -> JobRecord:
        """From where it was kept; ValueError says what is wrong with it."""
        if not isinstance(data, dict):
            raise ValueError("it is no object")
        try:
            return decode(cls, {**data, "task": decode_task(data.get("task"))})
        except ProtocolError as error:
            raise ValueError(f"task: {error}") from None


class Output(NamedTuple):
    """Where one output of a job lies; the one without an id is everything that has no place of its own."""

    id: str
    location: str
    settings: Dict[str, Any]  # how its store is reached, in the words of `stores:` in the configuration
