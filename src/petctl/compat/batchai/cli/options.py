"""Options that verbs share, and how -g, -w, -e and a name, or --ids, become the address of a resource.

Whoever names no group, workspace or experiment means `default`; AZURE_DEFAULTS_GROUP, AZURE_DEFAULTS_WORKSPACE and
AZURE_DEFAULTS_EXPERIMENT say otherwise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import click

from petctl.compat.batchai.cli.base_command import NOTHING, Function, IdleOption, Verbs, leaf, option
from petctl.compat.batchai.service.names import DEFAULT, KINDS, Address, parse_id
from petctl.compat.batchai.service.resource_store import Trail, Tree
from petctl.compat.batchai.service.resources import trail_of

if TYPE_CHECKING:
    from pathlib import Path


Decorator = Callable[[Function], Function]


def home() -> Path:
    """Where petctl keeps its state."""
    from petctl.home import petctl_home

    return petctl_home()


def _outer(flag: str, word: str, name: str) -> Decorator:
    """What a resource is in: named, else by the environment, else the default."""
    return option(
        f"{flag}, --{word} {name} NAME",
        f"The {word.replace('-', ' ')}; else default.",
        envvar=f"AZURE_DEFAULTS_{name.upper()}",
        names=f"{name}s",
    )


group_option = _outer("-g", "resource-group", "group")
workspace_option = _outer("-w", "workspace", "workspace")
experiment_option = _outer("-e", "experiment", "experiment")
_OUTER = (group_option, workspace_option, experiment_option)
yes_option = option("-y, --yes", "Do not ask.")
no_wait_option = option("--no-wait", "Do not wait for it to be done.")
location_option = option("-l, --location REGION", "Kept; everything is here.", cls=IdleOption, default="")
expiry_option = option("--expiry MINUTES", "How long links into stores work.", type=int, default=60, show_default=True)
path_option = option("-p, --path PATH", "A folder inside; else the directory.", default=".")


def together(*options: Decorator) -> Decorator:
    """Several options as one, in this order."""

    def decorate(function: Function) -> Function:
        for one in reversed(options):
            function = one(function)
        return function

    return decorate


_FLAGS = {"workspaces": "-n, --name, -w, --workspace", "experiments": "-n, --name, -e, --experiment"}
_INSIDE = {"jobs": "-j, --job", "clusters": "-c, --cluster"}  # of their files and nodes


def verb(parent: Verbs, *lines: str, ids: bool = False, given: bool = False) -> Callable[[Function], Any]:
    """A verb about one resource, of the group's kind: -g, -w, -e and the name's own flags become `address` (and
    `given`: the same without defaults). With `ids` also --ids, and the function is called once for each."""
    kind = next(name for name, known in KINDS.items() if known.verb == parent.words.split()[1])
    flags = _INSIDE[kind] if parent.name in ("file", "node") else _FLAGS.get(kind, "-n, --name")
    name = option(f"{flags} name NAME", f"The {kind.removesuffix('s')}.", required=not ids, names=kind)
    more = [option("--ids ID...", "Ids instead of names; several.", multiple=True)] if ids else []
    options = [*_OUTER[: len(KINDS[kind].path)], name, *more]

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def run(group: str | None, name: str | None, **rest: Any) -> Any:
            spoken = Address(group or "", rest.pop("workspace", None) or "", rest.pop("experiment", None) or "")
            spoken = spoken._replace(name=name or "")
            several = rest.pop("ids", ())
            if several:
                answers = [function(address=parse_id(text, kind), **rest) for text in several]
                found = [answer for answer in answers if answer is not NOTHING]
                return found if len(found) > 1 else found[0] if found else NOTHING
            if not name:
                raise click.UsageError(f"no name given: use {flags.split(', ')[1]}, or --ids.")
            if given:
                rest["given"] = spoken
            return function(address=filled(kind, spoken), **rest)

        return cast(Function, leaf(parent, *lines)(together(*options)(run)))

    return decorate


def surrounded(kind: str) -> Decorator:
    """-g, -w, -e as far as such resources have them -> `near`: the addresses to list what is in. Workspaces of no
    group in particular are those of all."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def run(group: str | None, workspace: str = "", experiment: str = "", **rest: Any) -> Any:
            if kind == "workspaces" and not group:
                near = [Address(name) for name in Tree(home()).names((), "groups")]
            else:
                near = [Address(group or DEFAULT, workspace or DEFAULT, experiment or DEFAULT)]
            return function(near=near, **rest)

        return together(*_OUTER[: len(KINDS[kind].path)])(run)

    return decorate


def record(kind: str, address: Address) -> tuple[Trail, dict[str, Any]]:
    """How one gets to a resource, and what is written down of it; Missing where there is none."""
    trail = trail_of(kind, address)
    return trail, Tree(home()).read(trail)


def filled(kind: str, spoken: Address) -> Address:
    """The address with defaults in the place of what was not said."""
    address = spoken._replace(group=spoken.group or DEFAULT, workspace=spoken.workspace or DEFAULT)
    if kind == "workspaces":
        return address._replace(workspace=spoken.name)
    if kind == "experiments":
        return address._replace(experiment=spoken.name)
    return address._replace(experiment=spoken.experiment or DEFAULT) if kind == "jobs" else address


machine_options = together(
    option("-s, --vm-size SIZE", "Kept; machines are what they are."),
    option("-u, --user-name NAME", "Kept; no login to nodes is needed."),
    option("-k, --ssh-key KEY", "Kept: a public key, or a file of one."),
    option("-p, --password TEXT", "Ignored; no login to nodes is needed."),
    option("--generate-ssh-keys", "Accepted; no keys are needed."),
    option("--subnet ID", "Kept; the network is this machine's."),
)
storage_options = together(
    option(
        "--storage-account-name account NAME",
        "Fills <AZURE_BATCHAI_STORAGE_ACCOUNT>; whose shares and containers are meant.",
        variable="AZURE_BATCHAI_STORAGE_ACCOUNT",
        names="storage",
    ),
    option("--storage-account-key key KEY", "Fills <AZURE_BATCHAI_STORAGE_KEY>.", variable="AZURE_BATCHAI_STORAGE_KEY"),
    option("--afs-name SHARE", "Mount this share as well."),
    option("--afs-mount-path PATH", "Where, below the mounts.  [default: afs]"),
    option("--bfs-name CONTAINER", "Mount this container as well."),
    option("--bfs-mount-path PATH", "Where, below the mounts.  [default: bfs]"),
    option("--nfs SERVER", "Mount this file server as well: its name or id."),
    option("--nfs-mount-path PATH", "Where, below the mounts.  [default: nfs]"),
)
