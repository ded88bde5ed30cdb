"""The Cluster protocol: all that petctl asks of a place where jobs run, and how one is found by its name.

A cluster starts agents, lists them, stops them, reads their logs, sees to it that a dead coordinator is replaced, and
says where agents find it. Nothing here knows rounds or ranks: that is the rendezvous. Requests are split from acts:
`build_record` makes the exact objects that `submit` will create, and `render` prints them.

A new cluster kind is a package with a `connect(home, settings)` that gives a `Cluster`, named by an entry point of the
group `petctl.clusters` (`petctl.kinds`). It is imported when it is used: no command pays for another cluster's SDK.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from petctl.config.settings import cluster_settings, resource_settings
from petctl.errors import PetctlError, UsageError
from petctl.job.record import Output
from petctl.kinds import DEFAULT, KINDS, all_kinds, find_kind, is_kind

if TYPE_CHECKING:
    from petctl.job.record import JobRecord
    from petctl.job.spec import Job  # the operator, which has no msgspec, needs this module too
    from petctl.job.status import JobStatus

log = logging.getLogger(__name__)


SCALE, EXEC, FORWARD, JOIN = "scale", "exec", "forward", "join"
CONTAINERS, HERE = "containers", "here"
"""What a cluster may be able to do, beside what every one can; HERE: its nodes are processes of this machine."""


class InUse(UsageError):
    """What is to be removed is needed by a job that has not ended."""


class AlreadyExists(PetctlError):
    """There is a job of this id: take another."""


class LogLine(NamedTuple):
    """One line that a worker wrote, its end of line included. `node` is empty when it is not known."""

    round: int
    rank: int
    stream: str  # "out" or "err"
    text: bytes
    node: str = ""


class Listed(NamedTuple):
    """One job of a list; without status and error where nobody wanted to know more than that it is there.

    A status may be a summary (`status.summary`): what the cluster itself knows, without asking the job.
    """

    id: str
    status: JobStatus | None = None
    error: PetctlError | None = None  # why its status cannot be read


class LogFilter(NamedTuple):
    """Which lines a reader wants; None: all."""

    rank: int | None = None
    node: str | None = None
    round: int | None = None
    tail: int | None = None  # only so many of the last lines of each worker
    blocks: bool = False  # for copying: each text holds as many lines as there were


class Cluster(Protocol):
    """A place where jobs run."""

    name: str
    capabilities: frozenset[str]

    def build_record(self, job: Job, job_id: str, code: Mapping[str, Any] | None = None) -> JobRecord:
        """Exactly what `submit` would create, without the values of secrets; checks the job against the cluster.
        `code`: that of an earlier record, instead of a new snapshot."""

    def manifests(self, job: Job, job_id: str, with_secrets: bool) -> list[dict[str, Any]] | None:
        """The same as objects from which another tool can start the job; the cluster refuses them without secrets.
        None where only petctl starts jobs: the record is all there is to show."""

    def submit(self, record: JobRecord) -> None:
        """Creates it; AlreadyExists when the id is taken. Killed half-way it leaves nothing, or a job that is
        listed."""

    def record(self, job_id: str) -> JobRecord:
        """What the job was submitted as."""

    def notes(self, job_id: str) -> list[str]:
        """What its submitter should know, one sentence each."""

    def ids(self) -> list[str]:
        """Every job of this cluster, whoever submitted it from wherever."""

    def status(self, job_id: str) -> JobStatus:
        """The newest status; `lost` when nobody looks after the job any more. Changes nothing."""

    def statuses(self, wanted: Callable[[str], bool]) -> Iterator[Listed]:
        """Every job of this cluster, the wanted ones with their status, in as few requests as it takes for any number
        of them."""

    def attend(self, job_id: str) -> float:
        """Does what a job needs that nobody looks after, on behalf of a caller that waits for it; the seconds after
        which to do so again, `math.inf` where the cluster sees to it. Nothing that only reads does this."""

    def watch(self, job_id: str, seen: JobStatus | None, timeout: float) -> JobStatus:
        """A status that differs from `seen` (any does from None), or the newest one after `timeout`."""

    def events(self, job_id: str, follow: bool) -> Iterator[dict[str, Any]]:
        """What has happened, oldest first; with `follow` until the job has ended."""

    def logs(self, job_id: str, wanted: LogFilter, follow: bool) -> Iterator[LogLine]:
        """What the workers wrote; with `follow` until the job has ended and everything is out."""

    def outputs(self, job_id: str) -> list[Output]:
        """Where the job's outputs lie: in its store, or wherever this cluster keeps them; first the one without id."""

    def scale(self, job_id: str, wanted: int) -> str:
        """Asks for another number of nodes; answers with a sentence."""

    def cancel(self, job_id: str, kill: bool) -> str:
        """Ends the job: workers get their grace, or with `kill` none."""

    def unanswered_advice(self, job_id: str) -> str:
        """What the user can do about a job that was told to end and does not: whole sentences."""

    def remove(self, job_id: str) -> None:
        """Forgets a job that has ended, with everything that was made for it."""

    def execute(self, job_id: str, argv: list[str], node: str | None) -> int:
        """Runs a command where a node's workers run, with this terminal; its exit code."""

    def forward(
        self, job_id: str, port: int, local_port: int, node: str | None, tell: Callable[[str], None] | None = None
    ) -> AbstractContextManager[int]:
        """A port on this machine that leads to a port of a node, for as long as the context lasts; `tell` hears why a
        connection came to nothing."""

    def token(self, job_id: str, path: Path, address: str | None) -> None:
        """Writes the join file with which another machine takes part."""

    def capacity(self) -> dict[str, object]:
        """How many nodes and GPUs there are, and how many of them are free (`max_nodes`, `running_nodes`, `free_nodes`,
        `unusable_nodes`, `total_gpu`, `free_gpu`), as far as the user may know."""

    def set_secret(self, name: str, value: str) -> None:
        """Keeps a secret where this cluster's jobs find it."""

    def list_secrets(self) -> list[str]:
        """Names, never values."""

    def remove_secret(self, name: str) -> None:
        """Forgets a secret."""


_NOT_YET = {"aws", "ec2", "eks", "azure", "aks", "azureml", "gcp", "gke", "slurm", "ssh"}


def how_to_get_cluster(name: str) -> str:
    """Says how to get a cluster that does not exist, for the end of an error message."""
    if name in _NOT_YET:  # a cluster of this machine with that name would not be what was meant
        return f"this petctl has no {name} clusters; use a Kubernetes cluster there (-c k8s)"
    return f"create one on this machine: petctl cluster create {name}"


def cluster_kind(name: str, home: Path) -> tuple[str, dict[str, Any]]:
    """The kind of the cluster of this name, and its settings; an empty name: the default. Imports nothing of it."""
    name = name or DEFAULT
    said = cluster_settings(name)
    if not said and name not in KINDS:
        said = resource_settings(home, name)
    settings = {**said, "name": name}
    kind = str(settings.get("kind", name))
    if not is_kind(kind):
        there = ", ".join(all_kinds())
        raise UsageError(f"there is no cluster {name!r}; the clusters are: {there}; {how_to_get_cluster(name)}")
    return kind, settings


def find_cluster(name: str, home: Path) -> Cluster:
    """The cluster of this name; an empty one means the default."""
    kind, settings = cluster_kind(name, home)
    log.debug("cluster %s is of kind %s", settings["name"], kind)
    cluster: Cluster = find_kind(kind)(home, settings)
    return cluster
