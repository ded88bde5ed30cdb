"""az group, batchai group: create, show, list, exists, delete."""

from __future__ import annotations

from typing import Any

import click

from petctl.cli.compat import words
from petctl.cli.compat.frame import NOTHING, background, confirm, leaf
from petctl.cli.compat.frame import group as group_of_verbs

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
    shell_complete=words.complete("groups"),
)


def _row(found: Any) -> dict[str, Any]:
    state = found["properties"]["provisioningState"]
    return {"Name": found["name"], "Location": found["location"], "Status": state}


@leaf(group, "create", "az group create -n recipes -l eastus", row=_row)
@name_option
@words.location_option
@click.option("--tags", multiple=True, metavar="NAME=VALUE", help="Tags; several.")
def create(name: str, location: str, tags: tuple[str, ...]) -> object:
    """Make a resource group; one that is there stays as it is."""
    from petctl.batchai import reported
    from petctl.batchai.resources import create_group

    pairs = {tag.partition("=")[0]: tag.partition("=")[2] for tag in tags}
    return reported.group(name, create_group(words.home(), name, location, pairs))


@leaf(group, "show", "az group show -n recipes", row=_row)
@name_option
def show(name: str) -> object:
    """Show a resource group."""
    from petctl.batchai import reported
    from petctl.batchai.resources import group_trail
    from petctl.batchai.tree import Tree

    return reported.group(name, Tree(words.home()).read(group_trail(name)))


@leaf(group, "list", "az group list -o table", row=_row)
def list_() -> object:
    """List the resource groups."""
    from petctl.batchai import reported
    from petctl.batchai.resources import group_trail
    from petctl.batchai.tree import Tree

    tree = Tree(words.home())
    return [reported.group(name, tree.read(group_trail(name))) for name in tree.names((), "groups")]


@leaf(group, "exists", "az group exists -n recipes")
@name_option
def exists(name: str) -> object:
    """Say whether there is a resource group of this name."""
    from petctl.batchai.resources import group_trail
    from petctl.batchai.tree import Tree

    return Tree(words.home()).find(group_trail(name)) is not None


@leaf(group, "delete", "az group delete -n recipes -y")
@name_option
@words.yes_option
@words.no_wait_option
def delete(name: str, yes: bool, no_wait: bool) -> object:
    """Delete a resource group with its workspaces, jobs, clusters and storage accounts; jobs are ended first."""
    from petctl.batchai.removal import delete_group
    from petctl.batchai.resources import group_trail
    from petctl.batchai.tree import Tree

    Tree(words.home()).read(group_trail(name))
    confirm(f"Delete resource group {name!r} with everything in it?", yes)
    if no_wait:
        background(["group", "delete", "-y", "-n", name])
    else:
        delete_group(words.home(), name)
    return NOTHING
