"""A control group per node, in every hierarchy that is mounted: kubelets keep their pods below it."""

from __future__ import annotations

import os
from pathlib import Path

from tests.k8s.cluster.waiting import until


def hierarchies(mountinfo: str | None = None) -> list[Path]:
    """Where control groups are mounted: a directory per controller (version 1), the unified one (version 2), both."""
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    places = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        if after.split()[0] in ("cgroup", "cgroup2"):
            places.append(Path(before.split()[4]))
    return places


def make(name: str) -> None:
    """The group in every hierarchy. A cpuset starts empty, and nothing runs in an empty one."""
    for place in hierarchies():
        group = place / name
        group.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (group / file).exists() and not (group / file).read_text().strip():
                (group / file).write_text((place / file).read_text())


def remaining(name: str) -> list[Path]:
    """The hierarchies that still have the group."""
    return [place / name for place in hierarchies() if (place / name).is_dir()]


def processes(name: str) -> set[int]:
    """Everything that runs in the group or below it, in any hierarchy."""
    found: set[int] = set()
    for group in remaining(name):
        for directory, _, _ in os.walk(group):
            try:
                found.update(int(word) for word in (Path(directory) / "cgroup.procs").read_text().split())
            except OSError:  # removed in between
                continue
    return found


def remove(name: str) -> None:
    """The group and all below it; its processes have been ended, and the kernel may need a moment to let go of them."""

    def gone() -> bool:
        for group in remaining(name):
            for directory, _, _ in os.walk(group, topdown=False):
                try:
                    Path(directory).rmdir()
                except OSError:
                    continue
        return not remaining(name)

    until(gone, f"removing the control groups {name}: processes left in them: {sorted(processes(name))}", 60)
