"""A named local cluster in its user's words: checked with all that is wrong about it, before anything is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from petctl.clusters.local.pools.model import DEALLOCATION
from petctl.clusters.local.pools.spec import FleetSpec, Mount, Setup, valid
from petctl.job.spec import parse_duration, values
from petctl.job.spec.problems import Problem, Problems, shown, wrong
from petctl.job.spec.shape import Need, Shape, examine, take

MOST_NODES = 1000


def spec_from(name: str, data: Mapping[str, Any]) -> FleetSpec:
    """The cluster that a description means; FieldError names everything that is wrong."""
    rule = f"the name {name!r} must be 1 to 64 letters, digits, - and _, and begin with a letter or digit"
    problems = Problems([] if valid(name) else [Problem((), rule)])
    said, found = examine(DESCRIPTION, data)
    problems += found
    spec = FleetSpec(name, **{key: said[key] for key in ("gpus_per_node", "setup", "mounts") if key in said})
    with problems.at():
        spec = sized(spec, **{key: said[key] for key in SIZE if key in said})
    problems.check()
    return spec


def sized(spec: FleetSpec, **said: Any) -> FleetSpec:
    """The same cluster with another size: a number of `nodes`, or `min` and `max` for auto-scale, each as it was where
    it is not said; likewise `deallocation` and `idle_time`."""
    said = take(SIZE, said)
    nodes, low, high = said.get("nodes"), said.get("min"), said.get("max")
    if nodes is not None and (low is not None or high is not None):
        raise wrong("give either a number of nodes, or min and max for auto-scale, not both")
    if nodes is not None:
        spec = replace(spec, low=nodes, high=nodes, auto=False)
    elif low is not None or high is not None:
        if high is None and not spec.auto:
            raise wrong("auto-scale needs a maximum too")
        low = low if low is not None else spec.low if spec.auto else 0
        high = spec.high if high is None else high
        if low > high or high == 0:
            raise wrong(f"auto-scale needs 0 <= min <= max and a max above 0, not min {low} and max {high}")
        spec = replace(spec, low=low, high=high, auto=True)
    return replace(spec, **{key: said[key] for key in ("deallocation", "idle_time") if key in said})


def _absolute(value: object) -> str:
    path = values.text(value)
    if path and not Path(path).is_absolute():
        raise wrong(f"expected an absolute path, got {shown(path)}")
    return path


def _relative(value: object) -> str:
    path = PurePosixPath(values.text(value))
    if path.is_absolute() or not path.parts or ".." in path.parts:
        raise wrong(f"expected a relative path without .., got {shown(value)}")
    return str(path)


def _directory(value: object) -> str:
    path = _absolute(value)
    if not Path(path).is_dir():
        raise wrong(f"there is no directory {path}")
    return path


def _command(value: object) -> str:
    line = values.text(value)
    if not line.strip():
        raise wrong("expected a shell command, got nothing")
    return line


def _setup(value: object) -> Setup:
    return Setup(**take(SETUP, {"command": value} if isinstance(value, str) else value))


def _mounts(value: object) -> tuple[Mount, ...]:
    found: list[Mount] = []

    def add(item: object) -> None:
        mount = Mount(**take(MOUNT, item))
        if bool(mount.directory) == bool(mount.command):
            raise wrong(f"{mount.path} must have either a directory or a command")
        path = PurePosixPath(mount.path)
        if any(path.is_relative_to(other.path) or PurePosixPath(other.path).is_relative_to(path) for other in found):
            raise wrong(f"{mount.path} lies within another mount")
        found.append(mount)

    values.every(value, add, "a list of {path, directory} or {path, command}")
    return tuple(found)


_TEXTS = values.text_mapping(values.ENVIRONMENT_NAMES, values.text)
_NUMBER = values.whole(0, MOST_NODES)
SIZE: Shape = {
    "nodes": _NUMBER,
    "min": _NUMBER,
    "max": _NUMBER,
    "idle_time": parse_duration,
    "deallocation": values.one_of(*DEALLOCATION),
}
SETUP: Shape = {"command": Need(_command), "output": _absolute, "env": _TEXTS, "secrets": _TEXTS}
MOUNT: Shape = {"path": Need(_relative), "directory": _directory, "command": _command}
DESCRIPTION: Shape = {
    **SIZE,
    "initial": values.whole(0),
    "gpus_per_node": values.whole(0),
    "setup": _setup,
    "mounts": _mounts,
}
