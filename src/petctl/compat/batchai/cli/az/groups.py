"""az group, batchai group: create, show, list, exists, delete."""

from __future__ import annotations

from typing import Any

import click

from petctl.compat.batchai.cli import options
from petctl.compat.batchai.cli.base_command import NOTHING, background, confirm, leaf
from petctl.compat.batchai.cli.base_command import group as group_of_verbs

group = group_of_verbs("group", "Resource groups: what workspaces and storage accounts are in.")
name_option = click.option(
    "-n",
    "--name",
    "-g",
    "--resource-group",
    "name",
    required=True,
    metavar="NAME",
    help="The resource group.",
    shell_complete=options.complete("groups"),
)


def _row(found: Any) -> dict[str, Any]:
    state = found["properties"]["provisioningState"]
    return {"Name": found["name"], "Location": found["location"], "Status": state}


@leaf(group, "create", "az group create -n recipes -l eastus", row=_row)
@name_option
@options.location_option
@click.option("--tags", multiple=True, metavar="NAME=VALUE", help="Tags; several.")
def create(name: str, location: str, tags: tuple[str, ...]) -> object:
    """Make a resource group; one that is there stays as it is."""
    from petctl.compat.batchai.service import report
    from petctl.compat.batchai.service.resources import create_group

    pairs = {tag.partition("=")[0]: tag.partition("=")[2] for tag in tags}
    return report.group(name, create_group(options.home(), name, location, pairs))


@leaf(group, "show", "az group show -n recipes", row=_row)
@name_option
def show(name: str) -> object:
    """Show a resource group."""
    from petctl.compat.batchai.service import report
    from petctl.compat.batchai.service.resource_store import Tree
    from petctl.compat.batchai.service.resources import group_trail

    return report.group(name, Tree(options.home()).read(group_trail(name)))


@leaf(group, "list", "az group list -o table", row=_row)
def list_() -> object:
    """List the resource groups."""
    from petctl.compat.batchai.service import report
    from petctl.compat.batchai.service.resource_store import Tree
    from petctl.compat.batchai.service.resources import group_trail

    tree = Tree(options.home())
    return [report.group(name, tree.read(group_trail(name))) for name in tree.names((), "groups")]


@leaf(group, "exists", "az group exists -n recipes")
@name_option
def exists(name: str) -> object:
    """Say whether there is a resource group of this name."""
    from petctl.compat.batchai.service.resource_store import Tree
    from petctl.compat.batchai.service.resources import group_trail

    return Tree(options.home()).find(group_trail(name)) is not None


@leaf(group, "delete", "az group delete -n recipes -y")
@name_option
@options.yes_option
@options.no_wait_option
def delete(name: str, yes: bool, no_wait: bool) -> object:
    """Delete a resource group with its workspaces, jobs, clusters and storage accounts; jobs are ended first."""
    from petctl.compat.batchai.service.removal import delete_group
    from petctl.compat.batchai.service.resource_store import Tree
    from petctl.compat.batchai.service.resources import group_trail

    Tree(options.home()).read(group_trail(name))
    confirm(f"Delete resource group {name!r} with everything in it?", yes)
    if no_wait:
        background(["group", "delete", "-y", "-n", name])
    else:
        delete_group(options.home(), name)
    return NOTHING
