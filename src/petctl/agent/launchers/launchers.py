"""What differs by launcher: how the workers of a job come to be on a node, from command lines to files.

    elastic    one process per local rank, started and watched by petctl itself
    torchrun   one process per node, which is PyTorch's own launcher with a static rendezvous; for comparison
    plain      one process per node, or the tasks of the job's roles: `plain.py`
    mpi        mpirun starts them: `mpi_node.py`

Nothing is started here.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from petctl.agent.health.progress import VARIABLE
from petctl.agent.logs.log_files import error_file, log_file
from petctl.agent.node import setup_step
from petctl.agent.warm import startup
from petctl.agent.workers.environment import RoundContext, node_environment, worker_environment
from petctl.agent.workers.processes import PREPARE_STEP, STEP
from petctl.agent.workers.snapshot_command import command_of, interpreter_words, with_snapshot_paths
from petctl.agent.workers.workers import Launch, Worker, Workers
from petctl.errors import UsageError
from petctl.job.task import ELASTIC, MODULE, MPI, PLAIN, PROGRAM, SCRIPT, SHELL, TORCHRUN, Task
from petctl.rendezvous.core.messages import Failure

_COMES_AGAIN = {
    *(errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM),
    *(errno.ENOEXEC, errno.ELOOP, errno.ENAMETOOLONG, errno.E2BIG),
}


def interpreter(task: Task, env: Mapping[str, str]) -> str:
    """The Python that runs the job's scripts and modules; never the one that happens to run the agent."""
    wanted = task.python or "python3"
    found = shutil.which(wanted, path=env.get("PATH", os.defpath))
    if found is None:
        raise UsageError(f"there is no {wanted} on this node's PATH; name the interpreter with --python")
    return found


def command(task: Task, env: Mapping[str, str]) -> List[str]:
    """The argv of one worker. Scripts and modules are unbuffered: what they print is in the log at once."""
    words = command_of(task).words
    if task.kind == SCRIPT:
        return [interpreter(task, env), "-u", *words]
    if task.kind == MODULE:
        return [interpreter(task, env), "-u", "-m", *words]
    if task.kind == SHELL:
        return ["/bin/sh", "-c", *words]
    return list(words)


def torchrun_command(task: Task, context: RoundContext, env: Mapping[str, str]) -> List[str]:
    """The argv of PyTorch's launcher for this node."""
    place, words = context.place, command_of(task).words
    argv = [
        interpreter(task, env),
        "-m",
        "torch.distributed.run",
        f"--nnodes={place.nodes}",
        f"--node-rank={place.rank}",
        f"--master-addr={place.master_addr}",
        f"--master-port={place.master_port}",
        f"--nproc-per-node={context.procs}",
        "--max-restarts=0",
    ]
    if task.kind == MODULE:
        argv.append("--module")
    elif task.kind == SHELL:
        return [*argv, "--no-python", "/bin/sh", "-c", *words]
    elif task.kind == PROGRAM:
        argv.append("--no-python")
    return [*argv, *words]


def launcher_argv(task: Task, context: RoundContext, env: Mapping[str, str]) -> List[str]:
    """The argv of what petctl starts for a worker, or for all of a node under torchrun."""
    return torchrun_command(task, context, env) if task.launcher == TORCHRUN else command(task, env)


def worker_launch(
    task: Task, context: RoundContext, inherited: Mapping[str, str], log_dir: str, local_rank: int
) -> Launch:
    """One worker, which petctl starts itself."""
    rank = context.place.first_rank + local_rank
    error = error_file(log_dir, context.round, rank)
    env = worker_environment(inherited, task, context, local_rank, error)
    env[VARIABLE] = log_file(log_dir, context.round, rank, "progress")
    own = command_of(task)
    argv, typed = (launcher_argv(one, context, env) for one in (task, dataclasses.replace(task, root="")))
    words = interpreter_words(argv)
    env = with_snapshot_paths(env, task, own.searches and task.launcher != TORCHRUN)
    return Launch(
        rank=rank,
        local_rank=local_rank,
        argv=argv,
        env=startup.with_stacks(env) if words and task.launcher != TORCHRUN else env,
        cwd=own.cwd or None,
        out=log_file(log_dir, context.round, rank, "out"),
        err=log_file(log_dir, context.round, rank, "err"),
        error_file=error,
        round=context.round,
        interpreter=words if task.can_be_warm else 0,
        source=task.code.source,
        stable=typed,
    )


class Launcher:
    """What the agent asks, whatever launcher the job has. This one: elastic and torchrun."""

    early = True  # are its workers known before the node has a place?

    def offer(self, task: Task, node: str, address: str, procs: int) -> str:
        """What the other nodes have to know of this one before a round."""
        return ""

    def plan(self, task: Task, context: RoundContext, inherited: Mapping[str, str], log_dir: str) -> List[Launch]:
        """Every process that this node starts for a round; PetctlError says why it cannot be, UsageError why never."""
        if task.launcher not in (ELASTIC, TORCHRUN):
            known = "use elastic or torchrun, or a newer agent"
            raise UsageError(f"this agent knows no launcher {task.launcher!r}; {known}")
        count = 1 if task.launcher == TORCHRUN else context.procs
        return [worker_launch(task, context, inherited, log_dir, local_rank) for local_rank in range(count)]

    def begun(self) -> None:
        """They are started."""

    def end(self) -> None:
        """The round is over, and none of them is left."""

    def launcher_ended(self, worker: Worker) -> None:
        """One that is no worker, but starts some (`Launch.launcher`), has ended."""

    def receive(self, letter: object) -> None:
        """Another node's agent has written."""

    def repeat(self) -> None:
        """There is a new connection: what was written may have been lost."""


def launcher_of(
    task: Task,
    directory: str,
    workers: Workers,
    send: Callable[[Mapping[str, Any]], None],
    fail: Callable[..., None],
    ended: Callable[[Optional[Failure]], None],
) -> Launcher:
    """That of a job. `directory`: the node's private one. `fail(sentence, lasting=)`: this node cannot do its part
    of the round, or of any. `ended`: what starts the workers has ended, with a failure or after all of them."""
    if task.launcher == MPI:
        from petctl.agent.launchers.mpi_node import MpiNode

        return MpiNode(directory, workers, send, fail, ended)
    if task.launcher == PLAIN:
        from petctl.agent.launchers.plain import PlainTasks

        return PlainTasks()
    return Launcher()


def prepared(task: Task, inherited: Mapping[str, str]) -> Task:
    """The task as it is to be run on a node that is ready for it: in the environment of its requirements."""
    if not task.requirements:
        return task
    python = interpreter(task, {**inherited, **task.env})
    directory = setup_step.directory_of(python, os.path.join(task.root or task.cwd, task.requirements), task.code.id)
    return setup_step.inside(task, directory, inherited)


def preparation(
    task: Task, ready: Task, node: str, node_key: str, inherited: Mapping[str, str], log_dir: str
) -> Launch:
    """The process that makes a node ready, once, before its first workers. `ready`: the task as it will be then."""
    env: Dict[str, str] = node_environment(inherited, ready, node, node_key)
    env[STEP] = PREPARE_STEP
    out = os.path.join(log_dir, f"prepare-{node}.out")
    own = []
    if task.requirements:
        python = interpreter(task, {**inherited, **task.env})
        own = [python, os.path.join(task.root or task.cwd, task.requirements), ready.env["VIRTUAL_ENV"]]
    argv = setup_step.argv(os.path.join(log_dir, ".prepare.lock"), task.prepare, task.copy, *own)
    return Launch(-1, -1, argv, env, task.root or task.cwd or None, out, out)  # what it builds belongs to the snapshot


def why_not_started(error: OSError, planned: Sequence[Launch]) -> str:
    """The sentence for workers that the system refused to start."""
    launch = next((launch for launch in planned if launch.argv[0] == error.filename), planned[0])
    if launch.cwd and not os.path.isdir(launch.cwd):
        return f"the working directory {launch.cwd} does not exist on this node"
    return f"cannot start {launch.argv[0]}: {error.strerror or error}"


def comes_again(error: OSError) -> bool:
    """Would the system refuse it the next time too? Memory, processes and disks may be free again by then."""
    return error.errno in _COMES_AGAIN


def look_for(program: str, cwd: str, env: Mapping[str, str]) -> None:
    """UsageError where a program that another one is to start is not on this node."""
    if not os.path.isdir(cwd):
        raise UsageError(f"the working directory {cwd} does not exist on this node")
    path = os.path.join(cwd, program) if os.path.dirname(program) else program
    if shutil.which(path, path=env.get("PATH", os.defpath)) is None:
        raise UsageError(f"cannot start {program}: there is no such program on this node")
