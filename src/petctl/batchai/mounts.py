"""Mounts that options name (--afs-name, --bfs-name, --nfs, --use-auto-storage), in the words of a settings file; and a
cluster's mounts as its nodes are told of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from petctl.batchai.names import Address, check_name, parse_id, resource_id
from petctl.batchai.resources import create_group
from petctl.batchai.storage import accounts, create_account, create_drawer, place_of, server_place
from petctl.errors import UsageError
from petctl.spec.problems import FieldError, Problem
from petctl.store.location import SHARE_HOST

AUTO_GROUP = "batchaiautostorage"
AUTO_SHARE, AUTO_CONTAINER = "batchaishare", "batchaicontainer"
AUTO_PREFIX = "bai"

Volumes = dict[str, list[Mapping[str, Any]]]


def wanted_mounts(home: Path, address: Address, words: Mapping[str, Any], account: str) -> Volumes:
    """What the options ask to be mounted: the lists of `mountVolumes`."""
    mounts: Volumes = {}
    if words.get("use_auto_storage"):
        own = _automatic_account(home)
        mounts["azureFileShares"] = [_share(own, AUTO_SHARE, "autoafs")]
        mounts["azureBlobFileSystems"] = [_container(own, AUTO_CONTAINER, "autobfs")]
    for option, collection, make in (
        ("afs", "azureFileShares", _share),
        ("bfs", "azureBlobFileSystems", _container),
    ):
        if words.get(f"{option}_name"):
            if not account:
                raise UsageError(
                    f"--{option}-name needs an account: --storage-account-name or AZURE_BATCHAI_STORAGE_ACCOUNT"
                )
            entry = make(account, words[f"{option}_name"], words.get(f"{option}_mount_path") or option)
            mounts.setdefault(collection, []).append(entry)
    if words.get("nfs"):
        server = words["nfs"]
        if not server.startswith("/"):
            server = resource_id(address.group, address.workspace, "fileservers", check_name("file server", server))
        entry = {"fileServer": {"id": server}, "relativeMountPath": words.get("nfs_mount_path") or "nfs"}
        mounts.setdefault("fileServers", []).append(entry)
    return mounts


def with_mounts(given: Mapping[str, Any], added: Volumes) -> dict[str, Any]:
    """`mountVolumes` of a file, and those of the options behind them."""
    mounts = dict(given)
    for collection, entries in added.items():
        mounts[collection] = [*(mounts.get(collection) or []), *entries]
    return mounts


def fleet_mounts(home: Path, volumes: Mapping[str, Any]) -> list[dict[str, str]]:
    """A cluster's `mountVolumes` as its nodes are told of them; everything that cannot be mounted here is named."""
    mounts: list[dict[str, str]] = []
    problems: list[Problem] = []
    for collection, entries in volumes.items():
        for number, entry in enumerate(entries or []):
            path = ("nodeSetup", "mountVolumes", collection, number)
            try:
                mounts.append({"path": _needed(entry, "relativeMountPath"), **_source(home, collection, entry)})
            except UsageError as error:
                problems.append(Problem(path, str(error)))
    if problems:
        raise FieldError(problems)
    return mounts


def _source(home: Path, collection: str, entry: Mapping[str, Any]) -> dict[str, str]:
    if collection == "unmanagedFileSystems":
        return {"command": _needed(entry, "mountCommand")}
    if collection == "fileServers":
        address = parse_id(str((entry.get("fileServer") or {}).get("id")), "fileservers")
        place = server_place(home, f"{address.group}/{address.workspace}", address.name)
        within = str(entry.get("sourceDirectory") or "").strip("/.")
        place = place / within if place and within else place
        what = f"file server {address.name!r}"
    elif collection == "azureFileShares":
        account, share = share_of(_needed(entry, "azureFileUrl"))
        place, what = place_of(home, "file", account, share), f"share {share!r} of account {account!r}"
    else:
        account, container = _needed(entry, "accountName"), _needed(entry, "containerName")
        place, what = place_of(home, "blob", account, container), f"container {container!r} of account {account!r}"
    if place is None:
        raise UsageError(f"there is no {what} on this machine; make it first, with batchai storage or file-server")
    return {"directory": str(place)}


def share_of(url: str) -> tuple[str, str]:
    """Account and share in https://ACCOUNT.file.core.windows.net/SHARE."""
    host, _, share = url.partition("://")[2].partition("/")
    if not host.endswith(SHARE_HOST) or not share.strip("/"):
        raise UsageError(f"{url!r} is no share; write https://ACCOUNT{SHARE_HOST}/SHARE")
    return host.removesuffix(SHARE_HOST), share.strip("/")


def _needed(entry: Mapping[str, Any], name: str) -> str:
    if not isinstance(entry, Mapping) or not entry.get(name):
        raise UsageError(f"needs {name}")
    return str(entry[name])


def _share(account: str, share: str, path: str) -> dict[str, Any]:
    return {
        "accountName": account,
        "azureFileUrl": f"https://{account}{SHARE_HOST}/{share}",
        "relativeMountPath": path,
    }


def _container(account: str, container: str, path: str) -> dict[str, Any]:
    return {"accountName": account, "containerName": container, "relativeMountPath": path}


def _automatic_account(home: Path) -> str:
    """The account of --use-auto-storage, made with the first use."""
    create_group(home, AUTO_GROUP, "", {})
    own = [name for name in accounts(home, AUTO_GROUP) if name.startswith(AUTO_PREFIX)]
    name = own[0] if own else f"{AUTO_PREFIX}{secrets.token_hex(8)}"
    create_account(home, name, AUTO_GROUP, "", "Standard_LRS", "Storage")
    create_drawer(home, "file", name, AUTO_SHARE)
    create_drawer(home, "blob", name, AUTO_CONTAINER)
    return name
