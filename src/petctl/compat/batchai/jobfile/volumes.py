"""The four kinds of mounts of a job file: checked, and looked up by a resolver that is handed in.

    azureFileShares         a share of a storage account    -> its directory
    azureBlobFileSystems    a container of one              -> its directory, or a location in the real store
    fileServers             a file server                   -> its directory, or one inside it
    unmanagedFileSystems    a command that the nodes run

Nothing is mounted here, and nothing is known of where accounts or file servers are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Union
from urllib.parse import SplitResult, unquote, urlsplit

from petctl.compat.batchai.jobfile.fields import inner_path
from petctl.job.spec.problems import Problems, shown, wrong

_ACCOUNT = re.compile(r"[a-z0-9]{3,24}", re.ASCII)
_ROOT = re.compile(r"\$(?:AZ_BATCHAI_JOB_MOUNT_ROOT|\{AZ_BATCHAI_JOB_MOUNT_ROOT\})(?:/+(?P<below>.*))?", re.ASCII)


class Volume(NamedTuple):
    """What a resolver is asked for."""

    kind: str  # "file": a share, "blob": a container, "nfs": a file server
    account: str  # none for a file server
    name: str  # of the share or container; the id of a file server
    said: str  # as people know it: an address, or the id
    below: str = ""  # a directory inside it
    key: str = ""  # of the account, where the file has it


class Found(NamedTuple):
    """Where a volume is: a directory, or a location in an object store."""

    directory: str
    here: bool = True  # on this machine; False: at this path on every node
    location: str = ""


Resolver = Callable[[Volume], Union[Found, str]]  # a text: why it cannot be had


def mounts_of(volumes: Mapping[str, Sequence[Mapping[str, Any]]], resolve: Resolver) -> list[dict[str, Any]]:
    """What the nodes have to do for each; FieldError with every one that cannot be had."""
    mounts: list[dict[str, Any]] = []
    problems = Problems()
    for kind, position, entry in _entries(volumes):
        with problems.at(kind, position):
            mount = _mount(kind, entry, resolve)
            _check_place(mount["path"], [other["path"] for other in mounts])
            mounts.append(mount)
    problems.check()
    return mounts


def unmounted(path: str, volumes: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Why this path cannot be one of the job's mounts, though it is named as one; empty: nothing is wrong."""
    match = _ROOT.match(path)
    if match is None:
        return ""
    places = [entry["relativeMountPath"] for _, _, entry in _entries(volumes)]
    below = (match["below"] or "").rstrip("/")
    if any(below == place or below.startswith(f"{place}/") for place in places):
        return ""
    there = f"there are: {', '.join(places)}" if places else "the job has no mountVolumes"
    return f"nothing is mounted at $AZ_BATCHAI_JOB_MOUNT_ROOT/{below}; {there}"


def account_of(share: Mapping[str, Any]) -> str:
    """The storage account of a share: its own word, or the first of the address' host."""
    return str(share.get("accountName") or (_split(share["azureFileUrl"]).hostname or "").partition(".")[0])


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # brackets that close nothing
        return urlsplit("")


def _entries(volumes: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    for kind, entries in volumes.items():
        for position, entry in enumerate(entries):
            yield kind, position, entry


def _mount(kind: str, entry: Mapping[str, Any], resolve: Resolver) -> dict[str, Any]:
    path = entry["relativeMountPath"]
    if kind == "unmanagedFileSystems":
        return {"path": path, "command": entry["mountCommand"]}
    volume, field = _VOLUMES[kind](entry)
    found = resolve(volume)
    if isinstance(found, str):
        raise wrong(f"cannot be mounted: {found}", field)
    if found.location:
        return {"path": path, "location": found.location, "said": volume.said}
    return {"path": path, "directory": found.directory, "here": found.here, "said": volume.said}


def _share(entry: Mapping[str, Any]) -> tuple[Volume, str]:
    url = entry["azureFileUrl"]
    address = _split(url)
    share, _, below = unquote(address.path).strip("/").partition("/")
    account = account_of(entry)
    if address.scheme not in ("http", "https") or not address.hostname or not share:
        raise wrong(
            f"expected https://ACCOUNT.file.core.windows.net/SHARE, got {shown(url)}",
            "azureFileUrl",
        )
    own = address.hostname.partition(".")[0]
    if ".file." in address.hostname and own != account:
        raise wrong(f"the address is one of the account {own!r}, not of {account!r}", "accountName")
    _check_account(account, "accountName" if entry.get("accountName") else "azureFileUrl")
    return Volume("file", account, share, url, inner_path(below) if below else ""), "azureFileUrl"


def _container(entry: Mapping[str, Any]) -> tuple[Volume, str]:
    account, name = entry["accountName"], entry["containerName"]
    _check_account(account, "accountName")
    said, key = f"https://{account}.blob.core.windows.net/{name}", entry.get("credentials", {}).get("accountKey", "")
    return Volume("blob", account, name, said, key=key), "containerName"


def _server(entry: Mapping[str, Any]) -> tuple[Volume, str]:
    identity, source = entry["fileServer"]["id"], entry.get("sourceDirectory", "").strip("/")
    problems, below = Problems(), ""
    with problems.at("sourceDirectory"):
        below = inner_path(source) if source not in ("", ".") else ""
    problems.check()
    return Volume("nfs", "", identity, identity, below), "fileServer"


_VOLUMES: dict[str, Callable[[Mapping[str, Any]], tuple[Volume, str]]] = {
    "azureFileShares": _share,
    "azureBlobFileSystems": _container,
    "fileServers": _server,
}


def _check_account(account: str, field: str) -> None:
    if not _ACCOUNT.fullmatch(account):
        raise wrong(f"{shown(account)} is not a storage account: use 3 to 24 lower-case letters and digits", field)


def _check_place(path: str, others: Sequence[str]) -> None:
    for other in others:
        if path == other:
            raise wrong(f"another mount is at {path}", "relativeMountPath")
        if path.startswith(f"{other}/") or other.startswith(f"{path}/"):
            raise wrong(f"lies in another mount's way, {other}; choose separate paths", "relativeMountPath")
