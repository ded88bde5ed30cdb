"""batchai workspace: create, show, list, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from petctl.compat.batchai.cli import options
from petctl.compat.batchai.cli.base_command import group, leaf
from petctl.compat.batchai.cli.crud import Resource, add_usual_verbs

if TYPE_CHECKING:
    from petctl.compat.batchai.service.names import Address

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
@options.addressed("workspaces", *NAME)
@options.location_option
def create(address: Address, location: str) -> object:
    """Make a workspace in a group that is there."""
    from petctl.compat.batchai.service import report
    from petctl.compat.batchai.service.resources import create_workspace

    return report.workspace(address, create_workspace(options.home(), address, location))


def _shown(address: Address) -> object:
    from petctl.compat.batchai.service import report

    return report.workspace(address, options.record("workspaces", address)[1])


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
