"""What a cluster has put on this machine, written down before it is put there: what `down` removes, whatever happened.

The processes of a machine end with its first one, and mounts and links inside with them. A process is known by its
number and its start, so that another one that got the same number is never ended; one that was started and not yet
written down when `up` was killed is known by the cluster's mark in its environment.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

import msgspec

MARK = "PETCTL_DEVELOPMENT_CLUSTER"


class Process(msgspec.Struct, frozen=True):
    """One process that was started here, by number and start time."""

    name: str
    pid: int
    start: int


class Record(msgspec.Struct):
    """All that is on this machine because of one cluster."""

    id: str
    boot: str
    processes: list[Process] = []
    namespaces: dict[str, dict[str, str]] = {}  # machine -> kind -> name, such as net:[4026532345]
    links: list[str] = []
    cgroups: list[str] = []
    ready: bool = False


class Ledger:
    """The record of the cluster whose state is in a directory; every change is on disk when the call returns."""

    def __init__(self, directory: Path, record: Record) -> None:
        self.directory = directory
        self.record = record

    @classmethod
    def open_new(cls, directory: Path) -> Ledger:
        """For a cluster that is about to be."""
        directory.mkdir(mode=0o755)
        ledger = cls(directory, Record(id=secrets.token_hex(8), boot=boot()))
        ledger.write()
        return ledger

    @classmethod
    def read(cls, directory: Path) -> Ledger | None:
        """Of the cluster that is or was there, if any."""
        try:
            return cls(directory, msgspec.json.decode((directory / "ledger.json").read_bytes(), type=Record))
        except FileNotFoundError:
            return None

    def write(self) -> None:
        """All of it, in one step."""
        half = self.directory / "ledger.json.half"
        with half.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(self.record), indent=2))
            file.flush()
            os.fsync(file.fileno())
        half.rename(self.directory / "ledger.json")

    def living(self) -> list[Process]:
        """The processes of this cluster that are there, also those that were not written down."""
        if self.record.boot != boot():
            return []
        known = [process for process in self.record.processes if start_of(process.pid) == process.start]
        numbers = {process.pid for process in known}
        return known + [process for process in marked(self.record.id) if process.pid not in numbers]


def boot() -> str:
    """Which start of this machine it is: numbers of processes mean nothing in another one."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_of(pid: int) -> int | None:
    """When a process was started, in ticks since boot; None where there is none (or only its remains)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def described(name: str, pid: int) -> Process | None:
    """A process as the ledger names it; None where it has ended."""
    start = start_of(pid)
    return None if start is None else Process(name, pid, start)


def marked(identity: str) -> list[Process]:
    """Every process that has the cluster's mark in its environment."""
    wanted = f"{MARK}={identity}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            name = (entry / "comm").read_text().strip()
        except OSError:  # it has ended in between
            continue
        if wanted in environment:
            process = described(name, int(entry.name))
            if process is not None:
                found.append(process)
    return found


def namespaces_of(pid: int) -> dict[str, str]:
    """The namespaces that a process is in, by kind."""
    kinds = ("mnt", "net", "pid_for_children", "uts")
    return {kind: str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in kinds}


def as_text(record: Record) -> str:
    """For people."""
    shown: dict[str, Any] = msgspec.to_builtins(record)
    return json.dumps(shown, indent=2)
