"""The debug cluster: what `petctl.clusters.backend` asks for, in as few lines as it takes.

Jobs are in the memory of the process, and every backend of the same home and name has the same ones. A job runs at once
and in place: nothing is queued, copied, sent or installed, and `request` refuses what would need that.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from petctl.clusters.backend import Backend, no_such_job, summaries
from petctl.clusters.base import EXEC, FORWARD, SCALE, AlreadyExists, Cluster, Listed
from petctl.clusters.building import InPlaceBuilder, refuse
from petctl.clusters.debug.gang import Gang
from petctl.clusters.debug.options import DebugOptions
from petctl.clusters.foreground import NodesHere
from petctl.clusters.managed import ManagedCluster
from petctl.clusters.printed import LogFiles, output_files
from petctl.job.record import JobRecord
from petctl.job.spec import Job
from petctl.job.spec.options import options_for
from petctl.rendezvous.core.messages import Outcome
from petctl.secret_file import SecretFile, secret_values
from petctl.submission.task import layout_of

REFUSED = ("code", "image", "launcher", "outputs", "prepare", "requirements", "retry_on", "roles")

_gangs: defaultdict[tuple[Path, str], dict[str, Gang]] = defaultdict(dict)


def connect(home: Path, settings: Mapping[str, Any]) -> Cluster:
    """What `find_cluster` calls."""
    return ManagedCluster(DebugBackend(home, str(settings["name"])))


class DebugBackend(NodesHere, Backend[Gang]):
    """The jobs of this process under one home and name."""

    capabilities = frozenset({SCALE, EXEC, FORWARD})

    def __init__(self, home: Path, name: str) -> None:
        self.home, self.name = home, name
        self._gangs, self.secrets = _gangs[home, name], SecretFile(home)

    def request(self, job: Job, job_id: str, code: Mapping[str, Any] | None) -> JobRecord:
        layout = ["layout"] if layout_of(job, job_id).kind else []
        refuse(job, self.name, [*REFUSED, *(["procs"] if not job.procs.isdigit() else [])], layout)
        builder = InPlaceBuilder(job, job_id, self.home, self.name)
        builder.own = {"start_delay": options_for(job.options, DebugOptions).start_delay}
        builder.notes.append("a job on a debug cluster ends with the process that has submitted it")
        return builder.build_record()

    def create(self, record: JobRecord) -> None:
        try:
            Path(record.directory).mkdir(parents=True)  # one of two who submit the same id at once makes it
        except FileExistsError:
            raise AlreadyExists(f"there is a job {record.id} already") from None
        for place in (record.task.output_dir, record.task.checkpoint_dir):
            Path(place).mkdir(parents=True, exist_ok=True)
        values = secret_values(self.home, record.secrets)
        self._gangs[record.id] = Gang(JobRecord.from_dict(record.to_dict()), values)

    def list(self, wanted: Callable[[str], bool]) -> Iterator[Listed]:
        return summaries(list(self._gangs), wanted, lambda job_id: self._gangs[job_id].status())

    def inspect(self, job_id: str) -> Gang:
        if job_id not in self._gangs:
            raise no_such_job(job_id, self.name)
        return self._gangs[job_id]

    def printed(self, job_id: str, role: str) -> LogFiles:
        return output_files(self.inspect(job_id).directory, role)

    def stop(self, job: Gang, outcome: Outcome) -> None:
        job.finish(outcome)

    def delete(self, job: Gang) -> None:
        shutil.rmtree(self._gangs.pop(job.job_id).directory)

    def stuck_advice(self, job_id: str) -> str:
        return "Its workers do not end; end this process, or"

    def nodes(self, job: Gang) -> Mapping[str, str]:
        return {} if job.over else {node.name: node.name for node in job.status().nodes}
