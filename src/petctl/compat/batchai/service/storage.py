"""Storage accounts of this machine: a share or container is a directory. And file servers, which are one each.

    $PETCTL_HOME/batchai/storage/ACCOUNT/resource.json
    $PETCTL_HOME/batchai/storage/ACCOUNT/file/SHARE/...
    $PETCTL_HOME/batchai/storage/ACCOUNT/blob/CONTAINER/...

Jobs mount these directories as they are (`place_of`). Real accounts and Azurite are `petctl.storage.stores`'s.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from petctl.compat.batchai.service.names import Address, check_name, parse_id
from petctl.compat.batchai.service.resource_store import AlreadyThere, Missing, Trail, Tree, words
from petctl.compat.batchai.service.resources import group_trail, trail_of
from petctl.errors import PetctlError, UsageError

KINDS = {"file": "share", "blob": "container"}
KEY_BYTES = 64
DATA = "data"  # where a file server keeps its files, beside its record


def place_of(home: Path, kind: str, account: str, name: str) -> Path | None:
    """The directory of a share ("file"), container ("blob") or file server ("nfs": `name` is its id), if it is one of
    this machine's."""
    if kind == "nfs":
        address = parse_id(name, "fileservers")
        return server_place(home, f"{address.group}/{address.workspace}", address.name)
    try:
        place = Tree(home).directory(account_trail(account)) / kind / check_name(KINDS[kind], name)
    except UsageError:  # Azure's accounts have others, such as $web
        return None
    return place if place.is_dir() else None


def server_place(home: Path, group_workspace: str, name: str) -> Path | None:
    """The directory of a file server, named by GROUP/WORKSPACE and its own name; the only one of that name where it
    is not said whose."""
    tree = Tree(home)
    if group_workspace:
        group, _, workspace = group_workspace.partition("/")
        wanted = [Address(group, workspace, name=name)]
    else:
        groups = [(group, group_trail(group)) for group in tree.names((), "groups")]
        spaces = [(group, workspace) for group, trail in groups for workspace in tree.names(trail, "workspaces")]
        wanted = [Address(group, workspace, name=name) for group, workspace in spaces]
    trails = [trail_of("fileservers", address) for address in wanted]
    found = [tree.directory(trail) / DATA for trail in trails if tree.find(trail) is not None]
    return found[0] if len(found) == 1 else None


def create_server(home: Path, address: Address, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A file server in a workspace: a directory, empty at first, which clusters and jobs mount by the server's name."""
    tree, trail = Tree(home), trail_of("fileservers", address)
    check_name("file server", address.name)
    directory = str(tree.directory(trail) / DATA)
    record = {"created": time.time(), "settings": settings, "directory": directory}
    with tree.locked():
        tree.make(trail, record, (DATA,))
    return record


def account_trail(account: str) -> Trail:
    """How one gets to an account; names are unique over all groups."""
    return (("storage", account),)


def create_account(home: Path, name: str, group: str, location: str, sku: str, kind: str) -> dict[str, Any]:
    """An account with a key, which only its owner's programs ever ask for: directories need none."""
    tree = Tree(home)
    check_name("account", name)
    with tree.locked():
        there = tree.find(account_trail(name))
        if there is not None:
            if there["group"] == group:  # Azure takes the same command twice
                return there
            raise AlreadyThere(
                f"the storage account name {name!r} is taken by group {there['group']!r}; choose another"
            )
        place = tree.read(group_trail(group))
        if place.get("deleting"):
            raise UsageError(f"{words(group_trail(group))} is being deleted; wait for that, or choose another")
        record = {
            "created": time.time(),
            "group": group,
            "location": location or place["location"],
            "sku": sku,
            "kind": kind,
            "keys": [base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode() for _ in range(2)],
        }
        tree.make(account_trail(name), record, tuple(KINDS))
    return record


def accounts(home: Path, group: str | None = None) -> list[str]:
    """All accounts, or those of a group."""
    tree = Tree(home)
    names = tree.names((), "storage")
    return [name for name in names if group is None or tree.read(account_trail(name))["group"] == group]


def read_account(home: Path, name: str) -> dict[str, Any]:
    """An account's record; Missing where there is none."""
    return Tree(home).read(account_trail(name))


def delete_account(home: Path, name: str) -> None:
    """Removes an account and all that is in it."""
    tree = Tree(home)
    with tree.locked():
        tree.read(account_trail(name))
        tree.remove(account_trail(name))


def drawer(home: Path, kind: str, account: str, name: str, must: bool = True) -> Path:
    """The directory of a share or container; Missing where it must be there and is not."""
    tree, trail = Tree(home), account_trail(account)
    tree.read(trail)
    place = tree.directory(trail) / kind / check_name(KINDS[kind], name)
    if must and not place.is_dir():
        there = drawers(home, kind, account)
        known = f"; there are: {', '.join(there)}" if there else ""
        raise Missing(f"{words(trail)} has no {KINDS[kind]} {name!r}{known}")
    return place


def drawers(home: Path, kind: str, account: str) -> list[str]:
    """The shares or containers of an account."""
    tree = Tree(home)
    tree.read(account_trail(account))
    return sorted(path.name for path in (tree.directory(account_trail(account)) / kind).iterdir())


def create_drawer(home: Path, kind: str, account: str, name: str) -> bool:
    """Makes a share or container; False when it is there."""
    with Tree(home).locked():
        place = drawer(home, kind, account, name, must=False)
        there = place.is_dir()
        place.mkdir(parents=True, exist_ok=True)
    return not there


def delete_drawer(home: Path, kind: str, account: str, name: str) -> bool:
    """Removes a share or container with all that is in it; False when there was none."""
    tree = Tree(home)
    with tree.locked():
        place = drawer(home, kind, account, name, must=False)
        there = place.is_dir()
        tree.discard(place)
    return there


def inside(root: Path, path: str) -> Path:
    """A path in a share or container; no word leads out of it."""
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path:
        raise UsageError(f"{path!r} is outside {root.name!r}; use a path inside it")
    place = root.joinpath(*parts)
    if not place.resolve().is_relative_to(root.resolve()):
        raise PetctlError(f"{path!r} is a link that points outside {root.name!r}; petctl does not follow it")
    return place
