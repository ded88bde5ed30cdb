"""This machine as a `Backend`: job directories under $PETCTL_HOME/jobs, in line for slots, and then each with a
detached supervisor.

Runs in the user's command, so it never waits for more than it must: it puts jobs in line and looks at it, writes down
wishes, reads files, and asks a coordinator where a wish is to be obeyed at once. What a job does once it has slots is
its supervisor's business.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from petctl import secret_file
from petctl.clusters.backend import ALL_NEEDS, Ask, Backend, Inspection, ask_with_files, no_such_job
from petctl.clusters.base import (
    CONTAINERS,
    EXEC,
    FORWARD,
    HERE,
    JOIN,
    SCALE,
    Cluster,
    InUse,
    Listed,
    LogFilter,
    LogLine,
)
from petctl.clusters.foreground import run_in_foreground
from petctl.clusters.local import readers
from petctl.clusters.local.addresses import check_listen, is_loopback
from petctl.clusters.local.delete import remove_directory
from petctl.clusters.local.finalize import CANCELLED_IN_LINE, finalize
from petctl.clusters.local.job_directory import JobDirectory, write_json, write_text
from petctl.clusters.local.job_status import list_statuses, newest_status
from petctl.clusters.local.queue.queue import look, slots_of
from petctl.clusters.local.record import LocalRequest, find_record, read_record
from petctl.clusters.local.submit import accept
from petctl.clusters.local.upkeep import attend
from petctl.clusters.managed import ManagedCluster
from petctl.errors import InternalError, NoRoom, NotFound, PetctlError, Unreachable, UsageError, is_no_room
from petctl.files import read_json_or_none
from petctl.job.record import JobRecord
from petctl.job.spec import Job
from petctl.job.status import JobStatus, NodeStatus
from petctl.job.task import CHECKPOINTS
from petctl.rendezvous.net.join_file import JoinFile, read_join_file
from petctl.text import counted

if TYPE_CHECKING:
    import socket

ATTEND_EVERY = 0.5  # seconds between two looks of a command that waits for a job
REVIVE_PATIENCE = 3.0  # how long a wish waits for a supervisor that is being replaced


def connect(home: Path, settings: Mapping[str, Any]) -> Cluster:
    """What `find_cluster` calls."""
    return ManagedCluster(LocalBackend(home, settings))


class LocalJob(Inspection):
    """A job as its directory tells of it: also its status, so no coordinator is asked for one."""

    def __init__(self, directory: JobDirectory) -> None:
        self.directory, self.job_id = directory, directory.id
        self._stamp = readers.stamp(directory)

    @cached_property
    def over(self) -> bool:
        """Also when it is lost. A damaged one is over when nobody looks after it."""
        try:
            return self._status.finished is not None
        except InternalError:
            return not self.directory.alive()

    @cached_property
    def _status(self) -> JobStatus:
        return newest_status(self.directory)

    def status(self) -> JobStatus:
        return self._status

    @property
    def replaced_within(self) -> float:
        return REVIVE_PATIENCE if self.directory.alive() else 0.0

    def ask(self, call: str, patience: float = 30.0, **params: Any) -> Any:
        return ask_with_files(self.directory.join, self.directory.token, call, patience, params)

    def wait(self, timeout: float) -> None:
        readers.wait_for_change(self.directory, self._stamp, timeout)


class LocalBackend(Backend[LocalJob]):
    """The jobs of one $PETCTL_HOME."""

    capabilities = frozenset({SCALE, EXEC, FORWARD, JOIN, CONTAINERS, HERE})
    honours = ALL_NEEDS

    def __init__(self, home: Path, settings: Mapping[str, Any]) -> None:
        self.name = str(settings.get("name") or "local")
        self.home, self.settings = home, settings
        self.jobs = home / "jobs"
        self.secrets = secret_file.SecretFile(home)

    # -- submitting ----------------------------------------------------------------------------------------------------

    def request(self, job: Job, job_id: str, code: Mapping[str, Any] | None) -> JobRecord:
        from petctl.clusters.local.build_record import build_record  # only a submitter needs all that it imports

        return build_record(job, JobDirectory(self.jobs / job_id), self.settings, code)

    def create(self, record: JobRecord) -> None:
        """Makes the whole directory under another name, then gives it its own in one step, then starts whoever is
        due."""
        request = LocalRequest.of(record)
        check_listen(request.listen)
        directory = JobDirectory(self.jobs / record.id)
        make_checkpoints(directory, Path(record.task.checkpoint_dir))
        if request.container.get("credentials"):  # a missing one is told now, not in the queue
            secret_file.secret_values(self.home, {"image_credentials": request.container["credentials"]})
        try:
            accept(directory, record)
        except OSError as error:
            if not is_no_room(error):
                raise
            raise NoRoom(
                f"the job was not submitted: no space left on the disk of {self.home}; free space, for instance "
                f"with petctl rm --finished, and submit it again"
            ) from None

    def record(self, job_id: str) -> JobRecord:
        return read_record(self._directory(job_id))

    def own_archive(self, record: JobRecord) -> Path | None:
        archive = JobDirectory(self.jobs / record.id).code  # its own link: it may be the last one
        return archive if archive.exists() else None  # this home is a copy of another one, or somebody made room

    def notes(self, record: JobRecord) -> list[str]:
        """The record's, and what a job that waits may lose."""
        from petctl.clusters.local.controller.start_environment import waiting_note

        note = waiting_note(JobDirectory(self.jobs / record.id), record)
        return [*record.notes, *([note] if note else [])]

    # -- reading -------------------------------------------------------------------------------------------------------

    def list(self, wanted: Callable[[str], bool]) -> Iterator[Listed]:
        """Drafts are not jobs. A cluster that was made has its own, `local` knows them all."""
        try:
            ids = [path.name for path in self.jobs.iterdir() if not path.name.startswith(".")]
        except FileNotFoundError:
            ids = []
        if self.settings.get("resource"):
            ids = [job_id for job_id in ids if self._is_own(job_id)]
        return list_statuses(self.jobs, iter(ids), wanted)

    def inspect(self, job_id: str) -> LocalJob:
        return LocalJob(self._directory(job_id))

    def attend(self, job_id: str) -> float:
        """Finishes the job if it is lost, and moves its queue on."""
        attend(self._directory(job_id))
        return ATTEND_EVERY

    def printed(self, job_id: str, role: str) -> readers.EventFile:
        return readers.EventFile(self._directory(job_id))

    def log_files(self, job_id: str, wanted: LogFilter, over: Callable[[], bool] | None) -> Iterator[LogLine]:
        job = self.inspect(job_id)
        if wanted.node is not None and wanted.node not in self.nodes(job):
            known = ", ".join(node.name for node in job.status().nodes) or "none yet"
            raise NotFound(f"{job_id} has no node {wanted.node!r}; its nodes: {known}")
        return readers.read_logs(job.directory, wanted, over)

    # -- changing ------------------------------------------------------------------------------------------------------

    def resize(self, job: LocalJob, wanted: int, ask: Ask) -> str:
        """Tells the supervisor; a queued job's supervisor reads the wish when its turn comes."""
        directory, size = job.directory, job.status().size
        if not size.min <= wanted <= size.max:
            raise UsageError(
                f"{job.job_id} may have {size.min} to {size.max} nodes, not {wanted}; "
                "a job's bounds are set when it is submitted"
            )
        if not directory.begun():
            write_text(directory.wanted, f"{wanted}\n", durable=True)
            slots_of(self.home, read_record(directory).cluster).want(job.job_id, wanted)
            if not directory.begun():  # looked at again: it may have started meanwhile, with the old size
                return f"will start with {counted(wanted, 'node')}"
        return str(ask("scale", wanted=wanted))

    def cancel(self, job: LocalJob, kill: bool, ask: Ask) -> str:
        """Writes the wish down first: it holds also if the supervisor is killed at this very moment."""
        directory, status = job.directory, job.status()
        if status.finished is not None and not status.unattended:
            return "has ended already"
        if directory.begun():
            attend(directory)
            status = newest_status(directory)
            if status.finished is not None:
                return f"has ended already ({status.state}); what was left of it is ended now"
        write_json(directory.cancel, {"kill": kill}, durable=True, reserved=True)
        if not directory.begun():
            end = finalize(directory, CANCELLED_IN_LINE)
            if end is None:
                return "cancelling"  # its supervisor is there already and sees the wish
            with suppress(PetctlError):
                look(self.home, end.cluster)
            return "cancelled" if end.state == "cancelled" else "has ended already"
        try:
            return str(ask("cancel", kill=kill))
        except Unreachable:
            return "cancelling: its supervisor is being replaced and will finish it"

    def stuck_advice(self, job_id: str) -> str:
        """Names the process that has to go, where there is one."""
        directory = self._directory(job_id)
        pid = (read_json_or_none(directory.coordinator) or {}).get("pid")
        if pid and directory.supervised():
            return f"Its supervisor does not answer. End it with: kill -9 {pid}; then"
        return f"See {directory.supervisor_log} for the reason, then"

    def delete(self, job: LocalJob) -> None:
        directory = job.directory
        for other in _resumed_by(directory):
            later = JobDirectory(self.jobs / other)
            if later.job.exists() and newest_status(later).finished is None:
                raise InUse(f"{job.job_id} has the checkpoints that {other} uses, which has not ended")
        cluster = str((read_json_or_none(directory.job) or {}).get("cluster", ""))
        remove_directory(directory)
        with suppress(PetctlError, OSError):
            look(self.home, cluster or self.name)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def capacity(self) -> dict[str, object]:
        """Slots of this machine, or nodes of the cluster that was made on it."""
        from petctl.clusters.local import capacity

        if self.settings.get("resource"):
            return capacity.fleet(self.home, self.name)
        return capacity.machine(self.home, self.name, self.settings, self.record)

    def nodes(self, job: LocalJob) -> Mapping[str, NodeStatus]:
        """By rank; then the earlier ones, whose directories and address are the same."""
        status = job.status()
        there = sorted(status.nodes, key=lambda node: (node.rank is None, node.rank or 0))
        earlier = {name: NodeStatus(name, "gone") for past in status.rounds for name in past.nodes}
        now = {node.name: node for node in there}
        return {**now, **{name: node for name, node in earlier.items() if name not in now}}

    def dial(self, node: NodeStatus, port: int) -> socket.socket:
        import socket

        return socket.create_connection((node.address or "127.0.0.1", port), timeout=10)

    def execute(self, job: LocalJob, node: NodeStatus, argv: Sequence[str]) -> int:
        """Runs a command in the job's directory with a node's environment."""
        from petctl.agent.workers.environment import output_variable  # costs more than all the rest of this file

        directory, name = job.directory, node.name
        record = read_record(directory)
        task = record.task
        environment = {
            **task.env,
            **secret_file.secret_values(self.home, record.secrets),
            "PETCTL_JOB_ID": job.job_id,
            "PETCTL_NODE": name,
            "PETCTL_OUTPUT_DIR": task.output_dir,
            CHECKPOINTS: task.checkpoint_dir,
            **{output_variable(output): f"{task.output_dir}/{output}" for output in task.outputs},
        }
        cwd = task.cwd or str(directory.unpacked / task.code.inside)
        if task.layout.kind:
            from petctl.agent.layouts import layout_module

            more, work = layout_module(task.layout).command_environment(task, record.directory, name)
            environment, cwd = {**environment, **more}, work or cwd
        container = LocalRequest.of(record).container
        if container:
            from petctl.clusters.local.containers.node_containers import enter_container

            return enter_container(container, directory, name, list(argv), environment, cwd)
        return run_in_foreground(argv, cwd, {**os.environ, **environment})

    def join_file(self, job: LocalJob, address: str | None) -> JoinFile:
        directory = job.directory
        join = read_join_file(directory.join)
        listen = LocalRequest.of(read_record(directory)).listen
        if is_loopback(listen):
            if address and not is_loopback(address):
                raise UsageError(
                    f"{job.job_id} listens only on {listen}, so other machines cannot reach "
                    f"it; submit with --listen 0.0.0.0"
                )
            locator = {**join.locator, "outcome": str(directory.outcome)}
        else:
            place = read_json_or_none(directory.coordinator)
            if place is None:
                raise UsageError(f"{job.job_id} has no coordinator yet; try again when it is no longer queued")
            host, _, port = str(place["address"]).rpartition(":")
            locator = {"address": f"{address or host}:{port}"}
        return replace(join, locator=locator, revive=None)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _directory(self, job_id: str) -> JobDirectory:
        directory = JobDirectory(self.jobs / job_id)
        if not directory.path.exists():
            raise no_such_job(job_id, self.name)
        return directory

    def _is_own(self, job_id: str) -> bool:
        record = find_record(JobDirectory(self.jobs / job_id))
        return record is not None and record.cluster == self.name


def make_checkpoints(directory: JobDirectory, wanted: Path) -> None:
    """Makes a directory for checkpoints that is not the job's own; another job that has it is told."""
    if wanted == directory.checkpoints:
        return
    owner = JobDirectory(wanted.parent)
    if wanted == owner.checkpoints and owner.path.parent == directory.path.parent and owner.job.exists():
        with owner.resumed.open("a") as file:
            file.write(f"{directory.id}\n")
    try:
        wanted.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{CHECKPOINTS}={wanted} cannot be created: {error.strerror}; choose another") from None


def _resumed_by(directory: JobDirectory) -> list[str]:
    try:
        return directory.resumed.read_text().split()
    except FileNotFoundError:
        return []
