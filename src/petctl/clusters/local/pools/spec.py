"""What a named local cluster is to be, as it is kept: clusters/NAME/cluster.json.

The file is replaced whole and is the wish; what there is of it is in the nodes' table beside it (`nodes.py`).
Standard library only: the supervisors of jobs read it. What users may say is checked in `description.py`.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from petctl.clusters.local.job_directory import write_json
from petctl.clusters.local.pools.model import REQUEUE, Size
from petctl.errors import InternalError, NotFound, UsageError
from petctl.files import read_json_or_none
from petctl.job.fields import decode

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class Setup:
    """What is run once on each node before jobs get it."""

    command: str
    output: str = ""  # a directory; empty: in the cluster's own
    env: Dict[str, str] = field(default_factory=dict)
    secrets: Dict[str, str] = field(default_factory=dict)  # environment name -> name of the secret


@dataclass(frozen=True)
class Mount:
    """Something that all jobs of the cluster find under one root: a directory, or what a command mounts."""

    path: str  # relative
    directory: str = ""
    command: str = ""


@dataclass(frozen=True)
class FleetSpec:
    """One cluster's description."""

    name: str
    id: str = ""
    created: float = 0.0
    changed: float = 0.0  # when its size was set last
    low: int = 0
    high: int = 0
    auto: bool = False
    idle_time: float = 600.0
    deallocation: str = REQUEUE
    gpus_per_node: int = 0
    setup: Optional[Setup] = None
    mounts: Tuple[Mount, ...] = ()
    deleting: bool = False

    @property
    def size(self) -> Size:
        return Size(self.low, self.high, self.idle_time, self.deallocation)

    @property
    def prepares(self) -> bool:
        """Whether something has to be done on a node before a job may have it."""
        return self.setup is not None or any(mount.command for mount in self.mounts)


class FleetDirectory:
    """The paths of one cluster."""

    def __init__(self, home: Path, name: str) -> None:
        self.home, self.name = home, name
        self.path = home / "clusters" / name
        self.spec = self.path / "cluster.json"
        self.mounts = self.path / "mounts"
        self.mounts_lock = self.path / "mounts.lock"
        self.mounted = self.path / "mounted.json"  # what commands have mounted, and since which start of the machine
        self.nodes = self.path / "nodes"

    def node(self, number: int) -> Path:
        return self.nodes / str(number)

    def node_lock(self, number: int) -> Path:
        """Held by whoever prepares the node."""
        return self.node(number) / "lock"

    def attempts(self, number: int) -> Path:
        """How often its preparation was started in vain; written under its lock."""
        return self.node(number) / "attempts"

    def output(self, spec: FleetSpec, number: int) -> Path:
        """Where the setup task of a node writes."""
        if spec.setup is None or not spec.setup.output:
            return self.node(number)
        return Path(spec.setup.output) / spec.name / str(number)


def fleet_names(home: Path) -> List[str]:
    """Every named local cluster."""
    return sorted(path.parent.name for path in (home / "clusters").glob("*/cluster.json") if valid(path.parent.name))


def valid(name: str) -> bool:
    """Whether a cluster may have this name; also keeps names from being paths."""
    return _NAME.fullmatch(name) is not None


def find_spec(home: Path, name: str) -> Optional[FleetSpec]:
    """The cluster's description; None where there is no such cluster."""
    if not valid(name):
        return None
    path = FleetDirectory(home, name).spec
    data = read_json_or_none(path)
    if data is None and not path.exists():
        return None
    try:
        return decode(FleetSpec, data)
    except ValueError:
        raise InternalError(f"{path} is damaged; repair it, or remove it and make the cluster again") from None


def read_spec(home: Path, name: str) -> FleetSpec:
    """The cluster's description; NotFound where there is none."""
    spec = find_spec(home, name)
    if spec is None and name == "local":
        raise UsageError(
            "local is this machine itself and stays as it is; clusters.local.slots in petctl.yaml is its size"
        )
    if spec is None:
        known = ", ".join(fleet_names(home)) or "none yet"
        raise NotFound(
            f"there is no cluster {name!r}; the clusters are: {known}; create one: petctl cluster create NAME"
        )
    return spec


def write_spec(directory: FleetDirectory, spec: FleetSpec) -> None:
    """Keeps the description in place of the last one."""
    write_json(directory.spec, {"kind": "local", **asdict(spec)}, mode=0o600, durable=True)


def check_size(spec: FleetSpec, minimum: int) -> None:
    """Refuses a job that auto-scale could never give enough nodes; one that needs a resize may wait for it."""
    if spec.auto and minimum > spec.high:
        raise UsageError(
            f"the job needs at least {minimum} nodes and cluster {spec.name} grows to {spec.high}; ask for fewer with "
            f"-n, or: petctl cluster autoscale {spec.name} --min {spec.low} --max {minimum}"
        )


def shared_places(home: Path, spec: FleetSpec) -> List[str]:
    """The root of the cluster's mounts, and the directories that links in it lead to."""
    return [str(FleetDirectory(home, spec.name).mounts), *(item.directory for item in spec.mounts if item.directory)]
