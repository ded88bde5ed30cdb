"""What all jobs of a named local cluster find under one root, $PETCTL_CLUSTER_MOUNTS: links to directories, and file
systems that commands mount.

All nodes are on this machine, so each is mounted once, by the first node that is prepared after the machine's start.
Nothing that is mounted is ever removed with what is under it: a mount that cannot be undone keeps the cluster.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from petctl.clusters.local.job_directory import write_json
from petctl.clusters.local.pools.spec import FleetDirectory, FleetSpec, Mount
from petctl.clusters.local.processes import boot_id
from petctl.errors import PetctlError
from petctl.files import locked, read_json_or_none
from petctl.text import program_of


def link(directory: FleetDirectory, spec: FleetSpec) -> None:
    """Makes the root, and in it a link to each directory."""
    directory.mounts.mkdir(parents=True, exist_ok=True)
    for mount in spec.mounts:
        if mount.directory:
            place = directory.mounts / mount.path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)
            place.symlink_to(mount.directory, target_is_directory=True)


def mount(directory: FleetDirectory, spec: FleetSpec) -> str:
    """Runs the commands of those that are not mounted yet; the first that fails says why, in its own words."""
    with locked(directory.mounts_lock):
        done = read_json_or_none(directory.mounted) or {}
        for item in spec.mounts:
            if item.command and (done.get(item.path) != boot_id() or not (directory.mounts / item.path).is_dir()):
                problem = _run(directory, item)
                if problem:
                    return problem
                done[item.path] = boot_id()
                write_json(directory.mounted, done)
    return ""


def unmount(directory: FleetDirectory, spec: FleetSpec) -> None:
    """Takes down everything under the root; an error names what is still in use."""
    with locked(directory.mounts_lock):
        for item in spec.mounts:
            place = directory.mounts / item.path
            if item.directory:
                place.unlink(missing_ok=True)
            elif place.is_dir():
                _take_down(directory, place)
        # Only directories that petctl made are left, and nothing is mounted on any of them.
        if mounted_below(directory.mounts):
            raise PetctlError(f"something is still mounted below {directory.mounts}; unmount it and try again")
        shutil.rmtree(directory.mounts, ignore_errors=True)
        directory.mounted.unlink(missing_ok=True)


def _run(directory: FleetDirectory, item: Mount) -> str:
    place = directory.mounts / item.path
    try:
        place.mkdir(parents=True, exist_ok=True)
        line = f"{item.command} {shlex.quote(str(place))}"
        done = subprocess.run(
            ["/bin/sh", "-c", line], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
    except OSError as error:
        return f"{item.path} could not be mounted: {error}"
    if done.returncode == 0:
        return ""
    said = " | ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]) or "it printed nothing"
    return f"{item.path} could not be mounted: {program_of(item.command)} exited with code {done.returncode}: {said}"


def _take_down(directory: FleetDirectory, place: Path) -> None:
    while str(place) in mounted_below(directory.mounts):
        done = subprocess.run(["umount", str(place)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise PetctlError(f"{place} could not be unmounted: {done.stderr.strip()}; end what uses it and try again")


def mounted_below(root: Path) -> list[str]:
    """Where something is mounted, at or below a directory; the kernel's list, because bind mounts look like any
    directory."""
    top = os.path.realpath(root)
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        for line in table:
            place = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), line.split(" ")[4])
            if place == top or place.startswith(top + "/"):
                found.append(place)
    return found
