"""This machine as a `Cluster`: job directories under $PETCTL_HOME/jobs, in line for slots, and then each with a
detached supervisor.

Runs in the user's command, so it never waits for more than it must: it puts jobs in line and looks at it, writes down
wishes, reads files, and asks a coordinator where a wish is to be obeyed at once. What a job does once it has slots is
its supervisor's business.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from petctl import secret_file
from petctl.clusters.base import CONTAINERS, EXEC, FORWARD, HERE, JOIN, SCALE, InUse, Listed, LogFilter, LogLine
from petctl.clusters.foreground import run_in_foreground
from petctl.clusters.local import readers
from petctl.clusters.local.addresses import check_listen, is_loopback
from petctl.clusters.local.delete import remove_directory
from petctl.clusters.local.finalize import CANCELLED_IN_LINE, finalize
from petctl.clusters.local.job_directory import JobDirectory, read_json, write_json, write_text
from petctl.clusters.local.job_status import list_statuses, newest_status
from petctl.clusters.local.queue.queue import look, slots_of
from petctl.clusters.local.record import LocalRequest, find_record, read_record
from petctl.clusters.local.submit import accept
from petctl.clusters.local.upkeep import attend, finish
from petctl.errors import InternalError, NoRoom, NotFound, PetctlError, Unreachable, UsageError, is_no_room
from petctl.job.record import JobRecord, Output
from petctl.job.spec import Job
from petctl.job.status import JobStatus, NodeStatus
from petctl.job.task import CHECKPOINTS
from petctl.rendezvous.net.join_file import read_join_file, write_join_file
from petctl.text import counted

ATTEND_EVERY = 0.5  # seconds between two looks of a command that waits for a job
REVIVE_PATIENCE = 3.0  # how long a wish waits for a supervisor that is being replaced


def connect(home: Path, settings: Mapping[str, Any]) -> LocalCluster:
    """What `find_cluster` calls."""
    return LocalCluster(home, settings)


class LocalCluster:
    """The jobs of one $PETCTL_HOME."""

    capabilities = frozenset({SCALE, EXEC, FORWARD, JOIN, CONTAINERS, HERE})

    def __init__(self, home: Path, settings: Mapping[str, Any]) -> None:
        self.name = str(settings.get("name") or "local")
        self.home, self.settings = home, settings
        self.jobs = home / "jobs"

    # -- submitting ----------------------------------------------------------------------------------------------------

    def build_record(self, job: Job, job_id: str, code: Mapping[str, Any] | None = None) -> JobRecord:
        """The job's record, as it will be kept."""
        from petctl.clusters.local.build_record import build_record  # only a submitter needs all that it imports

        return build_record(job, JobDirectory(self.jobs / job_id), self.settings, code)

    def manifests(self, job: Job, job_id: str, with_secrets: bool) -> None:
        """None: only petctl starts processes here."""

    def record(self, job_id: str) -> JobRecord:
        """What was submitted."""
        directory = self._directory(job_id)
        record = read_record(directory)
        if record.code:
            archive = directory.code  # its own link: it may be the last one
            if not archive.exists():  # this home is a copy of another one, or somebody made room
                from petctl.bundle.bundle_cache import Cabinet

                archive = Cabinet(self.home / "bundles").path(record.code["id"])
            return replace(record, code={**record.code, "archive": str(archive)})
        return record

    def submit(self, record: JobRecord) -> None:
        """Makes the whole directory under another name, then gives it its own in one step, then starts whoever is
        due."""
        request, code = LocalRequest.of(record), record.code
        check_listen(request.listen)
        directory = JobDirectory(self.jobs / record.id)
        make_checkpoints(directory, Path(record.task.checkpoint_dir))
        secret_file.secret_values(self.home, record.secrets)  # a missing one is told now, not in the queue
        if request.container.get("credentials"):
            secret_file.secret_values(self.home, {"image_credentials": request.container["credentials"]})
        if record.folders:
            from petctl.submission.folder_mounts import check_folders

            check_folders(record.folders, self.home)
        if record.results.outputs:
            from petctl.submission.results import check_results

            check_results(record.grants, self.home)
        if code and (record.task.code.grant or not Path(code["archive"]).exists()):
            from petctl.submission.code_store import keep_code

            keep_code(code, record.grants, self.home)
        try:
            accept(directory, record)
        except OSError as error:
            if not is_no_room(error):
                raise
            raise NoRoom(
                f"the job was not submitted: no space left on the disk of {self.home}; free space, for instance "
                f"with petctl rm --finished, and submit it again"
            ) from None

    def notes(self, job_id: str) -> list[str]:
        """The record's, and what a job that waits may lose."""
        from petctl.clusters.local.controller.start_environment import waiting_note

        directory, record = self._directory(job_id), self.record(job_id)
        note = waiting_note(directory, record)
        return [*record.notes, *([note] if note else [])]

    # -- looking -------------------------------------------------------------------------------------------------------

    def ids(self) -> list[str]:
        """Every job there is; drafts are not jobs. A cluster that was made has its own, `local` knows them all."""
        try:
            ids = [path.name for path in self.jobs.iterdir() if not path.name.startswith(".")]
        except FileNotFoundError:
            return []
        if not self.settings.get("resource"):
            return ids
        return [job for job in ids if self._is_own(job)]

    def status(self, job_id: str) -> JobStatus:
        """The newest status."""
        return newest_status(self._directory(job_id))

    def statuses(self, wanted: Callable[[str], bool]) -> Iterator[Listed]:
        """Every job, the wanted ones with their status."""
        return list_statuses(self.jobs, iter(self.ids()), wanted)

    def attend(self, job_id: str) -> float:
        """Finishes the job if it is lost, and moves its queue on."""
        attend(self._directory(job_id))
        return ATTEND_EVERY

    def watch(self, job_id: str, seen: JobStatus | None, timeout: float) -> JobStatus:
        """A status that differs from `seen`, or the newest one after `timeout`."""
        return readers.watch_status(self._directory(job_id), seen, timeout)

    def events(self, job_id: str, follow: bool) -> Iterator[dict[str, Any]]:
        """What has happened."""
        return readers.read_events(self._directory(job_id), follow)

    def logs(self, job_id: str, wanted: LogFilter, follow: bool) -> Iterator[LogLine]:
        """What the workers wrote."""
        directory = self._directory(job_id)
        if wanted.node is not None:
            _known_node(newest_status(directory), wanted.node)
        return readers.read_logs(directory, wanted, follow)

    def outputs(self, job_id: str) -> list[Output]:
        """Where a job's outputs lie."""
        from petctl.submission.results import outputs_of

        return outputs_of(self.record(job_id))

    # -- wishes --------------------------------------------------------------------------------------------------------

    def scale(self, job_id: str, wanted: int) -> str:
        """Tells the supervisor; a queued job's supervisor reads the wish when its turn comes."""
        directory = self._directory(job_id)
        attend(directory)
        size = self._live(directory, "scaled").size
        if not size.min <= wanted <= size.max:
            raise UsageError(
                f"{job_id} may have {size.min} to {size.max} nodes, not {wanted}; "
                "a job's bounds are set when it is submitted"
            )
        if not directory.begun():
            write_text(directory.wanted, f"{wanted}\n", durable=True)
            slots_of(self.home, read_record(directory).cluster).want(job_id, wanted)
            if not directory.begun():  # looked at again: it may have started meanwhile, with the old size
                return f"will start with {counted(wanted, 'node')}"
        return str(self._ask(directory, "scale", wanted=wanted))

    def cancel(self, job_id: str, kill: bool) -> str:
        """Writes the wish down first: it holds also if the supervisor is killed at this very moment."""
        directory = self._directory(job_id)
        status = newest_status(directory)
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
            return str(self._ask(directory, "cancel", kill=kill))
        except Unreachable:
            return "cancelling: its supervisor is being replaced and will finish it"

    def unanswered_advice(self, job_id: str) -> str:
        """Names the process that has to go, where there is one."""
        directory = self._directory(job_id)
        again = f"run petctl rm --force {job_id} again"
        pid = (read_json(directory.coordinator) or {}).get("pid")
        if pid and directory.supervised():
            return f"Its supervisor does not answer. End it with: kill -9 {pid}; then {again}"
        return f"See {directory.supervisor_log} for the reason, then {again}"

    def remove(self, job_id: str) -> None:
        """Removes the directory of a job that has ended."""
        directory = JobDirectory(self.jobs / job_id)
        if not directory.path.exists():
            directory = self._directory(job_id)  # says that there is none
        try:
            finish(directory)
            over = newest_status(directory).finished is not None
        except InternalError:  # damaged: then it is over when nobody looks after it
            over = not directory.alive()
        if not over:
            raise UsageError(f"{job_id} has not ended; cancel it first: petctl cancel {job_id}")
        for other in _resumed_by(directory):
            later = JobDirectory(self.jobs / other)
            if later.job.exists() and newest_status(later).finished is None:
                raise InUse(f"{job_id} has the checkpoints that {other} uses, which has not ended")
        cluster = str((read_json(directory.job) or {}).get("cluster", ""))
        remove_directory(directory)
        with suppress(PetctlError, OSError):
            look(self.home, cluster or self.name)

    def execute(self, job_id: str, argv: list[str], node: str | None) -> int:
        """Runs a command in the job's directory with a node's environment."""
        from petctl.agent.workers.environment import output_variable  # costs more than all the rest of this file

        directory = self._directory(job_id)
        status = self._live(directory, "entered")
        name = (_known_node(status, node) if node is not None else _first_node(status)).name
        record = read_record(directory)
        task = record.task
        environment = {
            **task.env,
            **secret_file.secret_values(self.home, record.secrets),
            "PETCTL_JOB_ID": job_id,
            "PETCTL_NODE": name,
            "PETCTL_OUTPUT_DIR": task.output_dir,
            CHECKPOINTS: task.checkpoint_dir,
            **{output_variable(output): f"{task.output_dir}/{output}" for output in task.outputs},
        }
        cwd = task.cwd or str(directory.unpacked / task.code.inside)
        if task.batchai:
            from petctl.submission import batchai

            more, work = batchai.environment(record, name)
            environment, cwd = {**environment, **more}, work or cwd
        container = LocalRequest.of(record).container
        if container:
            from petctl.clusters.local.containers.node_containers import enter_container

            return enter_container(container, directory, name, argv, environment, cwd)
        try:
            return run_in_foreground(argv, cwd=cwd, env={**os.environ, **environment})
        except OSError as error:
            raise UsageError(f"cannot run {argv[0]!r} in {cwd}: {error.strerror}") from None

    def forward(
        self, job_id: str, port: int, local_port: int, node: str | None, tell: Callable[[str], None] | None = None
    ) -> AbstractContextManager[int]:
        """A port here that leads to a node's."""
        status = self._live(self._directory(job_id), "reached")
        row = _known_node(status, node) if node is not None else _first_node(status)
        import socket

        from petctl.clusters.port_forward import forwarded

        place = row.address or "127.0.0.1", port
        return forwarded(lambda: socket.create_connection(place, timeout=10), local_port, tell)

    def token(self, job_id: str, path: Path, address: str | None) -> None:
        """A join file for agents that this machine does not start itself."""
        directory = self._directory(job_id)
        self._live(directory, "joined")
        join = read_join_file(directory.join)
        listen = LocalRequest.of(read_record(directory)).listen
        if is_loopback(listen):
            if address and not is_loopback(address):
                raise UsageError(
                    f"{job_id} listens only on {listen}, so other machines cannot reach "
                    f"it; submit with --listen 0.0.0.0"
                )
            locator = {**join.locator, "outcome": str(directory.outcome)}
        else:
            place = read_json(directory.coordinator)
            if place is None:
                raise UsageError(f"{job_id} has no coordinator yet; try again when it is no longer queued")
            host, _, port = str(place["address"]).rpartition(":")
            locator = {"address": f"{address or host}:{port}"}
        write_join_file(path, replace(join, locator=locator, revive=None))

    def capacity(self) -> dict[str, object]:
        """Slots of this machine, or nodes of the cluster that was made on it."""
        from petctl.clusters.local import capacity

        if self.settings.get("resource"):
            return capacity.fleet(self.home, self.name)
        return capacity.machine(self.home, self.name, self.settings, self.record)

    # -- secrets -------------------------------------------------------------------------------------------------------

    def set_secret(self, name: str, value: str) -> None:
        """Keeps a secret for the jobs of this machine."""
        secret_file.set_secret(self.home, name, value)

    def list_secrets(self) -> list[str]:
        """Names, never values."""
        return secret_file.list_secrets(self.home)

    def remove_secret(self, name: str) -> None:
        """Forgets a secret."""
        secret_file.remove_secret(self.home, name)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _directory(self, job_id: str) -> JobDirectory:
        directory = JobDirectory(self.jobs / job_id)
        if not directory.job.exists():
            raise NotFound(f"there is no job {job_id!r}; `petctl list` shows the jobs")
        return directory

    def _is_own(self, job_id: str) -> bool:
        record = find_record(JobDirectory(self.jobs / job_id))
        return record is not None and record.cluster == self.name

    def _live(self, directory: JobDirectory, verb: str) -> JobStatus:
        status = newest_status(directory)
        if status.finished is not None:
            raise UsageError(f"{directory.id} has ended ({status.state}) and cannot be {verb}")
        return status

    def _ask(self, directory: JobDirectory, call: str, **words: Any) -> Any:
        """Asks the coordinator, also one that is just being replaced."""
        from petctl.rendezvous.net.client import ControlLink  # sockets, for the few commands that need them

        join = read_join_file(directory.join).for_control(directory.token.read_text().strip())
        deadline = time.monotonic() + REVIVE_PATIENCE
        while True:
            try:
                with ControlLink(join) as link:
                    return link.call(call, **words)
            except Unreachable:
                if time.monotonic() > deadline or not directory.alive():
                    raise
                readers.watch_status(directory, newest_status(directory), 0.1)


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


def _known_node(status: JobStatus, name: str) -> NodeStatus:
    found = next((node for node in status.nodes if node.name == name), None)
    if found is None and not any(name in past.nodes for past in status.rounds):
        known = ", ".join(node.name for node in status.nodes) or "none yet"
        raise NotFound(f"{status.id} has no node {name!r}; its nodes: {known}")
    return found or NodeStatus(name, "gone")


def _first_node(status: JobStatus) -> NodeStatus:
    if not status.nodes:
        raise UsageError(f"{status.id} has no node yet: {status.sentence}")
    return min(status.nodes, key=lambda node: (node.rank is None, node.rank or 0))
