"""The debug cluster: what `petctl.clusters.backend` asks for, in as few lines as it takes.

Jobs and secrets are in the memory of the process, and every backend of the same home and name has the same ones. A job
runs at once and in place: nothing is queued, copied, sent or installed, and `request` refuses what would need that.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from petctl.clusters.backend import Backend, no_such_job, summaries
from petctl.clusters.base import EXEC, FORWARD, SCALE, AlreadyExists, Cluster, Listed
from petctl.clusters.building import RecordBuilder
from petctl.clusters.debug.gang import Gang, GangPrinted
from petctl.clusters.debug.options import DebugOptions
from petctl.clusters.foreground import run_in_foreground
from petctl.clusters.managed import ManagedCluster
from petctl.errors import UsageError
from petctl.job.record import JobRecord
from petctl.job.spec import IN_PLACE, Job
from petctl.job.spec.options import options_for
from petctl.job.task import Task
from petctl.rendezvous.core.messages import Outcome
from petctl.submission.task import check_command, interpreter, layout_of, task_of, working_directory

REFUSED = ("image", "launcher", "outputs", "prepare", "requirements", "retry_on", "roles")

_gangs: defaultdict[tuple[Path, str], dict[str, Gang]] = defaultdict(dict)
_secrets: defaultdict[tuple[Path, str], Secrets] = defaultdict(lambda: Secrets())


def connect(home: Path, settings: Mapping[str, Any]) -> Cluster:
    """What `find_cluster` calls."""
    return ManagedCluster(DebugBackend(home, str(settings["name"])))


class DebugBuilder(RecordBuilder):
    """A job on its way to nowhere."""

    folder_cache = ""

    @property
    def directory(self) -> str:
        return str(self.home / "debug" / self.id)

    def task(self) -> Task:
        cwd = working_directory(self.job)
        check_command(self.job, cwd)
        self.notes = ["a job on a debug cluster ends with the process that has submitted it"]
        return task_of(self.job, self.id, cwd, interpreter(self.job, cwd, os.environ), Path(self.directory))

    def request(self, task: Task, grants: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        return {"start_delay": options_for(self.job.options, DebugOptions).start_delay}


class DebugBackend(Backend[Gang]):
    """The jobs of this process under one home and name."""

    capabilities = frozenset({SCALE, EXEC, FORWARD})

    def __init__(self, home: Path, name: str) -> None:
        self.home, self.name = home, name
        self._gangs, self._secrets = _gangs[home, name], _secrets[home, name]
        self.secrets = self._secrets

    def request(self, job: Job, job_id: str, code: Mapping[str, Any] | None) -> JobRecord:
        usual = Job(program=["true"])
        unusual = [name for name in REFUSED if getattr(job, name) != getattr(usual, name)]
        unusual += ["layout"] * bool(layout_of(job, job_id).kind)
        unusual += ["procs"] * (not job.procs.isdigit()) + ["code"] * (job.code not in ("", IN_PLACE))
        if unusual:
            raise UsageError(f"{self.name} is a debug cluster and cannot do this: {', '.join(unusual)}")
        plain = replace(job, code=IN_PLACE, folders="none", store="none")
        return DebugBuilder(plain, job_id, self.home, self.name, None).build_record()

    def create(self, record: JobRecord) -> None:
        try:
            Path(record.directory).mkdir(parents=True)  # one of two who submit the same id at once makes it
        except FileExistsError:
            raise AlreadyExists(f"there is a job {record.id} already") from None
        for place in (record.task.output_dir, record.task.checkpoint_dir):
            Path(place).mkdir(parents=True, exist_ok=True)
        values = {variable: self._secrets[name] for variable, name in record.secrets.items()}
        self._gangs[record.id] = Gang(JobRecord.from_dict(record.to_dict()), values)

    def record(self, job_id: str) -> JobRecord:
        return JobRecord.from_dict(self.inspect(job_id).record.to_dict())

    def list(self, wanted: Callable[[str], bool]) -> Iterator[Listed]:
        return summaries(list(self._gangs), wanted, lambda job_id: self._gangs[job_id].status())

    def inspect(self, job_id: str) -> Gang:
        if job_id not in self._gangs:
            raise no_such_job(job_id, self.name)
        return self._gangs[job_id]

    def printed(self, job_id: str, role: str) -> GangPrinted:
        return GangPrinted(self.inspect(job_id), role)

    def stop(self, job: Gang, outcome: Outcome) -> None:
        job.finish(outcome)

    def delete(self, job: Gang) -> None:
        shutil.rmtree(self._gangs.pop(job.job_id).record.directory)

    def stuck_advice(self, job_id: str) -> str:
        return "Its workers do not end; end this process, or"

    def nodes(self, job: Gang) -> Mapping[str, str]:
        return {} if job.over else {node.name: node.name for node in job.status().nodes}

    def dial(self, node: Any, port: int) -> socket.socket:
        return socket.create_connection(("127.0.0.1", port), timeout=10)

    def execute(self, job: Gang, node: Any, argv: Sequence[str]) -> int:
        task = job.task
        own = {"PETCTL_JOB_ID": job.job_id, "PETCTL_NODE": node, "PETCTL_OUTPUT_DIR": task.output_dir}
        return run_in_foreground(argv, task.cwd, {**os.environ, **task.env, **task.secrets, **own})


class Secrets(dict[str, str]):
    """Secrets in memory, as a SecretStore."""

    def names(self) -> list[str]:
        return sorted(self)

    def set(self, name: str, value: str) -> None:
        self[name] = value

    def remove(self, name: str) -> None:
        del self[name]
