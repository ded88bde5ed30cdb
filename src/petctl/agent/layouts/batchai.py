"""A node as a Batch AI job expects it: mounts, directories and AZ_BATCHAI_* variables, from `Task.layout`.

    BASE/batchai/NODE/mounts/logs -> /shares/logs       $AZ_BATCHAI_JOB_MOUNT_ROOT: links, also to what a command mounts
    BASE/batchai/NODE/temp, NODE/work, shared           $AZ_BATCHAI_JOB_TEMP_DIR, _JOB_WORK_DIR, _SHARED_JOB_TEMP
    PREFIX/SEGMENT/outputs, PREFIX/SEGMENT/stdouterr    $AZ_BATCHAI_OUTPUT_<id>, _STDOUTERR_DIR

BASE is the job's directory on a machine that has it, else the node's own. `Layout.outputs` has id -> [PREFIX,
suffix], and `Layout.said`

    segment      of this submission: SUBSCRIPTION/GROUP/workspaces/W/experiments/E/jobs/J/UUID
    cluster      what the job shall take for its cluster's name
    stdouterr    a path; logs are in SEGMENT/stdouterr below it
    inputs       id -> path
    files        "merged": stdout.txt; "rank": stdout-3.txt; "role": stdout-wk-0.txt
    backend      of PyTorch

Paths may use variables, which only a node can fill in. Files of output are kept by `batchai_output.py`. Nothing here
knows Azure, accounts or clusters.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import secrets
import shlex
import subprocess
import tempfile
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from petctl.agent.layouts.batchai_output import StdOutErr
from petctl.agent.workers.spawn import Launch
from petctl.errors import PetctlError
from petctl.job.task import MPI, Layout, Task
from petctl.text import program_of

CLUSTER_MOUNTS = "PETCTL_CLUSTER_MOUNTS"  # where a cluster that has mounts of its own keeps them
HOST_FILE = "AZ_BATCHAI_MPI_HOST_FILE"  # the mpi launcher makes one itself
HOSTS = "PETCTL_HOSTS"
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))", re.ASCII)
_OWN = "AZ_BATCHAI_"
_SHORT = {"worker": "wk"}  # roles, in the names of files
_UNMOUNT_WITHIN = 30.0


class Directories(NamedTuple):
    """Where things are, on one node."""

    mounts: str
    temp: str
    job_temp: str
    work: str
    none: str  # stands for the mounts of a cluster that has none
    shared: str  # by all nodes of a machine


def directories(base: str, node: str) -> Directories:
    """The same for everybody who knows the job's or the node's directory."""
    root = os.path.join(base, "batchai")
    own = os.path.join(root, node)
    return Directories(
        mounts=os.path.join(own, "mounts"),
        temp=os.path.join(own, "temp"),
        job_temp=os.path.join(own, "temp", "job"),
        work=os.path.join(own, "work"),
        none=os.path.join(own, "none"),
        shared=os.path.join(root, "shared"),
    )


def expand(text: str, variables: Mapping[str, str]) -> str:
    """A path of the job file with its variables filled in; PetctlError names one that there is not."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(2)
        if name not in variables:
            raise PetctlError(f"{text}: there is no variable {name} on this node")
        return variables[name]

    return _VARIABLE.sub(value, text)


def variables(layout: Layout, places: Directories, env: Mapping[str, str]) -> Dict[str, str]:
    """What every process of the job gets, whatever the round; `env`: what it has beside these. Touches nothing."""
    said = layout.said
    found = {
        "AZ_BATCHAI_MOUNT_ROOT": env.get(CLUSTER_MOUNTS) or places.none,
        "AZ_BATCHAI_JOB_MOUNT_ROOT": places.mounts,
        "AZ_BATCHAI_JOB_TEMP": places.job_temp,
        "AZ_BATCHAI_JOB_TEMP_DIR": places.temp,
        "AZ_BATCHAI_SHARED_JOB_TEMP": places.shared,
        "AZ_BATCHAI_JOB_WORK_DIR": places.work,
        "AZ_BATCHAI_CLUSTER_NAME": str(said["cluster"]),
    }
    known = {**env, **found}
    found["AZ_BATCHAI_STDOUTERR_DIR"] = _path(expand(said["stdouterr"], known), said["segment"], "stdouterr")
    for name, text in said["inputs"].items():
        found[f"AZ_BATCHAI_INPUT_{name}"] = expand(text, {**known, **found})
    for name, (prefix, suffix) in layout.outputs.items():
        found[f"AZ_BATCHAI_OUTPUT_{name}"] = _path(expand(prefix, known), said["segment"], "outputs", suffix)
    return found


def _path(*parts: str) -> str:
    return os.path.normpath(os.path.join(*(part for part in parts if part)))


def _later(env: Mapping[str, str], found: Mapping[str, str]) -> Dict[str, str]:
    """The job's own variables that name directories of Batch AI."""

    def value(match: re.Match[str]) -> str:
        return found.get(match.group(1) or match.group(2), match.group(0))

    return {name: _VARIABLE.sub(value, text) for name, text in env.items() if _OWN in text}


def round_variables(task: Task, rank: int, env: Mapping[str, str]) -> Dict[str, str]:
    """What a worker of a round gets beside that; `env`: what it has already."""
    found = dict.fromkeys(("AZ_BATCHAI_JOB_MASTER_NODE_IP", "MASTER_IP"), env["MASTER_ADDR"])
    if task.launcher != MPI:  # which numbers its ranks itself
        found["AZ_BATCHAI_TASK_INDEX"] = str(rank)
    if task.layout.said["backend"]:
        found["AZ_BATCHAI_PYTORCH_BACKEND"] = task.layout.said["backend"]
        found["AZ_BATCHAI_PYTORCH_INIT_METHOD"] = f"tcp://{env['RDZV_ENDPOINT']}"
    return found


def command_environment(task: Task, base: str, node: str) -> Tuple[Dict[str, str], str]:
    """What a command gets that is run beside a node's workers, and where it runs; empty: where they do."""
    places = directories(base, node)
    return variables(task.layout, places, task.env), places.work if task.layout.work else ""


class Site:
    """One node's part of a Batch AI job, made before its first workers. `problem`: why it cannot have any."""

    def __init__(
        self,
        task: Task,
        node: str,
        log_dir: str,
        folders: Mapping[str, str],
        gpus: int,
        inherited: Mapping[str, str],
        tell: Callable[[str], None],
    ) -> None:
        """`folders`: where mapped folders will be, by their paths. `tell`: says something, from any thread."""
        self._layout, self._node, self._log_dir, self._tell = task.layout, node, log_dir, tell
        self._places, self._folders = directories(os.path.dirname(log_dir), node), folders
        self._commands: List[Tuple[str, str, str]] = []  # path, command, mount point
        self.problem = ""
        self.task = task
        self._logs: Optional[StdOutErr] = None
        try:
            self._arrange(task, gpus, inherited)
        except PetctlError as error:
            self.problem = str(error)
        except OSError as error:
            self.problem = f"cannot make {error.filename2 or error.filename}: {error.strerror}"

    def _arrange(self, task: Task, gpus: int, inherited: Mapping[str, str]) -> None:
        for directory in self._places:
            os.makedirs(directory, exist_ok=True)
        self._mount()
        found = variables(self._layout, self._places, {**inherited, **task.env})
        found["AZ_BATCHAI_NUM_GPUS"] = found["AZ_BATCHAI_NUM_GPUS_PER_NODE"] = str(gpus)
        logs = found["AZ_BATCHAI_STDOUTERR_DIR"]
        made = [logs, *(found[f"AZ_BATCHAI_OUTPUT_{name}"] for name in self._layout.outputs)]
        prepare = task.prepare
        if self._commands or self._folders:  # what lies on such a mount can be made only when that is there
            prepare = "\n".join([*_mount_lines(self._commands), f"mkdir -p {_words(made)}", task.prepare])
        else:
            for directory in made:
                os.makedirs(directory, exist_ok=True)
            if task.prepare:
                self._show_preparation(logs)
        self._link_outputs(task.output_dir, found)
        ledger = os.path.join(os.path.dirname(self._places.work), "stdouterr.json")
        self._logs = StdOutErr(self._log_dir, logs, ledger, self._tell)
        env = {**task.env, **_later(task.env, found), **found}
        cwd = self._places.work if self._layout.work else task.cwd
        self.task = dataclasses.replace(task, env=env, prepare=prepare, cwd=cwd)

    def _mount(self) -> None:
        for mount in self._layout.mounts:
            target = mount.directory
            if mount.location:
                target = self._folders[mount.folder]
            elif mount.command:
                target = self._mount_point(len(self._commands))
                self._commands.append((mount.path, mount.command, target))
            elif not os.path.isdir(target):
                raise PetctlError(f"{mount.said} is {target}, which does not exist on this node")
            _link(target, os.path.join(self._places.mounts, mount.path))

    def _mount_point(self, number: int) -> str:
        """Outside the job's directory: whoever removes that must never reach into what is mounted."""
        top = os.path.join(tempfile.gettempdir(), f"petctl-mounts-{os.getuid()}")
        point = os.path.join(top, self.task.job, self._node, str(number))
        with contextlib.suppress(FileExistsError):
            os.mkdir(top, 0o700)
        if os.path.islink(top) or os.stat(top).st_uid != os.getuid():
            raise PetctlError(
                f"{top} belongs to another user, so this job cannot put its mounts there; have it removed"
            )
        os.makedirs(point, exist_ok=True)
        return point

    def _show_preparation(self, directory: str) -> None:
        """What the preparation prints goes straight to where a Batch AI user looks for it."""
        log = os.path.join(self._log_dir, f"prepare-{self._node}.out")
        if not os.path.lexists(log):
            os.symlink(os.path.join(directory, f"stdout-job_prep-{self._node}.txt"), log)

    def _link_outputs(self, outputs: str, found: Mapping[str, str]) -> None:
        """`petctl outputs` finds them where those of any job are."""
        for name in self._layout.outputs if outputs else ():
            _link(os.path.realpath(found[f"AZ_BATCHAI_OUTPUT_{name}"]), os.path.join(outputs, name))

    def starting(self, number: int, first: int, end: int, planned: Sequence[Launch]) -> None:
        """Workers of a round are about to be started: what is known only now, and whose output is ours."""
        try:
            self._begin(number, first, end, planned)
        except OSError as error:  # a full disk; the workers may find a way
            self._tell(f"cannot write {error.filename}: {error.strerror}")

    def _begin(self, number: int, first: int, end: int, planned: Sequence[Launch]) -> None:
        for launch in planned:
            launch.env["AZ_BATCHAI_JOB_WORK_DIR"] = launch.cwd or ""
            if HOSTS in launch.env and HOST_FILE not in launch.env:
                launch.env[HOST_FILE] = self._host_file(launch.env[HOSTS].split(","))
        if self._logs is not None:
            launched = {launch.rank: launch.env for launch in planned}
            files = self._layout.said["files"]
            self._logs.own(number, {rank: _file(files, rank, launched.get(rank, {})) for rank in range(first, end)})

    def _host_file(self, hosts: Sequence[str]) -> str:
        path = os.path.join(self._places.job_temp, "hosts")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{host} slots=1 max-slots=1\n" for host in hosts)
        return path

    def finish(self) -> None:
        """The workers have ended: all that they wrote is brought to its place, and what was mounted is unmounted."""
        if self._logs is not None:
            self._logs.finish()
        self._unmount()

    def give_up(self) -> None:
        """Nobody waits any more."""
        if self._logs is not None:
            self._logs.give_up()
        self._unmount()

    def _unmount(self) -> None:
        while self._commands:
            _unmount(self._commands.pop()[2])


def _file(files: str, rank: int, env: Mapping[str, str]) -> str:
    """What stands between "stdout" and ".txt" for a rank."""
    if files == "role":
        role = env.get("ROLE_NAME", "worker")
        return f"-{_SHORT.get(role, role)}-{env.get('ROLE_RANK', rank)}"
    return f"-{rank}" if files == "rank" else ""


def _link(target: str, link: str) -> None:
    """A link that leads there, whatever was there before; two nodes may do it at once."""
    os.makedirs(os.path.dirname(link), exist_ok=True)
    if os.path.islink(link) and os.readlink(link) == target:
        return
    if os.path.isdir(link) and not os.path.islink(link):
        os.rmdir(link)  # made for it, and empty
    new = f"{link}.{secrets.token_hex(8)}"
    os.symlink(target, new)
    os.replace(new, link)


def _words(texts: Sequence[str]) -> str:
    return " ".join(map(shlex.quote, texts))


def _mount_lines(commands: Sequence[Tuple[str, str, str]]) -> List[str]:
    """Shell lines that mount what is not mounted yet, and say which one could not be."""
    lines = []
    for path, command, point in commands:
        told = shlex.quote(f"petctl: cannot mount {path}: {program_of(command)} ended with code")
        lines.append(
            f"mountpoint -q {shlex.quote(point)} || {{ {command} {shlex.quote(point)}; }} || "
            f'{{ code=$?; echo {told} "$code" >&2; exit "$code"; }}'
        )
    return lines


def _unmount(point: str) -> None:
    """Also where somebody still has a file open there. What is not mounted is refused by umount itself."""
    for words in (["umount", point], ["umount", "-l", point]):
        try:
            if subprocess.run(words, capture_output=True, timeout=_UNMOUNT_WITHIN, check=False).returncode == 0:
                break
        except (OSError, subprocess.TimeoutExpired):
            pass
    for directory in (point, os.path.dirname(point), os.path.dirname(os.path.dirname(point))):
        try:
            os.rmdir(directory)  # only what is empty: never what is still mounted
        except OSError:
            return
