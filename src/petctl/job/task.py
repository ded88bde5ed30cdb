"""What a node's workers are: the part of a job that an agent needs, as it travels in the coordinator's welcome."""

from __future__ import annotations

import dataclasses
import os
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping

from petctl.errors import ProtocolError
from petctl.job.fields import decode

SCRIPT = "script"  # words: path of a Python file, then its arguments
MODULE = "module"  # words: name of a Python module, then its arguments
PROGRAM = "program"  # words: argv
SHELL = "shell"  # words: one line for /bin/sh -c
COMMAND_KINDS = (SCRIPT, MODULE, PROGRAM, SHELL)

ELASTIC = "elastic"
TORCHRUN = "torchrun"
MPI = "mpi"
PLAIN = "plain"

CHECKPOINTS = "PETCTL_CHECKPOINT_DIR"  # users may name another place: to go on from what an earlier job has saved

_PYTHON = re.compile(r"python(\d(\.\d+)?)?\Z")


@dataclass(frozen=True)
class Timing:
    """Seconds; every node of a job uses the coordinator's."""

    silence: float = 5.0  # a node not heard of for so long is lost
    fence_after: float = 60.0  # a node without a coordinator for so long stops its workers


@dataclass(frozen=True)
class Code:
    """The snapshot that a job runs from."""

    id: str = ""  # empty: none; the workers run in `cwd` as it is
    archive: str = ""  # its file on the cluster's machine; other machines have to fetch it
    grant: str = ""  # what the coordinator signs for, where the job's store has it too
    directory: str = ""  # where that machine unpacks it, once for all its nodes
    inside: str = ""  # the working directory, from the snapshot's root
    source: str = ""  # where it was taken from: the same for every snapshot of one project
    files: int = 0  # how many entries the snapshot has, and how many bytes; 0: not known
    bytes: int = 0
    links: Dict[str, str] = field(default_factory=dict)  # what it leaves out and that machine has: path -> where
    own: str = ""  # the user's directory that it is a snapshot of; empty: it came from elsewhere


@dataclass(frozen=True)
class Folder:
    """A folder that is not code: it lies elsewhere, and the job sees it at its place in the code."""

    path: str  # in the job's copy of the code
    location: str  # as people write it
    mode: str = "ro"  # or rw, sync
    grant: str = ""  # what the coordinator signs for; empty: `directory` is linked
    directory: str = ""
    endpoint: str = ""  # of the store


@dataclass(frozen=True)
class Mount:
    """A place that a node has below its mounts: a directory, a location in a store, or what a command mounts."""

    path: str  # below the mounts
    directory: str = ""  # a link leads there
    here: bool = False  # it is a directory of the submitter's machine; else one that every node has
    location: str = ""  # in an object store: brought to the node as a mapped folder is
    command: str = ""  # gets the place as its last word, as a part of the preparation
    said: str = ""  # as people know it

    @property
    def folder(self) -> str:
        """The path of the mapped folder that brings it."""
        return f".mounts/{self.path}"


@dataclass(frozen=True)
class Layout:
    """What a node has beside the usual, for scripts that were written for another system."""

    kind: str = ""  # which module of agent/layouts/ makes it; empty: none is wanted
    mounts: List[Mount] = field(default_factory=list)
    work: str = ""  # the workers' own directory, below the job's or the node's, with NODE for its name; empty: as usual
    outputs: Dict[str, List[str]] = field(default_factory=dict)  # id -> what that module makes its directory from
    places: List[str] = field(default_factory=list)  # further directories of the submitter's machine that workers use
    said: Dict[str, Any] = field(default_factory=dict)  # what only that module understands


@dataclass(frozen=True)
class Role:
    """Tasks of one kind in a job whose tasks differ."""

    name: str  # "ps", "worker", ...
    count: int = 0  # 0: one on each node
    words: List[str] = field(default_factory=list)  # behind the job's own, or the whole command where `kind` says so
    kind: str = ""  # of a command of its own; empty: the job's
    serves: bool = False  # it does not end by itself: it is stopped when all others have ended well


@dataclass(frozen=True)
class Task:
    """One node's share of a job."""

    job: str
    kind: str
    words: List[str]
    procs: str = "1"  # a number, "cpu", "gpu" or "auto"
    launcher: str = "elastic"  # or one of the others above
    processes: int = 0  # under mpi: over all nodes; 0: `procs` on each
    mpi_options: List[str] = field(default_factory=list)  # more words for mpirun
    roles: List[Role] = field(default_factory=list)  # under plain: tasks that do different things; see roles.py
    layout: Layout = field(default_factory=Layout)
    python: str = ""  # interpreter for scripts and modules; empty: the node's python3
    cwd: str = ""  # empty: the agent's own, or with code the snapshot; else a directory of the cluster's machine
    code: Code = field(default_factory=Code)
    root: str = ""  # where the snapshot's working directory is on this node, once it is unpacked
    env: Dict[str, str] = field(default_factory=dict)
    secrets: Dict[str, str] = field(default_factory=dict, repr=False)  # environment name -> value
    prepare: str = ""  # shell line, once per node before its first workers
    requirements: str = ""  # a file below the working directory: what Python packages the workers need
    grace: float = 30.0
    restarts: int = 3
    min_nodes: int = 1
    max_nodes: int = 1
    role: str = "default"
    log_dir: str = ""  # empty: logs/ in the agent's state directory
    log_cap: int = 1 << 30  # bytes on disk per stream of a worker
    output_dir: str = ""  # a directory of the cluster's machine; others have their own
    outputs: List[str] = field(default_factory=list)  # ids: a directory below it each
    results: Dict[str, str] = field(default_factory=dict)  # output id -> the grant it goes to; "": the rest, and logs
    checkpoint_dir: str = ""
    warm: bool = True  # fork Python workers from a process that has made their imports
    preload: List[str] = field(default_factory=list)  # modules to import there, beside those that are known
    folders: List[Folder] = field(default_factory=list)
    folder_cache: str = ""  # where the cluster's machine keeps copies of them
    folder_limit: int = 50 << 30  # bytes that all copies there may have
    timing: Timing = field(default_factory=Timing)

    @property
    def needs_preparation(self) -> bool:
        """Is there anything to do on a node before its first workers?"""
        return bool(self.prepare or self.requirements)

    @property
    def can_be_warm(self) -> bool:
        """Are its workers Python processes, which can be forked from one that has made their imports?"""
        return self.warm and self.launcher == ELASTIC and self.kind != SHELL and self.is_python

    @property
    def is_python(self) -> bool:
        """Is the command a Python's, unless it is a line for a shell?"""
        return self.kind != PROGRAM or _PYTHON.match(os.path.basename(self.words[0])) is not None

    @property
    def copy(self) -> str:
        """Where the snapshot is on this node; empty: there is none."""
        inside = self.code.inside
        return self.root[: -len(inside) - 1] if inside and self.root else self.root


def encode_task(task: Task) -> Dict[str, Any]:
    """A task as plain JSON types."""
    return dataclasses.asdict(task)


def decode_task(data: object) -> Task:
    """A task from the coordinator's welcome, or ProtocolError; unknown fields of newer versions are ignored."""
    if not isinstance(data, Mapping):
        raise ProtocolError("the coordinator's welcome has no task")
    names = {f.name for f in dataclasses.fields(Task)}
    try:
        values = {str(k): v for k, v in data.items() if k in names}
        values["timing"] = Timing(**values.get("timing", {}))
        values["code"] = Code(**values.get("code", {}))
        values["folders"] = [Folder(**folder) for folder in values.get("folders", ())]
        values["roles"] = [Role(**role) for role in values.get("roles", ())]
        values["layout"] = decode(Layout, values.get("layout", {}))
        task = Task(**values)
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"the coordinator's task is invalid: {error}") from None
    if task.kind not in COMMAND_KINDS or not task.words or not all(isinstance(w, str) for w in task.words):
        raise ProtocolError("the coordinator's task has no command")
    for name in (task.job, *task.outputs, *task.layout.outputs):
        if not is_file_name(name):
            raise ProtocolError(f"the coordinator's task has the name {str(name)[:80]!r}, which cannot be a directory")
    return task


def is_file_name(name: object) -> bool:
    """Is it one component of a path, which leads to no other place?"""
    return isinstance(name, str) and name not in ("", ".", "..") and "/" not in name and "\0" not in name
