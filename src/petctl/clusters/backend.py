"""What one kind of cluster supplies: about nine small things. All verbs over them are `managed.py`, written once.

    capabilities, honours      what the kind can do, and give to its nodes
    request(job, id)           the exact record that `create` would make; asks no cluster
    create(record)             all of it, or nothing, or a job that is listed
    list(wanted)               all jobs with their phase, in one question
    inspect(id)                how one job stands, as an Inspection
    resize, stop, delete       change what the platform keeps; nothing is waited for
    printed(id, role)          what the coordinator and the nodes have printed
    dial(node, port)           a connection to a node

A backend knows no rounds or ranks, keeps no status and retries nothing: the coordinator and ManagedCluster do.
"""

from __future__ import annotations

import math
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from petctl.errors import NotFound, Unreachable

if TYPE_CHECKING:
    from petctl.clusters.base import Listed, LogFilter, LogLine
    from petctl.clusters.node_ends import NodeEnd
    from petctl.clusters.printed import Printed
    from petctl.job.record import JobRecord
    from petctl.job.spec import Job
    from petctl.job.status import JobStatus
    from petctl.rendezvous.core.messages import Outcome
    from petctl.rendezvous.net.join_file import JoinFile

COORDINATOR, NODE = "coordinator", "node"  # roles of what prints
REPLACED_WITHIN = 30.0  # seconds that a wish waits for a coordinator, as a rule

ALL_NEEDS = frozenset({"cpu", "memory", "gpus", "shm", "volumes"})
"""What a job may ask of its nodes, whatever the kind of cluster: its resources, and volumes."""
Ask = Callable[..., Any]
"""`ask(call, patience=30.0, **params)`: the coordinator's answer; Unreachable where none can be asked now."""


class Inspection(ABC):
    """One job, as its cluster tells of it at one moment: ended, running, or waiting for something."""

    job_id: str
    record: JobRecord
    begun = False  # its coordinator is not its first one: workers may be at work without it
    asks = False  # its coordinator may be asked
    suspended = False  # its platform does not let it run

    @property
    def over(self) -> bool:
        """Whether it has ended, and how is known."""
        return False

    @property
    def replaced_within(self) -> float:
        """Seconds that a wish waits for a coordinator."""
        return REPLACED_WITHIN

    @abstractmethod
    def status(self) -> JobStatus:
        """All that the cluster itself knows: how the job ended, or why its coordinator cannot be asked."""

    @abstractmethod
    def ask(self, call: str, patience: float = 30.0, **params: Any) -> Any:
        """The coordinator's answer; Unreachable where none can be asked now."""

    def absent(self, status: JobStatus) -> Mapping[str, str]:
        """Nodes that the job wants and that are not in its coordinator's status, each with what keeps it."""
        return {}

    def ends(self, gone: bool = False) -> Sequence[NodeEnd]:
        """How nodes ended that nobody of the job asked to end; `gone`: also those of which only a trace is left."""
        return ()

    def explain(self, status: JobStatus) -> JobStatus:
        """A coordinator's status with what only the cluster knows: why nodes are missing, how lost ones ended."""
        from petctl.clusters import node_ends  # `list` needs none of it

        if node_ends.is_short(status) and (absent := self.absent(status)):
            status = node_ends.with_absent(status, absent)
        return self.with_ends(status)

    def with_ends(self, status: JobStatus) -> JobStatus:
        """The status with what was the end of nodes, where that matters."""
        from petctl.clusters import node_ends

        if not node_ends.may_have_lost(status):
            return status
        return node_ends.with_ends(status, self.ends() or (self.ends(True) if status.finished is not None else ()))

    def wait(self, timeout: float) -> None:
        """Until the platform has news of the job; without a way to hear of it, all of the time."""
        time.sleep(timeout)


Job_ = TypeVar("Job_", bound=Inspection)


class SecretStore(Protocol):
    """Where a cluster keeps secrets for its jobs."""

    def names(self) -> list[str]:
        """Of all, in order."""

    def set(self, name: str, value: str) -> None:
        """Keeps one, or another value of it."""

    def remove(self, name: str) -> None:
        """Forgets one that is there."""


class Backend(ABC, Generic[Job_]):
    """One cluster of a kind."""

    capabilities: ClassVar[frozenset[str]] = frozenset()
    honours: ClassVar[frozenset[str]] = frozenset()
    """Those of ALL_NEEDS that nodes can have, or whose lack `request` notes; a job that asks for others is refused."""
    name: str
    home: Path
    secrets: SecretStore

    # -- submitting ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def request(self, job: Job, job_id: str, code: Mapping[str, Any] | None) -> JobRecord:
        """What `create` would make, checked against the cluster's settings (`building.RecordBuilder` does most of it);
        `code`: that of an earlier record."""

    def manifests(self, job: Job, job_id: str, with_secrets: bool) -> list[dict[str, Any]] | None:
        """The same as objects that another tool can create; None where only petctl starts jobs."""
        return None

    @abstractmethod
    def create(self, record: JobRecord) -> None:
        """Makes the job; AlreadyExists when its id is taken. Secrets and stores have been checked."""

    def record(self, job_id: str) -> JobRecord:
        """What was submitted; NotFound. This one is for kinds whose Inspection has it."""
        return self.inspect(job_id).record

    def keeps_code(self, record: JobRecord) -> bool:
        """Whether the platform has the archive of the job's code, for `fetch_code`."""
        return False

    def fetch_code(self, record: JobRecord, target: Path) -> None:
        """Writes that archive."""
        raise NotImplementedError

    def own_archive(self, record: JobRecord) -> Path | None:
        """That archive, where the job has one on this machine."""
        return None

    def notes(self, record: JobRecord) -> list[str]:
        """What the job's submitter should know, one sentence each."""
        return list(record.notes)

    # -- reading -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def list(self, wanted: Callable[[str], bool]) -> Iterator[Listed]:
        """Every job, the wanted ones with a status or a summary, in as few questions as it takes for any number."""

    @abstractmethod
    def inspect(self, job_id: str) -> Job_:
        """How the job stands; NotFound."""

    def attend(self, job_id: str) -> float:
        """`Cluster.attend`, for platforms that do not see to their jobs themselves."""
        return math.inf

    @abstractmethod
    def printed(self, job_id: str, role: str) -> Printed:
        """What the job's coordinator (events, as JSON lines) or its nodes (tagged lines of workers) have printed."""

    def log_files(self, job_id: str, wanted: LogFilter, over: Callable[[], bool] | None) -> Iterator[LogLine] | None:
        """The workers' lines where the platform keeps them in files, with `over` followed until then; None where nodes
        print them."""
        return None

    # -- changing ------------------------------------------------------------------------------------------------------

    def resize(self, job: Job_, wanted: int, ask: Ask) -> str:
        """Sees to it that there are so many nodes; `ask`: the coordinator, which knows the bounds."""
        return str(ask("scale", wanted=wanted))

    def cancel(self, job: Job_, kill: bool, ask: Ask) -> str:
        """Asks the coordinator to end the job; one that has none now is ended by its platform, for ever."""
        from petctl.rendezvous.core.messages import CANCELLED, Outcome

        if job.over:
            return "has ended already"
        if job.asks and not job.suspended:  # a suspended one may still answer, and goes before it tells the outcome
            with suppress(Unreachable):  # it may have just begun, and not listen yet
                return str(ask("cancel", kill=kill))
        when = "while its coordinator was away" if job.begun or job.asks else "before it started"
        self.stop(job, Outcome(CANCELLED, 130, f"cancelled by the user {when}"))
        return f"cancelled {when}"

    def stop(self, job: Job_, outcome: Outcome) -> None:
        """Ends a job whose coordinator cannot be asked; this is how it has ended."""
        raise NotImplementedError

    @abstractmethod
    def delete(self, job: Job_) -> None:
        """Forgets a job that has ended, with all that was made for it."""

    @abstractmethod
    def stuck_advice(self, job_id: str) -> str:
        """What the user can do about a job that was told to end and does not: whole sentences."""

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def capacity(self) -> dict[str, object]:
        """How many nodes and GPUs there are and are free, as far as the user may know (`Cluster.capacity`)."""
        return {}

    def nodes(self, job: Job_) -> Mapping[str, Any]:
        """The nodes that run, by their names, first the one that is meant where none is named; what each is, `dial` and
        `execute` know."""
        return {}

    def dial(self, node: Any, port: int) -> socket.socket:
        """A connection to a port of one of `nodes`, for clusters that can FORWARD."""
        raise NotImplementedError

    def execute(self, job: Job_, node: Any, argv: Sequence[str]) -> int:
        """Runs a command where a node's workers run, with this terminal, for clusters that can EXEC."""
        raise NotImplementedError

    def join_file(self, job: Job_, address: str | None) -> JoinFile:
        """What another machine needs to take part, for clusters that can JOIN."""
        raise NotImplementedError


def ask_with_files(join: Path, token: Path, call: str, patience: float, params: Mapping[str, Any]) -> Any:
    """`Inspection.ask` where the job's join file and its own token are files here."""
    from petctl.rendezvous.net.client import ControlLink  # sockets, for the few commands that need them
    from petctl.rendezvous.net.join_file import read_join_file

    with ControlLink(read_join_file(join).for_control(token.read_text().strip())) as link:
        return link.call(call, patience, **params)


def no_such_job(job_id: str, cluster: str) -> NotFound:
    """What a backend raises for a job that it does not have."""
    return NotFound(f"there is no job {job_id!r}; `petctl list -c {cluster}` shows the jobs")


def summaries(
    job_ids: Iterable[str], wanted: Callable[[str], bool], status: Callable[[str], JobStatus]
) -> Iterator[Listed]:
    """A list of jobs whose statuses cost nothing."""
    from petctl.clusters.base import Listed

    return (Listed(job_id, status(job_id) if wanted(job_id) else None) for job_id in job_ids)
