"""The exact words and environment that start the processes of a job on this machine; `render` prints the same words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from petctl.clusters.local.job_directory import JobDirectory


def supervisor_argv(directory: JobDirectory) -> List[str]:
    """The words that start the job's supervisor, the first time and every time."""
    return [sys.executable, "-m", "petctl.clusters.local.controller.supervisor", str(directory.path)]


def node_argv(
    directory: JobDirectory, name: str, options: Sequence[str], container: Mapping[str, Any], number: int = 1
) -> List[str]:
    """The exact words that start a node; `render` prints the same. `number`: which of its containers, if in one."""
    own = ["--file", str(directory.join), "--node", name, "--state-dir", str(directory.node(name))]
    words = ["join", *own, *options]
    if not container:
        return [sys.executable, "-m", "petctl.agent", *words]
    from petctl.clusters.local.containers.node_containers import container_argv  # few jobs have any

    return container_argv(container, directory, name, number, words)


def supervisor_environment(environment: Mapping[str, str]) -> Dict[str, str]:
    """The submitter's environment, for supervisor, agents and workers alike."""
    # A job submitted from inside another job's worker must not be taken for a part of that one.
    own = {name: value for name, value in environment.items() if name not in ("PETCTL_NODE_KEY", "PETCTL_WORKER_KEY")}
    if own.get("PYTHONPATH"):  # the supervisor has another working directory
        own["PYTHONPATH"] = os.pathsep.join(str(Path(part).absolute()) for part in own["PYTHONPATH"].split(os.pathsep))
    return own


def start_apart(argv: Sequence[str], log: Path, environment: Mapping[str, str], lock: int, umask: int = -1) -> None:
    """Starts a process that holds `lock`, through a shell that ends at once: so it is never a zombie of ours."""
    with open(log, "ab", buffering=0) as output:
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=environment,
            umask=umask,
            start_new_session=True,
            pass_fds=(lock,),
            check=True,
        )
