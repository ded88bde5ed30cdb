"""One round of an MPI job on one node: its files, and the processes that it needs here. Nothing is started.

    PRIVATE/mpi/         hosts, nodes (both are host files), launch, rank, fifo, and the temporary files of mpirun
    /dev/shm/NAME-mpi    shared memory of the ranks: two nodes on one machine would take each other's

The ranks are workers that somebody else starts (`Launch.foreign`); mpirun and its daemons are workers that start others
(`Launch.launcher`).
"""

from __future__ import annotations

import os
import re
from typing import Dict, List, Mapping, Optional, Tuple

from petctl.agent.health.progress import VARIABLE
from petctl.agent.launchers import mpi
from petctl.agent.launchers.launchers import command, look_for
from petctl.agent.launchers.mpi_rank import RankScript
from petctl.agent.logs.log_files import error_file, log_file, round_directory
from petctl.agent.node import runtime_dir
from petctl.agent.workers.environment import RoundContext, worker_environment
from petctl.agent.workers.snapshot_command import command_of, with_snapshot_paths
from petctl.agent.workers.spawn import Launch
from petctl.errors import UsageError
from petctl.job.task import Task

_RANKS_OWN = ("RANK", "LOCAL_RANK", "ROLE_RANK", "TORCHELASTIC_ERROR_FILE", "PETCTL_WORKER_KEY")
_SHARED_MEMORY = ("btl_vader", "btl_sm", "osc_sm", "osc_rdma")  # what of Open MPI puts files there
_PROGRAM = """\
#!/bin/sh
# mpirun's way to another host: asks the agent of this node. Options of ssh, which MPICH gives, mean nothing here.
while [ "${{1#-}}" != "$1" ]; do shift; done
printf '%s' "$*" >{directory}/ask-$$ && echo "{round} launch ask-$$" >{fifo}
{stay}
"""
_STAY = """\
read petctl_code <{directory}/over-"$1" && exit "$petctl_code" # hydra takes its end for that of the daemon
"""


class MpiRound:
    """Made when the node has its place; UsageError says why it cannot be."""

    def __init__(
        self, task: Task, context: RoundContext, inherited: Mapping[str, str], log_dir: str, directory: str
    ) -> None:
        if not directory:
            raise UsageError("mpirun needs a directory with a short path on this node: free space in /tmp or /dev/shm")
        self._task, self._context, self._log_dir, self._private = task, context, log_dir, directory
        self.number, self.first = context.round, context.place.first_rank
        self.node_rank = context.place.rank
        self.leads = self.node_rank == 0  # mpirun runs here
        self.hosts = mpi.hosts_of(task, context.place)
        self.directory = os.path.join(directory, runtime_dir.MPI)
        self._shared = runtime_dir.shared_memory(directory)
        self.fifo = os.path.join(self.directory, "fifo")
        self._shown = os.path.join(self.directory, "nodes")
        self._program = os.path.join(self.directory, "launch")
        self._rank_env = worker_environment(mpi.outside(inherited), task, context, 0, "")
        self._rank_env.update(mpi.host_variables(self.hosts, self._shown))
        for name in _RANKS_OWN:
            self._rank_env.pop(name, None)
        self._env = {**mpi.variables(self.hosts, self._program), **self._rank_env}
        self._env.update({mpi.RANK_SCRIPT: os.path.join(self.directory, "rank"), "TMPDIR": self.directory})
        mpirun = mpi.find_mpirun(self._env)
        self.hydra = self.leads and mpi.is_hydra(mpirun)

    def make_files(self) -> None:
        """All of them anew: what the round before left belongs to nobody."""
        runtime_dir.clear_mpi(self._private)
        os.mkdir(self.directory, 0o700)
        try:
            os.mkdir(self._shared, 0o700)
        except OSError:
            self._shared = self.directory  # slower, but whole
        os.makedirs(round_directory(self._log_dir, self.number), exist_ok=True)
        os.mkfifo(self.fifo, 0o600)
        self._write("hosts", mpi.hostfile(self.hosts, self.hydra))
        self._write("nodes", mpi.shown_hostfile(self.hosts))
        stay = _STAY.format(directory=self.directory) if self.hydra else ""
        self._write("launch", _PROGRAM.format(directory=self.directory, round=self.number, fifo=self.fifo, stay=stay))
        if self.hydra:
            for rank in range(1, len(self.hosts)):
                os.mkfifo(self.gate(rank), 0o600)
        self._write("rank", self._script().text())
        os.chmod(self._program, 0o700)

    def gate(self, rank: int) -> str:
        """The FIFO in which hydra's launch for that node waits for the end of its daemon."""
        return os.path.join(self.directory, f"over-{self.hosts[rank].name}")

    def _write(self, name: str, text: str) -> None:
        with open(os.path.join(self.directory, name), "w", encoding="utf-8") as file:
            file.write(text)

    def _script(self) -> RankScript:
        own: Dict[str, Optional[str]] = {"TMPDIR": self._rank_env.get("TMPDIR"), mpi.RANK_SCRIPT: None}
        for component in _SHARED_MEMORY:
            name = f"OMPI_MCA_{component}_backing_directory"
            if name not in self._rank_env:
                own[name] = self._shared
        start = command_of(self._task)
        cwd, argv = start.cwd or os.getcwd(), command(self._task, self._rank_env)
        changed = with_snapshot_paths(self._rank_env, self._task, start.searches)
        own.update({name: value for name, value in changed.items() if self._rank_env.get(name) != value})
        look_for(argv[0], cwd, self._rank_env)
        return RankScript(
            round=self.number,
            first=self.first,
            key=f"{self._context.node_key}/{self.number}",
            logs=round_directory(self._log_dir, self.number),
            fifo=self.fifo,
            cwd=cwd,
            argv=argv,
            variables=own,
        )

    # -- processes ---------------------------------------------------------------------------------------------------

    def ranks(self) -> List[Launch]:
        """The ranks of this node."""
        return [self.rank(local_rank, self.first + local_rank) for local_rank in range(self._context.procs)]

    def rank(self, local_rank: int, rank: int) -> Launch:
        """One of them; MPI has the last word on which rank it is."""
        place = self.first + local_rank
        return Launch(
            rank=rank,
            local_rank=local_rank,
            argv=list(self._task.words),
            env={
                "PETCTL_WORKER_KEY": f"{self._context.node_key}/{self.number}/{place}",
                VARIABLE: log_file(self._log_dir, self.number, place, "progress"),
            },
            cwd=command_of(self._task).cwd or None,
            out=log_file(self._log_dir, self.number, rank, "out"),
            err=log_file(self._log_dir, self.number, rank, "err"),
            error_file=error_file(self._log_dir, self.number, rank),
            round=self.number,
            foreign=True,
        )

    def mpirun(self) -> Launch:
        """What starts all ranks."""
        hosts, options = os.path.join(self.directory, "hosts"), list(self._task.mpi_options)
        argv = mpi.command(self.hydra, self.hosts, hosts, self._program, options)
        return self._launcher(argv, "launcher")

    def daemon(self, line: str) -> Launch:
        """What starts the ranks of this node, as mpirun has asked for it: a line for the shell."""
        # It names mpirun's own program, which nodes in containers do not see; a daemon checks that it is there.
        line = re.sub(rf"/[\w./+-]*/{runtime_dir.MPI}/{os.path.basename(self._program)}\b", self._program, line)
        return self._launcher(["/bin/sh", "-c", line], f"launcher-{self.node_rank}")

    def _launcher(self, argv: List[str], name: str) -> Launch:
        path = os.path.join(round_directory(self._log_dir, self.number), name)
        out, err = f"{path}.out", f"{path}.err"
        return Launch(-1, -1, argv, self._env, self._task.cwd or None, out, err, round=self.number, launcher=True)

    def whose(self, rank: int) -> Tuple[str, int]:
        """The node that has this rank, and its number there."""
        first = 0
        for host in self.hosts:
            if rank < first + host.slots:
                return host.node, rank - first
            first += host.slots
        return self._context.node, 0
