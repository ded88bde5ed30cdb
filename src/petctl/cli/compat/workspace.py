"""batchai workspace: create, show, list, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from petctl.cli.compat import words
from petctl.cli.compat.frame import group, leaf
from petctl.cli.compat.usual import Resource, add_usual_verbs

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
    """Make a workspace in a group that is there."""
    from petctl.batchai import reported
    from petctl.batchai.resources import create_workspace

    return reported.workspace(address, create_workspace(words.home(), address, location))


def _shown(address: Address) -> object:
    from petctl.batchai import reported

    return reported.workspace(address, words.record("workspaces", address)[1])


add_usual_verbs(
    workspace,
    Resource(
        "workspaces",
        "workspace",
        NAME,
        _row,
        _shown,
        place="-g recipes",
        name="lab",
        along=" with everything in it, its jobs first",
    ),
)
