"""The debug cluster as a `Cluster`. What each method promises is said in `base.py`; this is how little it can take.

Jobs and secrets are in the memory of the process, and every DebugCluster of the same home and name has the same ones.
They end with it. A job runs at once and in place: nothing is queued, copied, sent or installed, and `build_record`
refuses what would need that. Nobody can join from elsewhere, so there is no join file.
"""

from __future__ import annotations

import math
import os
import shutil
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import Any

from petctl.clusters.base import AlreadyExists, Cluster, Listed, LogFilter, LogLine
from petctl.clusters.debug.gang import Gang
from petctl.clusters.local.foreground import run_in_foreground
from petctl.clusters.port_forward import forwarded
from petctl.errors import NotFound, UsageError
from petctl.job.file.write import job_to_dict
from petctl.job.output import Output
from petctl.job.record import JobRecord
from petctl.job.spec import IN_PLACE, Job
from petctl.job.status import JobStatus
from petctl.rendezvous.core.messages import CANCELLED, Outcome
from petctl.submission.results import outputs_of
from petctl.submission.task import check_command, command_line, config_of, interpreter, task_of, working_directory

REFUSED = ("batchai", "gpus", "image", "launcher", "outputs", "pod", "prepare", "requirements", "retry_on", "roles")

_gangs: defaultdict[tuple[Path, str], dict[str, Gang]] = defaultdict(dict)
_secrets: defaultdict[tuple[Path, str], dict[str, str]] = defaultdict(dict)


def connect(home: Path, settings: Mapping[str, Any]) -> Cluster:
    """What `find_cluster` calls."""
    return DebugCluster(home, str(settings["name"]))


class DebugCluster:
    """The jobs of this process under one home and name."""

    def __init__(self, home: Path, name: str) -> None:
        self.home, self.name = home, name
        self._gangs, self._secrets = _gangs[home, name], _secrets[home, name]

    def build_record(self, job: Job, job_id: str, code: Mapping[str, Any] | None = None) -> JobRecord:
        usual = Job(program=["true"])
        unusual = [name for name in REFUSED if getattr(job, name) != getattr(usual, name)]
        unusual += ["procs"] * (not job.procs.isdigit()) + ["code"] * (job.code not in ("", IN_PLACE))
        if unusual:
            raise UsageError(f"{self.name} is a debug cluster and cannot do this: {', '.join(unusual)}")
        cwd, directory = working_directory(job), self.home / "debug" / job_id
        check_command(job, cwd)
        return JobRecord(
            id=job_id,
            name=job.name or job_id.rpartition("-")[0],
            cluster=self.name,
            submitted=time.time(),
            command=command_line(job),
            config=config_of(job),
            task=task_of(job, job_id, cwd, interpreter(job, cwd, os.environ), directory),
            cwd=cwd,
            notes=["a job on a debug cluster ends with the process that has submitted it"],
            directory=str(directory),
            job=job_to_dict(job),
            secrets=dict(job.secrets),
            max_time=job.max_time,
        )

    def manifests(self, job: Job, job_id: str, with_secrets: bool) -> None:
        return None

    def submit(self, record: JobRecord) -> None:
        job_id, directory = record.id, Path(record.directory)
        values = {variable: self._secret(name) for variable, name in record.secrets.items()}
        try:
            directory.mkdir(parents=True)  # one of two who submit the same id at once makes it
        except FileExistsError:
            raise AlreadyExists(f"there is a job {job_id} already") from None
        for place in (record.task.output_dir, record.task.checkpoint_dir):
            Path(place).mkdir(parents=True, exist_ok=True)
        self._gangs[job_id] = Gang(JobRecord.from_dict(record.to_dict()), values)

    def record(self, job_id: str) -> JobRecord:
        return JobRecord.from_dict(self._gang(job_id).record.to_dict())

    def notes(self, job_id: str) -> list[str]:
        return list(self._gang(job_id).record.notes)

    def ids(self) -> list[str]:
        return list(self._gangs)

    def status(self, job_id: str) -> JobStatus:
        return self._gang(job_id).status

    def statuses(self, wanted: Callable[[str], bool]) -> Iterator[Listed]:
        return (Listed(job_id, self.status(job_id) if wanted(job_id) else None) for job_id in self.ids())

    def attend(self, job_id: str) -> float:
        return math.inf  # its thread does

    def watch(self, job_id: str, seen: JobStatus | None, timeout: float) -> JobStatus:
        gang = self._gang(job_id)
        with gang.changed:
            gang.changed.wait_for(lambda: gang.status != seen, timeout)
        return self.status(job_id)

    def events(self, job_id: str, follow: bool) -> Iterator[dict[str, Any]]:
        gang = self._gang(job_id)
        return _coming(gang, gang.events, follow)

    def logs(self, job_id: str, wanted: LogFilter, follow: bool) -> Iterator[LogLine]:
        gang, shown = self._gang(job_id), list[LogLine]()
        past = len(gang.lines) if wanted.tail is not None else 0
        newest, counts = max((line.round for line in gang.lines), default=0), Counter[int]()
        for line in reversed(gang.lines[:past]):  # which of each worker's lines are its last is known only backwards
            counts[line.rank] += line.round == (wanted.round or newest)
            if line.round == (wanted.round or newest) and counts[line.rank] <= (wanted.tail or 0):
                shown.insert(0, line)
        return (line for line in chain(shown, _coming(gang, gang.lines, follow, past)) if _matches(line, wanted))

    def outputs(self, job_id: str) -> list[Output]:
        return outputs_of(self.record(job_id))

    def scale(self, job_id: str, wanted: int) -> str:
        gang = self._live(job_id, "scaled")
        least, most = gang.status.size.min, gang.status.size.max
        if not least <= wanted <= most:
            raise UsageError(f"{job_id} may have {least} to {most} nodes, not {wanted}")
        with gang.changed:
            before, gang.wanted = gang.wanted, wanted
            gang.changed.notify_all()
        return f"scaling from {before} to {wanted} nodes"

    def cancel(self, job_id: str, kill: bool) -> str:
        gang = self._gang(job_id)
        with gang.changed:
            if gang.status.finished is not None:
                return "has ended already"
            gang.end = gang.end or Outcome(CANCELLED, 130, "killed by the user" if kill else "cancelled by the user")
            gang.killed = gang.killed or kill
            gang.changed.notify_all()
        return "killing" if kill else "cancelling"

    def unanswered_advice(self, job_id: str) -> str:
        return f"Its workers do not end; end this process, or run petctl rm --force {job_id} again"

    def remove(self, job_id: str) -> None:
        if self._gang(job_id).status.finished is None:
            raise UsageError(f"{job_id} has not ended; cancel it first: petctl cancel {job_id}")
        shutil.rmtree(self._gangs.pop(job_id).record.directory)

    def execute(self, job_id: str, argv: list[str], node: str | None) -> int:
        name, task = self._node(job_id, node), self._gang(job_id).task
        own = {"PETCTL_JOB_ID": job_id, "PETCTL_NODE": name, "PETCTL_OUTPUT_DIR": task.output_dir}
        try:
            return run_in_foreground(argv, task.cwd, {**os.environ, **task.env, **task.secrets, **own})
        except OSError as error:
            raise UsageError(f"cannot run {argv[0]!r} in {task.cwd}: {error.strerror}") from None

    def forward(
        self, job_id: str, port: int, local_port: int, node: str | None, tell: Callable[[str], None] | None = None
    ) -> AbstractContextManager[int]:
        self._node(job_id, node)
        return forwarded(lambda: socket.create_connection(("127.0.0.1", port), timeout=10), local_port, tell)

    def token(self, job_id: str, path: Path, address: str | None) -> None:
        self._live(job_id, "joined")
        raise UsageError(f"nobody can join {job_id}: {self.name} is a debug cluster")

    def set_secret(self, name: str, value: str) -> None:
        self._secrets[name] = value

    def list_secrets(self) -> list[str]:
        return sorted(self._secrets)

    def remove_secret(self, name: str) -> None:
        self._secret(name)
        del self._secrets[name]

    def _secret(self, name: str) -> str:
        if name not in self._secrets:
            raise NotFound(f"there is no secret {name!r}; keep it with: petctl secret set -c {self.name} {name}")
        return self._secrets[name]

    def _gang(self, job_id: str) -> Gang:
        if job_id not in self._gangs:
            raise NotFound(f"there is no job {job_id!r}; `petctl list -c {self.name}` shows those there are")
        return self._gangs[job_id]

    def _live(self, job_id: str, verb: str) -> Gang:
        gang = self._gang(job_id)
        if gang.status.finished is not None:
            raise UsageError(f"{job_id} has ended ({gang.status.state}) and cannot be {verb}")
        return gang

    def _node(self, job_id: str, node: str | None) -> str:
        names = [node.name for node in self._live(job_id, "entered").status.nodes]
        if node is None and names:
            return names[0]
        if node not in names:
            raise NotFound(f"{job_id} has no node {node!r}; its nodes: {', '.join(names) or 'none yet'}")
        return str(node)


def _coming(gang: Gang, things: list[Any], follow: bool, past: int = 0) -> Iterator[Any]:
    """What there is after the first `past`; with `follow` until the job has ended."""
    while True:
        with gang.changed:
            while follow and len(things) == past and gang.status.finished is None:
                gang.changed.wait()
            new = things[past:]
        if not new:
            return
        past += len(new)
        yield from new


def _matches(line: LogLine, wanted: LogFilter) -> bool:
    said = ((wanted.rank, line.rank), (wanted.node, line.node), (wanted.round, line.round))
    return all(wish is None or wish == own for wish, own in said)
