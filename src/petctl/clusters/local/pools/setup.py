"""Prepares one node of a named local cluster: its mounts, then its setup task. A process of its own, which outlives
the command that made the cluster: `python -m petctl.clusters.local.pools.setup HOME NAME NODE LOCK`.

The node's lock is taken by whoever starts the process and handed down to it, so a node is prepared by one process at
a time and a dead one is known by its free lock. Killed, it is started again by the next look at the cluster, at most
ATTEMPTS times: setup tasks can be run again, by contract. What a killed one left running is ended first.

It must not decide which nodes there are: that is `model.py`.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List

from petctl.agent.node.native import die_with_parent
from petctl.clusters.local.commands import start_apart, supervisor_environment
from petctl.clusters.local.job_directory import write_text
from petctl.clusters.local.pools import mounts
from petctl.clusters.local.pools.model import PREPARING
from petctl.clusters.local.pools.nodes import looked, prepared, read_nodes
from petctl.clusters.local.pools.spec import FleetDirectory, FleetSpec, Setup, find_spec
from petctl.clusters.local.processes import sweep
from petctl.errors import NotFound, PetctlError
from petctl.files import is_locked, take_lock
from petctl.log_setup import log_to_stderr
from petctl.secret_file import secret_values

ATTEMPTS = 3
SHOWN_LINES = 3  # of what a setup task wrote last
SHOWN_BYTES = 2000

log = logging.getLogger("petctl.clusters.local.pools.setup")  # also where it is run with -m


def start(directory: FleetDirectory, spec: FleetSpec, number: int) -> None:
    """Sees to it that somebody prepares the node; nobody is started beside one who does."""
    directory.node(number).mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = None if is_locked(directory.node_lock(number)) else take_lock(directory.node_lock(number))
    if lock is None:
        return
    try:
        write_text(directory.attempts(number), f"{_attempts(directory, number) + 1}\n")
        _start_detached(directory, spec, number, lock)
    finally:
        os.close(lock)  # the process that was started holds it too


def again(directory: FleetDirectory, number: int) -> None:
    """Forgets how often the node was tried."""
    directory.attempts(number).unlink(missing_ok=True)


def clear(directory: FleetDirectory, spec: FleetSpec, number: int) -> None:
    """Ends whatever prepares a node that is not wanted any more, and forgets what it left."""
    if not directory.node(number).exists():
        return
    sweep(_owner(spec), directory.nodes, str(number))
    shutil.rmtree(directory.node(number), ignore_errors=True)


def clear_all(directory: FleetDirectory, spec: FleetSpec) -> None:
    """The same for the whole cluster."""
    sweep(_owner(spec), directory.nodes)
    shutil.rmtree(directory.nodes, ignore_errors=True)


def _attempts(directory: FleetDirectory, number: int) -> int:
    try:
        return int(directory.attempts(number).read_text())
    except (FileNotFoundError, ValueError):
        return 0


def _start_detached(directory: FleetDirectory, spec: FleetSpec, number: int, lock: int) -> None:
    argv = [sys.executable, "-m", __name__, str(directory.home), directory.name, str(number), str(lock)]
    environment = {**supervisor_environment(os.environ), "PETCTL_NODE_KEY": f"{_owner(spec)}/{number}/setup"}
    start_apart(argv, directory.node(number) / "setup.log", environment, lock)


def prepare(directory: FleetDirectory, spec: FleetSpec, number: int) -> str:
    """Makes the node ready for jobs; the reason why it cannot be used, or nothing."""
    sweep(_owner(spec), directory.nodes, str(number))  # what a killed predecessor of this process has left
    if _attempts(directory, number) > ATTEMPTS:
        problem = f"its setup was killed {ATTEMPTS} times"
    else:
        problem = mounts.mount(directory, spec)
    if not problem and spec.setup is not None:
        problem = _run(directory, spec, spec.setup, number)
    return f"{problem}; {_advice(directory, number)}" if problem else ""


def _run(directory: FleetDirectory, spec: FleetSpec, setup: Setup, number: int) -> str:
    try:
        environment = _environment(directory, spec, setup, number)
        output = directory.output(spec, number)
        output.mkdir(parents=True, exist_ok=True)
        with open(output / "stdout.txt", "wb") as out, open(output / "stderr.txt", "wb") as err:
            process = subprocess.Popen(
                [shutil.which("bash") or "/bin/sh", "-c", setup.command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=directory.node(number),
                env=environment,
                preexec_fn=die_with_parent(),
            )
        code = process.wait()
    except NotFound as error:
        return str(error)
    except OSError as error:
        return f"cannot run setup: {error}"
    if code == 0:
        return ""
    said = last_lines(output / "stderr.txt") or last_lines(output / "stdout.txt")
    ended = f"ended with code {code}" if code > 0 else f"was ended by signal {-code}"
    return f"setup {ended}" + (f": {said}" if said else "") + f" (full output: {output})"


def _environment(directory: FleetDirectory, spec: FleetSpec, setup: Setup, number: int) -> Dict[str, str]:
    return {
        **os.environ,
        **setup.env,
        **secret_values(directory.home, setup.secrets),
        "PETCTL_CLUSTER": spec.name,
        "PETCTL_CLUSTER_MOUNTS": str(directory.mounts),
        "PETCTL_NODE": str(number),
    }


def last_lines(path: Path) -> str:
    """The end of what was written, in one line."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - SHOWN_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-SHOWN_LINES:])


def _advice(directory: FleetDirectory, number: int) -> str:
    return f"after repairing it: petctl cluster nodes {directory.name} --reset {number}"


def _owner(spec: FleetSpec) -> str:
    """What marks the processes of this very cluster: another one, later or elsewhere, may have its name."""
    return f"cluster-{spec.id}"


def main(words: List[str]) -> int:
    """Entry of the detached process."""
    home, name, number = Path(words[0]), words[1], int(words[2])
    os.set_inheritable(int(words[3]), False)  # what the setup task starts must not hold the node's lock
    for ignored in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):  # by the shell that has detached us
        signal.signal(ignored, signal.SIG_DFL)
    log_to_stderr(logging.INFO)
    directory, spec = FleetDirectory(home, name), find_spec(home, name)
    if spec is None:
        return 0
    try:
        if not _awaited(home, name, number, _attempts(directory, number)):
            return 0
        try:
            reason = prepare(directory, spec, number)
        except Exception as error:  # whatever it is, the node must not be waited for
            log.exception("petctl's own fault")
            reason = f"internal error during setup: {error!r}; {_advice(directory, number)}"
        with looked(home, name) as database:
            prepared(database, number, reason, time.time())
        again(directory, number)
        from petctl.clusters.local.queue.queue import look

        look(home, name)
    except PetctlError as error:
        log.error("%s", error)
        return error.code
    return 0


def _awaited(home: Path, name: str, number: int, attempt: int) -> bool:
    """Whether the node still is to be prepared: whoever started this process may have been late."""
    with looked(home, name) as database:
        node = next((node for node in read_nodes(database) if node.number == number), None)
        if node is None or node.state != PREPARING:
            return False
        attempts = min(attempt, ATTEMPTS)
        database.execute("UPDATE nodes SET attempts = ? WHERE number = ?", (attempts, number))
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
