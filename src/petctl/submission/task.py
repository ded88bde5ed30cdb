"""What an agent and a coordinator must know of a job, made from its description. The same for every cluster kind.

It must not start anything, nor know where the job will run beyond the paths that it is given.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Mapping, Optional

from petctl.errors import UsageError
from petctl.job.spec import Job
from petctl.job.spec.retries import retried_causes, retried_codes
from petctl.job.task import CHECKPOINTS, MODULE, MPI, PLAIN, SCRIPT, Layout, Task, Timing
from petctl.job.task import Role as AgentRole
from petctl.rendezvous.core.config import Config


def task_of(job: Job, job_id: str, cwd: str, python: str, directory: Optional[Path] = None) -> Task:
    """One node's share of a job, without the values of its secrets: those are added on the way to the agents."""
    layout = layout_of(job, job_id)
    return Task(
        job=job_id,
        kind=job.command.kind,
        words=list(job.command.words),
        procs=str(job.procs),
        launcher=job.launcher,
        processes=job.processes,
        mpi_options=list(job.mpi_options),
        roles=[AgentRole(role.name, role.count, list(role.words), role.kind, role.serves) for role in job.roles],
        layout=layout,
        python=python,
        warm=job.warm,
        preload=list(job.preload),
        cwd="" if layout.work else cwd,  # then each node makes one
        env=dict(job.env),
        prepare=job.prepare,
        requirements=job.requirements,
        grace=job.grace,
        restarts=job.restarts,
        min_nodes=job.nodes.min,
        max_nodes=job.nodes.max,
        log_dir=str(directory / "logs") if directory else "",
        log_cap=job.log_cap,
        output_dir=str(directory / "outputs") if directory else "",
        outputs=list(job.outputs),
        checkpoint_dir=(job.env.get(CHECKPOINTS) or str(directory / "checkpoints")) if directory else "",
        timing=Timing(silence=job.rendezvous.silence, fence_after=job.rendezvous.fence_after),
    )


def layout_of(job: Job, job_id: str) -> Layout:
    """What its nodes have beside the usual: what the first of its options says that says anything of it."""
    layouts = (options.node_layout(job, job_id) for options in job.options.values())
    return next(filter(None, layouts), Layout())


def config_of(job: Job) -> Config:
    """The bounds of a job's rounds."""
    return Config(
        min_nodes=job.nodes.min,
        max_nodes=job.nodes.max,
        wanted=job.nodes.initial,
        restarts=job.restarts,
        retry_on=retried_codes(job.retry_on),
        retry_causes=retried_causes(job.retry_on),
        silence=job.rendezvous.silence,
        join_timeout=job.rendezvous.join_timeout,
        last_call=job.rendezvous.last_call,
        resize_interval=job.rendezvous.resize_interval,
        stall_after=job.stall_after,
        offers=job.launcher in (MPI, PLAIN),
        tasks=(job.processes,) if job.processes else tuple(role.count for role in job.roles),
    )


def working_directory(job: Job) -> str:
    """Where the workers run: the job's own directory, else the submitter's; it must exist, here or in the image."""
    cwd = Path(job.cwd or ".").expanduser().absolute()
    if not cwd.is_dir() and not (job.image and Path(job.cwd).is_absolute()):  # an image may have it
        raise UsageError(f"the job's directory {cwd} does not exist; choose another with --cwd")
    return str(cwd)


def interpreter(job: Job, cwd: str, environment: Mapping[str, str]) -> str:
    """The Python for scripts and modules: --python, else the submitter's active environment, else python3 on the PATH.

    petctl's own environment is used only if it is the active one: what is installed beside petctl is not the user's
    choice.
    """
    if job.python:
        return str(Path(cwd, Path(job.python).expanduser())) if os.sep in job.python else job.python
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        active = environment.get(variable)
        if active:
            python = Path(active, "bin", "python")
            if os.access(python, os.X_OK):
                return str(python)
    places = environment.get("PATH", os.defpath).split(os.pathsep)
    own = Path(sys.prefix, "bin") if sys.prefix != sys.base_prefix else None
    theirs = [place for place in places if place and (own is None or Path(place).absolute() != own)]
    found = shutil.which("python3", path=os.pathsep.join(theirs))
    if found:
        return str(Path(found).absolute())
    base = Path(sys.base_prefix, "bin", "python3")
    return str(base) if base.exists() else ""


def check_interpreter(job: Job, python: str) -> None:
    """Finds a missing --python before anything is started. A relative one may be in the code."""
    named = Path(job.python).expanduser().is_absolute()
    if named and job.command.kind in (SCRIPT, MODULE) and not os.access(python, os.X_OK):
        raise UsageError(f"the interpreter {python} was not found on this machine; choose another with --python")


def check_command(job: Job, cwd: str) -> None:
    """Finds a missing script before anything is started; what an image has is found in its containers only."""
    if job.launcher == "torchrun" and job.command.kind not in (SCRIPT, MODULE):
        raise UsageError(
            "the torchrun launcher runs Python scripts and modules only; use the elastic launcher for programs"
        )
    inside = bool(job.image) and not Path(cwd).is_dir()
    script = Path(job.command.words[0]) if job.command.kind == SCRIPT else Path()
    if inside or (job.image and script.is_absolute() and not script.exists()):
        return
    if job.command.kind == SCRIPT and not Path(cwd, Path(job.command.words[0]).expanduser()).is_file():
        raise UsageError(
            f"there is no script {job.command.words[0]} in {cwd}; give its path relative to that directory, "
            f"or set --cwd"
        )
    for role in job.roles:
        if role.kind == SCRIPT and not Path(cwd, Path(role.words[0]).expanduser()).is_file():
            raise UsageError(f"there is no script {role.words[0]} of role {role.name} in {cwd}")
    if job.requirements and not Path(cwd, job.requirements).is_file():
        raise UsageError(f"there is no requirements file {job.requirements} in {cwd}")


def command_line(job: Job) -> str:
    """The command as the user might have typed it, on one line."""
    words = list(job.command.words)
    return (
        words[0] if job.command.kind == "shell" else ("-m " if job.command.kind == "module" else "") + shlex.join(words)
    )
