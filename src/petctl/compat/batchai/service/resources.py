"""Groups, workspaces and experiments: what resources are in. They hold nothing of their own but their names.

Where a name is left out it is `default`, and a parent that is needed and missing is made; so one command submits a job.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from petctl.compat.batchai.service.names import DEFAULT, KINDS, Address, check_name
from petctl.compat.batchai.service.resource_store import Missing, Trail, Tree

LOCATION = "local"


def group_trail(group: str) -> Trail:
    """How one gets to a group."""
    return (("groups", group),)


def trail_of(kind: str, address: Address) -> Trail:
    """How one gets to a resource of a workspace, or to the workspace itself."""
    path = ((collection, getattr(address, field) or address.name) for collection, field in KINDS[kind].path)
    return (*group_trail(address.group), *path)


def create_group(home: Path, name: str, location: str, tags: Mapping[str, str]) -> dict[str, Any]:
    """A group; one that is there gets the tags, as with Azure."""
    tree = Tree(home)
    check_name("group", name)
    with tree.locked():
        if tree.find(group_trail(name)) is None:
            tree.make(group_trail(name), {**_new(), "location": location or LOCATION, "tags": dict(tags) or None})
        elif tags:
            tree.change(group_trail(name), tags=dict(tags))
    return tree.read(group_trail(name))


def create_workspace(home: Path, address: Address, location: str) -> dict[str, Any]:
    """Makes a workspace, or finds the one that is there, as with Azure. Missing where its group does not exist, since
    the name may be mistyped; only the group `default` is made."""
    tree, trail = Tree(home), trail_of("workspaces", address)
    with tree.locked():
        if address.group == DEFAULT:
            _ensure(tree, "group", group_trail(DEFAULT), {"location": location or LOCATION, "tags": None})
        elif tree.find(group_trail(address.group)) is None:
            raise Missing(f"there is no group {address.group!r}; create it: batchai group create -n {address.group}")
        _ensure(tree, "workspace", trail, {"location": location or tree.read(trail[:1])["location"]})
    return tree.read(trail)


def create_experiment(home: Path, address: Address) -> dict[str, Any]:
    """An experiment in a workspace, or the one that is there."""
    tree, trail = Tree(home), trail_of("experiments", address)
    with tree.locked():
        _ensure(tree, "experiment", trail, {})
    return tree.read(trail)


def ensure_defaults(tree: Tree, given: Address, filled: Address) -> None:
    """Makes group, workspace and experiment of those who named none; the caller holds the lock.

    A name that was written is never made: it may be mistyped.
    """
    if not given.group:
        _ensure(tree, "group", group_trail(filled.group), {"location": LOCATION, "tags": None})
    if not given.workspace:
        _ensure(tree, "workspace", trail_of("workspaces", filled), {"location": LOCATION})
    if not given.experiment and filled.experiment:
        _ensure(tree, "experiment", trail_of("experiments", filled), {})


def _ensure(tree: Tree, kind: str, trail: Trail, fields: Mapping[str, Any]) -> None:
    if tree.find(trail) is None:
        check_name(kind, trail[-1][1])
        tree.make(trail, {**_new(), **fields})


def _new() -> dict[str, Any]:
    return {"created": time.time()}
