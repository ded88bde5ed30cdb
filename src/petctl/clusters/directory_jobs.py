"""Jobs that are directories, for platforms whose machines see the same files as the submitter's: what is left of such a
kind is how it starts and ends a program.

    $PETCTL_HOME/KIND/JOB/   job/          what the coordinator is given
                             petctl-agent.pyz, state, state-N     what every process runs, and keeps
                             message       how the job ended, by its coordinator
                             NAME.*        of each process (`coordinator`, and nodes by number): what it has printed
                                           (NAME.out), and how it is kept running (`controller/kept_process.py`)
                             outputs, checkpoints, logs           what the workers make

Other names there are the kind's own.
"""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from petctl.clusters.agent_archive import AGENT, build_agent
from petctl.clusters.backend import COORDINATOR, Ask, Backend, Inspection, ask_with_files, no_such_job, summaries
from petctl.clusters.base import EXEC, FORWARD, SCALE, AlreadyExists, Listed
from petctl.clusters.building import InPlaceBuilder
from petctl.clusters.foreground import NodesHere
from petctl.clusters.job_files import new_credentials, write_job_files
from petctl.clusters.printed import LogFiles, final_status, output_files, printed_status
from petctl.controller.job_files import JOIN
from petctl.controller.journals.records import first_status
from petctl.controller.kept_process import CHANGES, LEFT, want
from petctl.controller.termination_message import read_message, write_message
from petctl.errors import Unreachable
from petctl.files import locked
from petctl.job.record import JobRecord
from petctl.job.spec import Job
from petctl.job.status import JobStatus
from petctl.rendezvous.core.messages import Outcome
from petctl.secret_file import SecretFile, secret_values


class DirectoryJob(Inspection):
    """A job, as its directory is now. `running`: its processes, which whoever made this has asked the platform for."""

    def __init__(self, directory: Path, running: Mapping[str, Any]) -> None:
        self.directory, self.running, self.job_id = directory, running, directory.name
        self.record = JobRecord.from_dict(json.loads((directory / "job" / "job.json").read_bytes()))
        ended = COORDINATOR not in running  # then it has printed its last status, too
        self.message = read_message(directory / "message") if ended else None
        self.asks = not ended

    @property
    def over(self) -> bool:
        return self.message is not None

    def status(self) -> JobStatus:
        if self.message is None:
            return first_status(self.record)
        printed = (self.directory / f"{COORDINATOR}.out").read_bytes().splitlines()[-5:]
        return final_status(self.record, self.message, printed_status(printed))

    def summary(self) -> JobStatus:
        """The status, from the coordinator while there is one."""
        with suppress(Unreachable):
            if self.asks:
                return JobStatus.from_dict(self.ask("status"))
        return self.status()

    def ask(self, call: str, patience: float = 30.0, **params: Any) -> Any:
        files = self.directory / "job"
        return ask_with_files(files / JOIN, files / "token", call, patience, params)


class DirectoryBackend(NodesHere, Backend[DirectoryJob]):
    """All jobs of one cluster of such a kind."""

    capabilities = frozenset({SCALE, EXEC, FORWARD})

    def __init__(self, home: Path, settings: Mapping[str, Any]) -> None:
        self.home, self.settings, self.name = home, settings, str(settings["name"])
        self.jobs, self.secrets = home / self.name, SecretFile(home)

    # -- what a kind supplies ------------------------------------------------------------------------------------------

    detached = False
    """Whether what `start` runs returns, and goes on by itself; otherwise it lasts as long as what it keeps."""

    @abstractmethod
    def start(self, directory: Path, name: str, words: Sequence[str]) -> None:
        """Has `python3 petctl-agent.pyz WORDS` run in the job's directory, on any machine, once. It keeps a process of
        the job running. `running` names it when this returns."""

    @abstractmethod
    def running(self, directory: Path) -> Mapping[str, Any]:
        """What runs now of what was started, or will: by name, whatever it is (`kept_here` tells it for this machine).
        A name goes soon after its end: until the coordinator's has gone the job is not over."""

    @abstractmethod
    def kill(self, job: DirectoryJob) -> None:
        """Ends everything that was started for the job; it has ended when this returns. SIGKILL will do: all that is
        kept ends with its keeper."""

    # -- the rest of a backend -----------------------------------------------------------------------------------------

    def request(self, job: Job, job_id: str, code: Mapping[str, Any] | None) -> JobRecord:
        return InPlaceBuilder(job, job_id, self.home, self.name).build_record()

    def create(self, record: JobRecord) -> None:
        """The directory comes in one step, with all that is in it; then what runs there."""
        self.jobs.mkdir(parents=True, exist_ok=True)
        draft, directory = Path(tempfile.mkdtemp(dir=self.jobs, prefix=".")), self.jobs / record.id
        try:
            port = _free_port(self.host)
            values = secret_values(self.home, {name: name for name in record.secrets.values()})
            credentials = new_credentials(record, self.home, {"address": f"{self.host}:{port}"})
            write_job_files(draft / "job", record, credentials, values)
            build_agent(draft / AGENT)
            draft.rename(directory)
        except BaseException as error:
            shutil.rmtree(draft)
            if isinstance(error, OSError) and directory.exists():
                raise AlreadyExists(f"there is a job {record.id} already") from None
            raise
        words = ["coordinate", "--job", "job", "--state", "state", "--listen", self.host, "--port", str(port)]
        self._keep(directory, COORDINATOR, [], [*words, "--message", "message"])
        with locked(directory / CHANGES):
            self._start_nodes(directory, record.config.wanted)

    def _keep(self, directory: Path, name: str, options: Sequence[str], words: Sequence[str]) -> None:
        detach = ["--detach"] * self.detached
        self.start(directory, name, ["keep", name, *options, *detach, "--", *words])

    def _start_nodes(self, directory: Path, wanted: int) -> None:
        """Where a node is just leaving, too, it is to come back. The caller holds CHANGES."""
        running = self.running(directory)
        for path in directory.glob("[0-9]*.wanted"):
            if int(path.stem) >= wanted:
                path.unlink()
        for node in map(str, range(wanted)):
            if want(directory, node, node in running):
                words = ["join", "--file", f"job/{JOIN}", "--node", node, "--state-dir", f"state-{node}"]
                words += ["--leave-code", str(LEFT), "--stream", "--tagged"]
                self._keep(directory, node, ["--until", "message"], words)

    def list(self, wanted: Callable[[str], bool]) -> Iterator[Listed]:
        found = [path.name for path in self.jobs.glob("[!.]*")]
        return summaries(found, wanted, lambda job_id: self.inspect(job_id).summary())

    def inspect(self, job_id: str) -> DirectoryJob:
        directory = self.jobs / job_id
        if not directory.is_dir():
            raise no_such_job(job_id, self.name)
        return DirectoryJob(directory, self.running(directory))

    def printed(self, job_id: str, role: str) -> LogFiles:
        return output_files(self.jobs / job_id, role)

    def resize(self, job: DirectoryJob, wanted: int, ask: Ask) -> str:
        with locked(job.directory / CHANGES):
            sentence = super().resize(job, wanted, ask)
            self._start_nodes(job.directory, wanted)
        return sentence

    def stop(self, job: DirectoryJob, outcome: Outcome) -> None:
        write_message(job.directory / "message", outcome, finished=time.time())
        self.kill(job)

    def delete(self, job: DirectoryJob) -> None:
        self.kill(job)
        shutil.rmtree(job.directory)

    def stuck_advice(self, job_id: str) -> str:
        return f"End the processes of {self.jobs / job_id}, then"

    def nodes(self, job: DirectoryJob) -> Mapping[str, str]:
        return {name: name for name in job.running if name != COORDINATOR}


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as listener:
        return int(listener.getsockname()[1])
