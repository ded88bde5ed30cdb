"""Names that resources may have, and their ids as Azure writes them. Text in, text out; no file is touched."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from petctl.errors import UsageError

SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
"""There is none; ids and paths have a place for one."""
DEFAULT = "default"
"""The group, workspace and experiment of whoever names none."""
BATCHAI = "Microsoft.BatchAI"
STORAGE = "Microsoft.Storage"

_DRAWER = re.compile(r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_RULES = {
    "group": (re.compile(r"[A-Za-z0-9_.()-]{0,89}[A-Za-z0-9_()-]"), "1 to 90 letters, digits and - _ . ( ), no . last"),
    "account": (re.compile(r"[a-z0-9]{3,24}"), "3 to 24 lower-case letters and digits"),
    "share": (_DRAWER, "3 to 63 lower-case letters, digits and single -"),
    "container": (_DRAWER, "3 to 63 lower-case letters, digits and single -"),
}
_USUAL = (re.compile(r"[A-Za-z0-9_-]{1,64}"), "1 to 64 letters, digits, - and _")
_ID = re.compile(
    r"/subscriptions/[^/]+/resourceGroups/(?P<group>[^/]+)(/providers/[^/]+/workspaces/(?P<workspace>[^/]+)(?P<rest>(/[^/]+)*))?/?",
    re.IGNORECASE,
)


class Address(NamedTuple):
    """Where a resource is; what it does not have is empty."""

    group: str
    workspace: str = ""
    experiment: str = ""
    name: str = ""


def check_name(kind: str, name: str) -> str:
    """The name, if Azure would take it for such a thing; every name is also one of a directory."""
    rule, words = _RULES.get(kind, _USUAL)
    if not rule.fullmatch(name) or set(name) == {"."}:
        raise UsageError(f"{name!r} cannot be the name of a {kind}: {words}")
    return name


def group_id(group: str) -> str:
    """The id of a resource group."""
    return f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{group}"


def resource_id(group: str, workspace: str, *path: str) -> str:
    """The id of a workspace, or of what is in it: resource_id(G, W, "experiments", E, "jobs", J)."""
    return "/".join([group_id(group), "providers", BATCHAI, "workspaces", workspace, *path])


def id_of(kind: str, address: Address) -> str:
    """The id of a resource of a workspace, or of the workspace itself: the opposite of `parse_id`."""
    path = {
        "workspaces": (),
        "experiments": ("experiments", address.experiment),
        "jobs": ("experiments", address.experiment, "jobs", address.name),
    }.get(kind, (kind, address.name))
    return resource_id(address.group, address.workspace, *path)


def account_id(group: str, account: str) -> str:
    """The id of a storage account."""
    return f"{group_id(group)}/providers/{STORAGE}/storageAccounts/{account}"


def parse_id(text: str, *kinds: str) -> Address:
    """The address in an id of one of these kinds: "workspaces", "clusters", "experiments", "jobs", "fileservers"."""
    found = _ID.fullmatch(text)
    address = found and found["workspace"] and _address(found["group"], found["workspace"], found["rest"], kinds)
    if not address:
        example = resource_id("GROUP", "WORKSPACE", *(part for kind in kinds[-1:] for part in _path(kind)))
        raise UsageError(f"{text!r} is not an id of {' or '.join(kinds)}; one looks like {example}")
    return address


def _address(group: str, workspace: str, rest: str, kinds: Sequence[str]) -> Address | None:
    match [part for part in rest.split("/") if part]:
        case [] if "workspaces" in kinds:
            return Address(group, workspace, name=workspace)
        case [kind, name] if kind.lower() in kinds and kind.lower() != "jobs":
            return Address(group, workspace, name if kind.lower() == "experiments" else "", name)
        case [parent, experiment, kind, name] if parent.lower() == "experiments" and kind.lower() == "jobs" in kinds:
            return Address(group, workspace, experiment, name)
    return None


def _path(kind: str) -> tuple[str, ...]:
    return {"workspaces": (), "jobs": ("experiments", "EXPERIMENT", "jobs", "JOB")}.get(kind, (kind, "NAME"))
