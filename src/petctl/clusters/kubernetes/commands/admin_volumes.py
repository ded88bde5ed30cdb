"""A file system that exists, as the objects with which a cluster knows it: for an administrator to apply, since they
belong to the whole cluster.

    StorageClass NAME         by which a claim names it; nothing is provisioned
    PersistentVolume NAME     where it is

One volume is for one claim; another namespace needs another volume for the same file system. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from petctl.errors import UsageError

_EFS = re.compile(r"fs-[0-9a-f]{8,40}(?::[^:\s]*(?::fsap-[0-9a-f]{8,40})?)?")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def volume_objects(kind: str, name: str, where: str, size: str, namespace: str, secret: str) -> list[dict[str, Any]]:
    """Class and volume of a file system; `secret`: of an Azure share, with its account's name and key."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid volume name: use lower-case letters, digits and '-', at most 63")
    if secret and kind != "azure-files":
        raise UsageError(f"--secret is for azure-files; {kind} needs none")
    driver, source, options = _SOURCES[kind](name, where, namespace, secret)
    spec: dict[str, Any] = {
        "capacity": {"storage": size},  # a claim must ask for no more; nobody keeps to it
        "volumeMode": "Filesystem",
        "accessModes": ["ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": name,
        **({"mountOptions": list(options)} if options else {}),
        **source,
    }
    if namespace:
        spec["claimRef"] = {"namespace": namespace, "name": name}
    return [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": driver,
            "reclaimPolicy": "Retain",
        },
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec},
    ]


_Source = tuple[str, dict[str, Any], Sequence[str]]  # provisioner, source of the volume, mount options


def _efs(name: str, where: str, namespace: str, secret: str) -> _Source:
    if not _EFS.fullmatch(where):
        raise UsageError(f"{where!r} is not the id of an EFS file system, such as fs-0123456789abcdef0 or fs-...:/path")
    return "efs.csi.aws.com", {"csi": {"driver": "efs.csi.aws.com", "volumeHandle": where}}, ()


def _azure_files(name: str, where: str, namespace: str, secret: str) -> _Source:
    account, slash, share = where.partition("/")
    if not account or not slash or not share or "/" in share:
        raise UsageError(f"{where!r} is not a share of Azure Files, such as ACCOUNT/SHARE")
    if not secret or not namespace:
        raise UsageError(
            "a share of Azure Files needs --secret NAME and --namespace NAMESPACE: a Secret there with "
            "azurestorageaccountname and azurestorageaccountkey"
        )
    found = {
        "driver": "file.csi.azure.com",
        "volumeHandle": f"{account}_{share}_{name}",
        "volumeAttributes": {"storageAccount": account, "shareName": share},
        "nodeStageSecretRef": {"name": secret, "namespace": namespace},
    }
    # Without these, every file is root's alone.
    return "file.csi.azure.com", {"csi": found}, ("dir_mode=0777", "file_mode=0777", "mfsymlinks", "nobrl")


def _nfs(name: str, where: str, namespace: str, secret: str) -> _Source:
    server, colon, path = where.rpartition(":")
    if not colon or not server or not path.startswith("/"):
        raise UsageError(f"{where!r} is not an NFS export, such as SERVER:/PATH")
    return "kubernetes.io/no-provisioner", {"nfs": {"server": server, "path": path}}, ()


_SOURCES: dict[str, Callable[[str, str, str, str], _Source]] = {"efs": _efs, "azure-files": _azure_files, "nfs": _nfs}
