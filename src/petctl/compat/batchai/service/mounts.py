"""Mounts that options name (--afs-name, --bfs-name, --nfs, --use-auto-storage), in the words of a settings file; and a
cluster's mounts as its nodes are told of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from petctl.compat.batchai.jobfile import Resolver, mounts_of
from petctl.compat.batchai.service.names import Address, check_name, resource_id
from petctl.compat.batchai.service.resources import create_group
from petctl.compat.batchai.service.storage import accounts, create_account, create_drawer
from petctl.errors import UsageError
from petctl.job.spec.problems import FieldError
from petctl.storage.stores.location import SHARE_HOST

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


def fleet_mounts(volumes: Mapping[str, Any], resolve: Resolver) -> list[dict[str, str]]:
    """A cluster's `mountVolumes` as its nodes are told of them; everything that cannot be mounted is named."""
    try:
        found = mounts_of(volumes, resolve)
    except FieldError as error:
        raise FieldError(problem.under("nodeSetup", "mountVolumes") for problem in error.problems) from None
    remote = [mount["said"] for mount in found if "location" in mount]
    if remote:
        raise UsageError(
            f"{remote[0]} is in a real account, and clusters mount directories; name it in the job files, whose nodes "
            "get a copy of it, or a directory where it is mounted in petctl.yaml (mounts)"
        )
    return [{name: mount[name] for name in ("path", "directory", "command") if name in mount} for mount in found]


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
