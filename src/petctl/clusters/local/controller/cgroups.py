"""Limits of memory and processors for a node that is no container: control groups of its own, gone with the node.

    JOB/nodes/NAME/cgroups      the groups, one a line; written before they are made, so that whoever cleans up behind
                                a node or a job finds them, whoever was killed

They are made where whoever starts the node is, so that what limits that process limits the node too: with version 1
below its own group, with version 2 beside it (a group with processes has no limited groups below it), and never outside
a group that has a limit itself. The node's agent enters them with all that it starts; its guardian stays outside, as
does the supervisor that it may have to start.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

MEMORY, CPU = "memory", "cpu"
_RECORD, _NAME = "cgroups", "petctl-"
_PERIOD = 100000  # microseconds; the kernel's own
_LEAST = 1000  # the least quota that it takes
_UNLIMITED = {MEMORY: ("memory.max", "max"), CPU: ("cpu.max", "max")}
_PATIENCE, _STEP = 3.0, 0.01


class Parent(NamedTuple):
    """Where groups that limit something can be made."""

    version: int
    path: Path


def parents(limits: Mapping[str, float], proc: Path = Path("/proc/self")) -> Tuple[Dict[str, Parent], Dict[str, str]]:
    """For each limit where a group for it can be made from here, or why none can."""
    found: Dict[str, Parent] = {}
    refused: Dict[str, str] = {}
    own, mounted = _own_groups(proc), _mounts(proc)
    for name in limits:
        if name in own and name in mounted:
            path = _below(own[name], *mounted[name])
            if os.access(path, os.W_OK | os.X_OK):
                found[name] = Parent(1, path)
            else:
                refused[name] = f"{path} cannot be written"
        elif "" in own and "" in mounted:
            root = Path(mounted[""][1])
            beside, why = _beside(_below(own[""], *mounted[""]), root, name)
            if beside is None:
                refused[name] = why
            else:
                found[name] = Parent(2, beside)
        else:
            refused[name] = "no control groups are mounted"
    two = {parent.path for parent in found.values() if parent.version == 2}
    if len(two) > 1:  # a process is in one group of version 2 only; memory is worth more
        refused[CPU] = f"{found.pop(CPU).path} is not where the memory is limited"
    return found, refused


def make(state: Path, limits: Mapping[str, float], proc: Path = Path("/proc/self")) -> List[str]:
    """The groups for the node with this state directory; OSError when there cannot be such limits."""
    places, refused = parents(limits, proc)
    if refused:
        raise OSError("; ".join(sorted(set(refused.values()))))
    job, node = state.parent.parent, state.name
    name = f"{_NAME}{job.name}-{node}-{sha256(os.fsencode(job)).hexdigest()[:8]}"
    made = sorted({str(parent.path / name) for parent in places.values()})
    known = {*made, *_text(state / _RECORD).splitlines()}  # of an earlier life too, where it could not be removed
    (state / _RECORD).write_text("".join(f"{path}\n" for path in sorted(known)))
    for limit, parent in places.items():
        group = parent.path / name
        group.mkdir(exist_ok=True)
        _set(group, limit, limits[limit], parent.version)
    return made


def remove(state: Path) -> None:
    """Removes a node's groups, and ends who is still in them: the node is over."""
    try:
        groups = (state / _RECORD).read_text().splitlines()
    except OSError:
        return
    deadline = time.monotonic() + _PATIENCE
    for group in groups:
        if Path(group).name.startswith(_NAME):
            for path, _, _ in os.walk(group, topdown=False):
                _remove(Path(path), deadline)
    if not any(Path(group).exists() for group in groups):
        with suppress(OSError):
            (state / _RECORD).unlink()


def _own_groups(proc: Path) -> Dict[str, str]:
    """By controller, and by "" that of version 2."""
    found: Dict[str, str] = {}
    for line in _text(proc / "cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        found.update(dict.fromkeys(names.split(","), path))
    return found


def _mounts(proc: Path) -> Dict[str, Tuple[str, str]]:
    """By controller, and by "" for version 2: which group is mounted, and where."""
    found: Dict[str, Tuple[str, str]] = {}
    for line in _text(proc / "mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if kind[:1] == ["cgroup"]:
            found.update(dict.fromkeys(kind[-1].split(","), (fields[3], fields[4])))
        elif kind[:1] == ["cgroup2"]:
            found[""] = (fields[3], fields[4])
    return found


def _below(path: str, root: str, point: str) -> Path:
    """Where a group is seen; a container may see less than all, and then its own as the topmost."""
    inside = os.path.relpath(path, root)
    return Path(point) if inside.startswith("..") else Path(point, inside)


def _beside(own: Path, root: Path, limit: str) -> Tuple[Optional[Path], str]:
    """The nearest group, of those that this process is in, below which there are groups with such limits."""
    group = own
    while True:
        if limit in _text(group / "cgroup.subtree_control").split():
            free = all(os.access(path, os.W_OK) for path in (group, group / "cgroup.procs"))
            return (group, "") if free else (None, f"{group} cannot be written")
        file, unlimited = _UNLIMITED[limit]
        if _text(group / file).split()[:1] not in ([], [unlimited]):
            return None, f"{group} has a limit of its own"
        if group in (root, group.parent):
            return None, f"{root} limits no {limit}"
        group = group.parent


def _set(group: Path, limit: str, value: float, version: int) -> None:
    if limit == MEMORY:
        (group / ("memory.max" if version == 2 else "memory.limit_in_bytes")).write_text(f"{int(value)}\n")
        with suppress(OSError):  # no swap here, or nobody counts it
            swap, most = ("memory.swap.max", 0) if version == 2 else ("memory.memsw.limit_in_bytes", int(value))
            (group / swap).write_text(f"{most}\n")
        return
    quota = max(_LEAST, int(value * _PERIOD))
    if version == 2:
        (group / "cpu.max").write_text(f"{quota} {_PERIOD}\n")
    else:
        (group / "cpu.cfs_period_us").write_text(f"{_PERIOD}\n")
        (group / "cpu.cfs_quota_us").write_text(f"{quota}\n")


def _remove(group: Path, deadline: float) -> None:
    while True:
        for pid in _members(group):
            _end(pid, group)
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:  # they are on their way out
            if time.monotonic() > deadline:
                return
            time.sleep(_STEP)


def _end(pid: int, group: Path) -> None:
    with suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            if pid in _members(group):  # it may be another's number by now
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


def _members(group: Path) -> List[int]:
    return [int(word) for word in _text(group / "cgroup.procs").split() if int(word) != os.getpid()]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
