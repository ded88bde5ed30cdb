"""Clusters of Batch AI: each is a local cluster of petctl's, of the same name where that is free.

Which nodes there are and what they do is the local provisioner's (`petctl.clusters.provisioner`); here are only names
and what was asked for.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from petctl.clusters.base import HERE, AlreadyExists, Cluster
from petctl.clusters.provisioner import find_provisioner
from petctl.compat.batchai.jobfile import Resolver
from petctl.compat.batchai.service.machines import DEALLOCATIONS, kept
from petctl.compat.batchai.service.mounts import fleet_mounts
from petctl.compat.batchai.service.names import Address, check_name, parse_id, resource_id
from petctl.compat.batchai.service.resource_store import Missing, Tree
from petctl.compat.batchai.service.resources import trail_of
from petctl.errors import NotFound, PetctlError, UsageError
from petctl.kinds import DEFAULT

OURS = "petctl://"  # before the names of petctl's own clusters, where Azure's have ids
MOUNT_ROOT = "$AZ_BATCHAI_MOUNT_ROOT"
LONGEST = 64
_TO_FLEET = dict(zip(DEALLOCATIONS, ("requeue", "terminate", "wait"), strict=True))
_FROM_FLEET = {ours: theirs for theirs, ours in _TO_FLEET.items()}


def create_cluster(home: Path, address: Address, settings: Mapping[str, Any], resolve: Resolver) -> dict[str, Any]:
    """A cluster with nodes; the settings are those of `machines.cluster_settings`, `resolve` knows where mounts are."""
    from petctl.secret_file import set_secret

    tree = Tree(home)
    check_name("cluster", address.name)
    trail = trail_of("clusters", address)
    spec, values = _spec(settings, resolve)
    record: dict[str, Any] = {
        "created": time.time(),
        "settings": kept(settings),
        "secrets": sorted(values),
        "petctl": "",
        "fleet": "",
    }
    with tree.locked():
        names = _free_names(home, address)
        record["petctl"] = next(names)
        tree.make(trail, record)
        try:
            for name, value in values.items():
                set_secret(home, name, value)
            while True:
                try:
                    made = find_provisioner(DEFAULT).create(home, record["petctl"], spec)
                    break
                except AlreadyExists:  # somebody else's since we looked
                    record = tree.change(trail, petctl=next(names))
        except BaseException:
            forget_secrets(home, DEFAULT, values)
            tree.remove(trail)
            raise
        return tree.change(trail, fleet=made["id"])


def read_cluster(home: Path, address: Address) -> tuple[dict[str, Any], dict[str, Any]]:
    """A cluster's record, and what is true of its nodes now, for `report.cluster`."""

    record = Tree(home).read(trail_of("clusters", address))
    try:
        view = find_provisioner(DEFAULT).read(home, _own(home, record))
    except NotFound:
        words = f"its nodes are gone: petctl's cluster {record['petctl']!r} was deleted; delete this one as well"
        manual = {"nodeDeallocationOption": DEALLOCATIONS[0], "targetNodeCount": 0}
        scale = {"autoScale": None, "manual": manual}
        seen = {"state": "steady", "since": record["created"], "counts": {}, "errors": [("ClusterGone", words)]}
        return record, {**seen, "scale": scale}
    return record, {
        "state": view["allocation"],
        "since": view["allocation_since"],
        "counts": view["counts"],
        "errors": [("NodeUnusable", problem) for problem in view["problems"]],
        "scale": _scale(record, view),
    }


def change_cluster(home: Path, address: Address, **size: Any) -> None:
    """Another number of `nodes`, which from now on does not change by itself; or `min` and `max`, between which it
    follows the jobs."""
    find_provisioner(DEFAULT).change(home, _fleet_name(home, address), **size)


def cluster_nodes(home: Path, address: Address) -> list[dict[str, Any]]:
    """The nodes, with their states."""
    return find_provisioner(DEFAULT).nodes(home, _fleet_name(home, address))


def mount_root(home: Path, address: Address) -> Path:
    """Where a cluster's mounts are."""
    return Path(find_provisioner(DEFAULT).read(home, _fleet_name(home, address))["mount_root"])


def setup_output(home: Path, address: Address) -> Path | None:
    """The directory with the setup task's output, one folder per node; None without such a task."""
    rows = [row["output"] for row in cluster_nodes(home, address) if row["output"]]
    return Path(rows[0]).parent if rows else None


def find_target(home: Path, text: str, near: Address) -> dict[str, Any]:
    """The cluster that `-c` means: one of the workspace, an id, or any that petctl knows; also as `show` prints it.
    `here`: its jobs are on this machine, also when it is deleted."""
    from petctl.clusters.base import find_cluster
    from petctl.config.settings import cluster_names
    from petctl.kinds import KINDS

    tree, text = Tree(home), text.removeprefix(OURS)
    address = parse_id(text, "clusters") if text.startswith("/") else near._replace(experiment="", name=text)
    trail = trail_of("clusters", address)
    record = tree.find(trail)
    if record is not None:
        path = resource_id(address.group, address.workspace, "clusters", address.name)
        place = {"group": address.group, "workspace": address.workspace}
        return {"id": path, **place, "petctl": record["petctl"], "here": True}
    if text.startswith("/"):
        tree.read(trail)  # says what is missing
    there = [*tree.names(trail[:-1], "clusters"), DEFAULT, *find_provisioner(DEFAULT).names(home), *cluster_names()]
    if text not in there and text not in KINDS:
        known = ", ".join(dict.fromkeys(there))
        raise Missing(
            f"there is no cluster {text!r}, neither in workspace {near.workspace!r} nor elsewhere; there are: {known}"
        )
    cluster = find_cluster(text, home)  # what is wrong with its settings is told before a name is taken
    here = HERE in cluster.capabilities
    return {"id": f"{OURS}{text}", "group": None, "workspace": None, "petctl": text, "here": here}


def forget_secrets(home: Path, cluster: str, names: Iterable[str]) -> None:
    """Removes secrets that were made for a resource, where its cluster keeps them; one that is gone is no matter."""
    for name in names:
        with suppress(NotFound):
            cluster_of(home, {"petctl": cluster}).remove_secret(name)


def cluster_of(home: Path, target: Mapping[str, Any]) -> Cluster:
    """petctl's cluster that a job was submitted to. This machine still has the jobs of its former clusters; those of
    another one are there, whether or not this directory's configuration knows it."""
    from petctl.clusters.base import find_cluster

    try:
        return find_cluster(target["petctl"], home)
    except UsageError as error:
        if not target.get("here", True):
            raise PetctlError(f"{error}; or try again in the directory whose petctl.yaml names it") from None
        return find_cluster(DEFAULT, home)


def _fleet_name(home: Path, address: Address) -> str:
    return _own(home, Tree(home).read(trail_of("clusters", address)))


def _own(home: Path, record: Mapping[str, Any]) -> str:
    """petctl's name of the cluster that was made for this record; NotFound where another has that name by now."""
    name = str(record["petctl"])
    if record.get("fleet") not in (None, "", find_provisioner(DEFAULT).read(home, name)["id"]):
        raise NotFound(f"cluster {name!r} was deleted and created again since")
    return name


def delete_fleet(home: Path, record: Mapping[str, Any]) -> None:
    """Removes petctl's cluster behind a record, ending the jobs on it; one that is gone is no matter."""
    with suppress(NotFound):
        find_provisioner(DEFAULT).delete(home, _own(home, record), force=True)


def _free_names(home: Path, address: Address) -> Iterator[str]:
    """Names for petctl, the plain one first; two groups may well have clusters of the same name."""
    from petctl.config.settings import cluster_names
    from petctl.kinds import KINDS

    taken = {*KINDS, *cluster_names(), *find_provisioner(DEFAULT).names(home)}
    whole = "-".join((address.group, address.workspace, address.name))
    for name in (address.name, whole):
        fit = re.sub(r"[^A-Za-z0-9_-]+", "-", name).lstrip("-_")[:LONGEST]
        if fit and fit not in taken:
            yield fit
    while True:
        yield f"{re.sub(r'[^A-Za-z0-9-]+', '-', address.name).lstrip('-')[: LONGEST - 9]}-{secrets.token_hex(4)}"


def _spec(settings: Mapping[str, Any], resolve: Resolver) -> tuple[dict[str, Any], dict[str, str]]:
    """What petctl's cluster is made from, and the secrets that it names."""
    scale, setup = settings["scaleSettings"], settings["nodeSetup"] or {}
    values: dict[str, str] = {}
    spec: dict[str, Any] = {"mounts": fleet_mounts(setup.get("mountVolumes") or {}, resolve)}
    if scale["autoScale"]:
        bounds = scale["autoScale"]
        spec |= {"min": bounds["minimumNodeCount"], "max": bounds["maximumNodeCount"]}
        spec["initial"] = max(bounds["minimumNodeCount"], min(bounds["initialNodeCount"], bounds["maximumNodeCount"]))
    else:
        spec["nodes"] = scale["manual"]["targetNodeCount"]
        spec["deallocation"] = _TO_FLEET[scale["manual"]["nodeDeallocationOption"]]
    task = setup.get("setupTask")
    if task:
        references = {}
        for number, entry in enumerate(task.get("secrets") or []):
            if not entry.get("value"):
                raise UsageError(
                    f"nodeSetup.setupTask.secrets[{number}] names a key vault, which petctl cannot ask; write its value"
                )
            name = f"batchai-setup-{secrets.token_hex(6)}"
            references[entry["name"]], values[name] = name, entry["value"]
        spec["setup"] = {
            "command": f'export AZ_BATCHAI_MOUNT_ROOT="$PETCTL_CLUSTER_MOUNTS"\n{task["commandLine"]}',
            "output": _output_place(task["stdOutErrPathPrefix"], spec["mounts"]),
            "env": {entry["name"]: entry["value"] for entry in task.get("environmentVariables") or []},
            "secrets": references,
        }
    return spec, values


def _output_place(prefix: str, mounts: list[dict[str, str]]) -> str:
    """The directory that a setup task's output prefix means; it may begin with the root of the cluster's mounts."""
    head, _, rest = prefix.partition("/")
    if head not in (MOUNT_ROOT, "${AZ_BATCHAI_MOUNT_ROOT}"):
        if not prefix.startswith("/"):
            raise UsageError(f"--setup-task-output: {prefix!r} is neither absolute nor below {MOUNT_ROOT}")
        return prefix
    for mount in mounts:
        inside = f"{rest}/".startswith(f"{mount['path'].strip('/')}/")
        if inside and "directory" in mount:
            return str(Path(mount["directory"], rest[len(mount["path"].strip("/")) :].lstrip("/")))
    raise UsageError(f"--setup-task-output: {prefix!r} is on none of the cluster's mounts")


def _scale(record: Mapping[str, Any], view: Mapping[str, Any]) -> dict[str, Any]:
    scale = view["scale"]
    if scale["mode"] == "auto":
        asked = record["settings"]["scaleSettings"]["autoScale"] or {"initialNodeCount": 0}
        bounds = {"maximumNodeCount": scale["max"], "minimumNodeCount": scale["min"]}
        return {"autoScale": {"initialNodeCount": asked["initialNodeCount"], **bounds}, "manual": None}
    option = _FROM_FLEET[view["deallocation"]]
    return {"autoScale": None, "manual": {"nodeDeallocationOption": option, "targetNodeCount": scale["nodes"]}}
