"""Names that resources may have, and their ids as Azure writes them. Text in, text out; no file is touched."""

from __future__ import annotations

import re
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


class Kind(NamedTuple):
    """One kind of resources, in the words of people and of the command line."""

    noun: str
    verb: str
    path: tuple[tuple[str, str], ...] = ()  # from its group down: collection, field of an address
    flag: str = ""  # by which what is in one names it


_SPACE = ("workspaces", "workspace")
KINDS = {
    "groups": Kind("resource group", "group", (), "-g"),
    "workspaces": Kind("workspace", "workspace", (_SPACE,), "-w"),
    "clusters": Kind("cluster", "cluster", (_SPACE, ("clusters", "name"))),
    "fileservers": Kind("file server", "file-server", (_SPACE, ("fileservers", "name"))),
    "experiments": Kind("experiment", "experiment", (_SPACE, ("experiments", "experiment")), "-e"),
    "jobs": Kind("job", "job", (_SPACE, ("experiments", "experiment"), ("jobs", "name"))),
    "storage": Kind("storage account", "storage account"),
}


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
    path = (part for collection, field in KINDS[kind].path[1:] for part in (collection, getattr(address, field)))
    return resource_id(address.group, address.workspace, *path)


def account_id(group: str, account: str) -> str:
    """The id of a storage account."""
    return f"{group_id(group)}/providers/{STORAGE}/storageAccounts/{account}"


def parse_id(text: str, *kinds: str) -> Address:
    """The address in an id of one of these kinds."""
    found = _ID.fullmatch(text)
    if found and found["workspace"]:
        collections, names = found["rest"].split("/")[1::2], found["rest"].split("/")[2::2]
        for kind in kinds:
            path = KINDS[kind].path[1:]
            if len(names) == len(path) and [word.lower() for word in collections] == [word for word, _ in path]:
                fields = dict(zip((field for _, field in path), names, strict=True))
                address = Address(found["group"], found["workspace"])._replace(**fields)
                return address._replace(name=(names or [address.workspace])[-1])
    example = id_of(kinds[-1], Address("GROUP", "WORKSPACE", "EXPERIMENT", "NAME"))
    raise UsageError(f"{text!r} is not an id of {' or '.join(kinds)}; one looks like {example}")
