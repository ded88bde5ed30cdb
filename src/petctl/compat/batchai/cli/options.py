"""Options that verbs share, and how -g, -w, -e and a name, or --ids, become the address of a resource.

Whoever names no group, workspace or experiment means `default`; AZURE_DEFAULTS_GROUP, AZURE_DEFAULTS_WORKSPACE and
AZURE_DEFAULTS_EXPERIMENT say otherwise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from petctl.compat.batchai.cli.base_command import NOTHING, Function, IdleOption
from petctl.compat.batchai.service.names import DEFAULT, KINDS, Address, parse_id
from petctl.compat.batchai.service.resource_store import Trail, Tree
from petctl.compat.batchai.service.resources import trail_of

if TYPE_CHECKING:
    from pathlib import Path

    from click.shell_completion import CompletionItem


Decorator = Callable[[Function], Function]


def home() -> Path:
    """Where petctl keeps its state."""
    from petctl.home import petctl_home

    return petctl_home()


def complete(kind: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Names of resources for the shell; silent on any error: the user is typing."""

    def names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        try:
            group, workspace, experiment = (
                ctx.params.get(name) or DEFAULT for name in ("group", "workspace", "experiment")
            )
            trail = trail_of("jobs", Address(group, workspace, experiment, "-"))[: len(KINDS[kind].path)]
            found = Tree(home()).names(trail, kind)
        except Exception:
            return []
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]

    return names


def _outer(flag: str, word: str, name: str) -> Decorator:
    """What a resource is in: named, else by the environment, else the default."""
    return click.option(
        flag,
        f"--{word}",
        name,
        metavar="NAME",
        envvar=f"AZURE_DEFAULTS_{name.upper()}",
        help=f"The {word.replace('-', ' ')}; else default.",
        shell_complete=complete(f"{name}s"),
    )


group_option = _outer("-g", "resource-group", "group")
workspace_option = _outer("-w", "workspace", "workspace")
experiment_option = _outer("-e", "experiment", "experiment")
_OUTER = (group_option, workspace_option, experiment_option)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
no_wait_option = click.option("--no-wait", is_flag=True, help="Do not wait for it to be done.")
location_option = click.option(
    "-l", "--location", cls=IdleOption, metavar="REGION", default="", help="Kept; everything is here."
)
expiry_option = click.option(
    "--expiry", type=int, default=60, show_default=True, metavar="MINUTES", help="How long links into stores work."
)
path_option = click.option("-p", "--path", default=".", metavar="PATH", help="A folder inside; else the directory.")


def together(*options: Decorator) -> Decorator:
    """Several options as one, in this order."""

    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def addressed(kind: str, *flags: str, ids: bool = False, given: bool = False) -> Decorator:
    """-g, -w, -e and the name's own flags -> `address` (and `given`: the same without defaults). With `ids` also
    --ids, and the function is called once for each."""
    options = [*_OUTER[: len(KINDS[kind].path)]]
    name = click.option(
        *flags,
        "name",
        metavar="NAME",
        required=not ids,
        help=f"The {kind.removesuffix('s')}.",
        shell_complete=complete(kind),
    )
    more = click.option("--ids", multiple=True, metavar="ID...", help="Ids instead of names; several.")
    options += [name, more] if ids else [name]

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
                raise click.UsageError(f"no name given: use {flags[1]}, or --ids.")
            if given:
                rest["given"] = spoken
            return function(address=filled(kind, spoken), **rest)

        return together(*options)(run)

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
    click.option("-s", "--vm-size", metavar="SIZE", help="Kept; machines are what they are."),
    click.option("-u", "--user-name", metavar="NAME", help="Kept; no login to nodes is needed."),
    click.option("-k", "--ssh-key", metavar="KEY", help="Kept: a public key, or a file of one."),
    click.option("-p", "--password", metavar="TEXT", help="Ignored; no login to nodes is needed."),
    click.option("--generate-ssh-keys", is_flag=True, help="Accepted; no keys are needed."),
    click.option("--subnet", metavar="ID", help="Kept; the network is this machine's."),
)
storage_options = together(
    click.option(
        "--storage-account-name",
        "account",
        metavar="NAME",
        default="",
        envvar="AZURE_BATCHAI_STORAGE_ACCOUNT",
        help="Fills <AZURE_BATCHAI_STORAGE_ACCOUNT>; whose shares and containers are meant.",
        shell_complete=complete("storage"),
    ),
    click.option(
        "--storage-account-key",
        "key",
        metavar="KEY",
        default="",
        envvar="AZURE_BATCHAI_STORAGE_KEY",
        help="Fills <AZURE_BATCHAI_STORAGE_KEY>.",
    ),
    click.option("--afs-name", metavar="SHARE", help="Mount this share as well."),
    click.option("--afs-mount-path", metavar="PATH", help="Where, below the mounts.  [default: afs]"),
    click.option("--bfs-name", metavar="CONTAINER", help="Mount this container as well."),
    click.option("--bfs-mount-path", metavar="PATH", help="Where, below the mounts.  [default: bfs]"),
    click.option("--nfs", metavar="SERVER", help="Mount this file server as well: its name or id."),
    click.option("--nfs-mount-path", metavar="PATH", help="Where, below the mounts.  [default: nfs]"),
)
