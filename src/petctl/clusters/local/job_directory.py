"""The job directory: its names, and the few ways in which its files may be read and written.

Every process that touches a local job (the user's commands, the supervisor, agents that revive it) meets the others
only here, so this file holds the rules that keep them apart: files are replaced whole, locks are flocks that die with
their holder, the outcome is written once, and a full disk keeps nobody from writing how it ended (`disk_reserve.py`).
Standard library only: the supervisor's start-up is part of every job's first line.

It must not know what a job is or decide anything about it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Dict, List

from petctl.clusters.local.controller.disk_reserve import fill_spare, set_aside, spare_of, write_over
from petctl.errors import InternalError, NoRoom, is_no_room, no_room_for
from petctl.files import create, give_name, is_locked, remove_drafts, replace, sync_directory


class _Part:
    """The path of one file of a job; made when it is first asked for, since a list looks at few files of many jobs."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __set_name__(self, owner: type, attribute: str) -> None:
        self._attribute = attribute

    def __get__(self, directory: JobDirectory, owner: type) -> Path:
        path: Path = directory.__dict__.setdefault(self._attribute, directory.path / self._name)
        return path


class JobDirectory:
    """The paths of one local job."""

    job = _Part("job.json")
    code = _Part("code.tar.gz")  # the snapshot that it runs from
    unpacked = _Part("code")
    agent = _Part("petctl-agent.pyz")  # what its containers run
    token = _Part("token")
    join = _Part("join.json")
    certificate = _Part("cert.pem")
    key = _Part("key.pem")
    start = _Part(
        "start.json"
    )  # 0600: the environment to start its supervisor in, without secrets, until it has a node
    epoch = _Part("epoch")
    supervisor_lock = _Part("supervisor.lock")
    revive_lock = _Part("revive.lock")
    coordinator = _Part("coordinator.json")
    status = _Part("status.json")
    events = _Part("events.jsonl")
    outcome = _Part("outcome.json")
    wanted = _Part("wanted")  # the size the user asked for last
    cancel = _Part("cancel.json")  # the user's wish to end it; survives a supervisor that is killed right then
    nodes = _Part("nodes")
    logs = _Part("logs")
    outputs = _Part("outputs")
    checkpoints = _Part("checkpoints")
    resumed = _Part("resumed")  # ids of later jobs that go on from its checkpoints, one per line
    supervisor_log = _Part("supervisor.log")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name

    @property
    def _reserves(self) -> Dict[Path, int]:
        """What must be written also on a full disk, and the room that is set aside for it."""
        return {
            self.outcome: 64 << 10,
            self.status: 256 << 10,  # the last one
            self.epoch: 4 << 10,
            self.coordinator: 4 << 10,
            self.cancel: 4 << 10,
        }

    @property
    def home(self) -> Path:
        return self.path.parent.parent

    def reserve(self) -> None:
        """Sets room aside, so that the job can end and say how also when there is none."""
        for path, size in self._reserves.items():
            set_aside(path, size)

    def give_back(self) -> None:
        """Frees what was set aside, and what a process that was killed in the middle of a write has left: the job has
        said its last word."""
        for path in self._reserves:
            spare_of(path).unlink(missing_ok=True)
        remove_drafts(self.path)

    def node(self, name: str) -> Path:
        return self.nodes / name

    def node_names(self) -> List[str]:
        """Every node that this machine ever started for the job, in order."""
        try:
            return sorted((path.name for path in self.nodes.iterdir()), key=lambda name: (len(name), name))
        except FileNotFoundError:
            return []

    def node_alive(self, name: str) -> bool:
        return is_locked(self.node(name) / "lock")

    def guardian(self, name: str) -> int:
        """The process id of a node's guardian, 0 when it has not been written yet."""
        try:
            return int((self.node(name) / "pid").read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def supervised(self) -> bool:
        return is_locked(self.supervisor_lock)

    def begun(self) -> bool:
        """Whether it has left the line: it has a coordinator, or is over. One whose supervisor was killed before it
        started the first node has run nothing, and is in line as before."""
        if not self.coordinator.exists():
            return self.outcome.exists()
        return self.nodes.exists() or self.outcome.exists() or self.alive()

    def alive(self) -> bool:
        """Whether any process still looks after this job."""
        return (
            self.supervised() or is_locked(self.revive_lock) or any(self.node_alive(name) for name in self.node_names())
        )


def write_text(path: Path, text: str, mode: int = 0o644, durable: bool = False, reserved: bool = False) -> None:
    """Replaces a file whole: a reader, or a crash, sees the old text or the new one. With `reserved` also on a full
    disk, where the job has set room aside for it."""
    data = text.encode()
    try:
        replace(path, data, mode, durable)
    except OSError as error:
        if not is_no_room(error):
            raise
        if not reserved:
            raise no_room_for(path) from None
        try:
            fill_spare(path, data).replace(path)
        except NoRoom:
            write_over(path, data)
        if durable:
            sync_directory(path.parent)


def write_json(path: Path, value: object, mode: int = 0o644, durable: bool = False, reserved: bool = False) -> None:
    write_text(path, json.dumps(value, separators=(",", ":")) + "\n", mode, durable, reserved)


def write_once(path: Path, value: object) -> bool:
    """Makes `value` durable under a name that never had one before, also on a full disk; False when it had."""
    if path.exists():
        return False
    data = json.dumps(value).encode() + b"\n"
    try:
        return create(path, data, 0o644, durable=True)
    except OSError as error:
        if not is_no_room(error):
            raise
    spare = fill_spare(path, data)
    try:
        give_name(spare, path)
    except FileExistsError:
        spare.unlink()
        return False
    sync_directory(path.parent)
    return True


def raise_epoch(directory: JobDirectory) -> int:
    """The next epoch, durable before it is used; the caller holds the supervisor's lock."""
    try:
        epoch = int(directory.epoch.read_text()) + 1
    except FileNotFoundError:
        if directory.coordinator.exists():
            raise _no_epoch(directory, "is missing") from None
        epoch = 1
    except (OSError, ValueError) as error:
        raise _no_epoch(directory, f"cannot be read ({error})") from None
    write_text(directory.epoch, f"{epoch}\n", durable=True, reserved=True)
    return epoch


def _no_epoch(directory: JobDirectory, why: str) -> InternalError:
    return InternalError(
        f"{directory.epoch} {why}: without it petctl cannot tell which supervisor of "
        f"{directory.id} is the newest. Write the highest epoch in {directory.events} there, or end the job: "
        f"petctl cancel --kill {directory.id}"
    )


def sync(path: Path) -> None:
    """Returns when what is in a file will outlast a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
