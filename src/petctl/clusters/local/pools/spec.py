"""What a named local cluster is to be: its description, checked, and kept as clusters/NAME/cluster.json.

The file is replaced whole and is the wish; what there is of it is in the nodes' table beside it (`nodes.py`).
A wrong description is refused with all that is wrong about it, before anything is made. Standard library only: the
supervisors of jobs read it.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Dict, List, Mapping, Optional, Tuple

from petctl.clusters.local.job_directory import write_json
from petctl.clusters.local.pools.model import DEALLOCATION, REQUEUE, Size
from petctl.errors import InternalError, NotFound, UsageError
from petctl.files import read_json_or_none

IDLE_TIME = 600.0
MOST_NODES = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_FIELDS = (
    "nodes",
    "min",
    "max",
    "initial",
    "idle_time",
    "deallocation",
    "gpus_per_node",
    "setup",
    "mounts",
)


@dataclass(frozen=True)
class Setup:
    """What is run once on each node before jobs get it."""

    command: str
    output: str = ""  # a directory; empty: in the cluster's own
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)  # environment name -> name of the secret


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
    idle_time: float = IDLE_TIME
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
        return _decode(data or {})
    except TypeError:
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
    data = {"kind": "local", **asdict(spec)}
    write_json(directory.spec, data, mode=0o600, durable=True)


def spec_from(name: str, data: Mapping[str, Any]) -> FleetSpec:
    """Checks a description in the user's words; UsageError names everything that is wrong."""
    problems: List[str] = []
    if not valid(name):
        problems.append(f"the name {name!r} must be 1 to 64 letters, digits, - and _, and begin with a letter or digit")
    problems += [f"{key!r} is not a field; the fields are: {', '.join(_FIELDS)}" for key in data if key not in _FIELDS]
    _number(data, "initial", 0, problems)
    spec = FleetSpec(
        name,
        gpus_per_node=_number(data, "gpus_per_node", 0, problems),
        setup=_setup(data.get("setup"), problems),
        mounts=_mounts(data.get("mounts") or (), problems),
    )
    try:
        spec = sized(spec, **{key: data.get(key) for key in ("nodes", "min", "max", "deallocation", "idle_time")})
    except UsageError as error:
        problems.append(str(error))
    if problems:
        raise UsageError("\n".join([f"cannot create the cluster {name!r}:", *(f"  {line}" for line in problems)]))
    return spec


def sized(
    spec: FleetSpec,
    nodes: Optional[int] = None,
    min: Optional[int] = None,  # noqa: A002  the words of the command line and the file
    max: Optional[int] = None,  # noqa: A002
    deallocation: Optional[str] = None,
    idle_time: Optional[float] = None,
) -> FleetSpec:
    """The same cluster with another size: a number of nodes, or bounds for auto-scale."""
    given = {"nodes": nodes, "min": min, "max": max}
    for key, value in given.items():
        if value is not None and (type(value) is not int or not 0 <= value <= MOST_NODES):
            raise UsageError(f"{key} must be a whole number from 0 to {MOST_NODES}, not {value!r}")
    if nodes is not None and (min is not None or max is not None):
        raise UsageError("give either a number of nodes, or min and max for auto-scale, not both")
    if nodes is not None:
        spec = replace(spec, low=nodes, high=nodes, auto=False)
    elif min is not None or max is not None:
        low = min if min is not None else spec.low if spec.auto else 0
        high = max if max is not None else spec.high if spec.auto else None
        if high is None:
            raise UsageError("auto-scale needs a maximum too")
        if low > high or high == 0:
            raise UsageError(f"auto-scale needs 0 <= min <= max and a max above 0, not min {low} and max {high}")
        spec = replace(spec, low=low, high=high, auto=True)
    if deallocation is not None:
        if deallocation not in DEALLOCATION:
            raise UsageError(f"deallocation must be one of {', '.join(DEALLOCATION)}, not {deallocation!r}")
        spec = replace(spec, deallocation=deallocation)
    if idle_time is not None:
        if isinstance(idle_time, bool) or not isinstance(idle_time, (int, float)) or not 0 <= idle_time < math.inf:
            raise UsageError(f"idle_time must be a number of seconds, not {idle_time!r}")
        spec = replace(spec, idle_time=float(idle_time))
    return spec


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


def _setup(data: object, problems: List[str]) -> Optional[Setup]:
    if data is None:
        return None
    if isinstance(data, str):
        data = {"command": data}
    if not isinstance(data, Mapping) or not isinstance(data.get("command"), str) or not data["command"].strip():
        problems.append("setup needs a shell command")
        return None
    problems += [
        f"setup.{key} is not a field; the fields are: command, output, env, secrets"
        for key in data
        if key not in ("command", "output", "env", "secrets")
    ]
    output = str(data.get("output") or "")
    if output and not Path(output).is_absolute():
        problems.append(f"setup.output must be an absolute path, not {output!r}")
    env, secrets = (_mapping(data, key, problems, "setup.") for key in ("env", "secrets"))
    return Setup(
        data["command"],
        output,
        {str(key): str(value) for key, value in env.items()},
        {str(key): str(value) for key, value in secrets.items()},
    )


def _mounts(data: object, problems: List[str]) -> Tuple[Mount, ...]:
    if not isinstance(data, (list, tuple)):
        problems.append("mounts must be a list of {path, directory} or {path, command}")
        return ()
    found: List[Mount] = []
    for index, item in enumerate(data):
        where = f"mounts[{index}]"
        if not isinstance(item, Mapping) or not item.get("path") or set(item) - {"path", "directory", "command"}:
            problems.append(f"{where} must have a path and a directory, or a path and a command")
            continue
        mount = Mount(*(str(item.get(key) or "") for key in ("path", "directory", "command")))
        parts = PurePosixPath(mount.path).parts
        if mount.path.startswith("/") or not parts or ".." in parts:
            problems.append(f"{where}.path must be a relative path without .., not {mount.path!r}")
        elif bool(mount.directory) == bool(mount.command):
            problems.append(f"{where} ({mount.path}) must have either a directory or a command")
        elif mount.directory and not Path(mount.directory).is_dir():
            problems.append(f"{where} ({mount.path}): there is no directory {mount.directory}")
        elif mount.directory and not Path(mount.directory).is_absolute():
            problems.append(f"{where} ({mount.path}): {mount.directory!r} must be an absolute path")
        elif any(_inside(mount.path, other.path) or _inside(other.path, mount.path) for other in found):
            problems.append(f"{where}: {mount.path} lies within another mount")
        else:
            found.append(replace(mount, path=str(PurePosixPath(mount.path))))
    return tuple(found)


def _inside(path: str, other: str) -> bool:
    return PurePosixPath(path).is_relative_to(PurePosixPath(other))


def _number(data: Mapping[str, Any], key: str, least: int, problems: List[str]) -> int:
    value = data.get(key)
    if value is None:
        return least
    if type(value) is not int or value < least:
        problems.append(f"{key} must be a whole number from {least}, not {value!r}")
        return least
    return value


def _mapping(data: Mapping[str, Any], key: str, problems: List[str], where: str = "") -> Dict[str, Any]:
    value = data.get(key) or {}
    if not isinstance(value, Mapping):
        problems.append(f"{where}{key} must be a mapping, not {type(value).__name__}")
        return {}
    return dict(value)


def _decode(data: Dict[str, Any]) -> FleetSpec:
    known = {key: value for key, value in data.items() if key in FleetSpec.__dataclass_fields__}
    setup, mounts = known.get("setup"), known.get("mounts") or ()
    known["setup"] = Setup(**setup) if setup else None
    known["mounts"] = tuple(Mount(**mount) for mount in mounts)
    return FleetSpec(**known)
