"""batchai workspace: create, show, list, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from petctl.cli.compat import words
from petctl.cli.compat.frame import NOTHING, background, confirm, group, leaf

if TYPE_CHECKING:
    from petctl.batchai.names import Address

NAME = ("-n", "--name", "-w", "--workspace")
workspace = group("workspace", "Workspaces: what clusters, file servers and experiments are in.")


def _row(found: Any) -> dict[str, Any]:
    return {
        "Name": found["name"],
        "Resource Group": found["resourceGroup"],
        "Location": found["location"],
        "State": found["provisioningState"],
    }


@leaf(workspace, "create", "batchai workspace create -g recipes -n lab -l eastus", row=_row)
@words.addressed("workspaces", *NAME)
@words.location_option
def create(address: Address, location: str) -> object:
    """Make a workspace; its group is made where it is missing."""
    from petctl.batchai import reported
    from petctl.batchai.resources import create_workspace

    return reported.workspace(address, create_workspace(words.home(), address, location))


@leaf(workspace, "show", "batchai workspace show -g recipes -n lab", row=_row)
@words.addressed("workspaces", *NAME, ids=True)
def show(address: Address) -> object:
    """Show a workspace."""
    from petctl.batchai import reported
    from petctl.batchai.resources import trail_of
    from petctl.batchai.tree import Tree

    return reported.workspace(address, Tree(words.home()).read(trail_of("workspaces", address)))


@leaf(workspace, "list", "batchai workspace list", "batchai workspace list -g recipes -o table", row=_row)
@words.group_option
def list_(group: str | None) -> object:
    """List workspaces, of all groups or of one."""
    from petctl.batchai import reported
    from petctl.batchai.names import Address
    from petctl.batchai.resources import group_trail, trail_of
    from petctl.batchai.tree import Tree

    tree = Tree(words.home())
    if group:
        tree.read(group_trail(group))
    places = [
        Address(near, name)
        for near in ([group] if group else tree.names((), "groups"))
        for name in tree.names(group_trail(near), "workspaces")
    ]
    return [reported.workspace(place, tree.read(trail_of("workspaces", place))) for place in places]


@leaf(workspace, "delete", "batchai workspace delete -g recipes -n lab -y")
@words.addressed("workspaces", *NAME, ids=True)
@words.yes_option
@words.no_wait_option
def delete(address: Address, yes: bool, no_wait: bool) -> object:
    """Delete a workspace with everything in it; its jobs are ended first."""
    from petctl.batchai.removal import delete_workspace
    from petctl.batchai.resources import trail_of
    from petctl.batchai.tree import Tree

    Tree(words.home()).read(trail_of("workspaces", address))
    confirm(f"Delete workspace {address.workspace!r} with everything in it?", yes)
    if no_wait:
        background(["workspace", "delete", "-y", "-g", address.group, "-n", address.workspace])
    else:
        delete_workspace(words.home(), address)
    return NOTHING
