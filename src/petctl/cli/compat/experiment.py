"""batchai experiment: create, show, list, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from petctl.cli.compat import words
from petctl.cli.compat.frame import NOTHING, background, confirm, group, leaf

if TYPE_CHECKING:
    from petctl.batchai.names import Address

NAME = ("-n", "--name", "-e", "--experiment")
experiment = group("experiment", "Experiments: what jobs are in.")


def _row(found: Any) -> dict[str, Any]:
    workspace = found["id"].split("/")[8]
    return {"Name": found["name"], "Resource Group": found["resourceGroup"], "Workspace": workspace}


@leaf(experiment, "create", "batchai experiment create -g recipes -w lab -n chainer", row=_row)
@words.addressed("experiments", *NAME)
def create(address: Address) -> object:
    """Make an experiment."""
    from petctl.batchai import reported
    from petctl.batchai.resources import create_experiment

    return reported.experiment(address, create_experiment(words.home(), address))


@leaf(experiment, "show", "batchai experiment show -g recipes -w lab -n chainer", row=_row)
@words.addressed("experiments", *NAME, ids=True)
def show(address: Address) -> object:
    """Show an experiment."""
    from petctl.batchai import reported
    from petctl.batchai.resources import trail_of
    from petctl.batchai.tree import Tree

    return reported.experiment(address, Tree(words.home()).read(trail_of("experiments", address)))


@leaf(experiment, "list", "batchai experiment list -g recipes -w lab -o table", row=_row)
@words.in_workspace
def list_(address: Address) -> object:
    """List the experiments of a workspace."""
    from petctl.batchai import reported
    from petctl.batchai.resources import trail_of
    from petctl.batchai.tree import Tree

    tree, space = Tree(words.home()), trail_of("workspaces", address)
    tree.read(space)
    found = [address._replace(experiment=name) for name in tree.names(space, "experiments")]
    return [reported.experiment(one, tree.read(trail_of("experiments", one))) for one in found]


@leaf(experiment, "delete", "batchai experiment delete -g recipes -w lab -n chainer -y")
@words.addressed("experiments", *NAME, ids=True)
@words.yes_option
@words.no_wait_option
def delete(address: Address, yes: bool, no_wait: bool) -> object:
    """Delete an experiment with its jobs, which are ended first."""
    from petctl.batchai.removal import delete_experiment
    from petctl.batchai.resources import trail_of
    from petctl.batchai.tree import Tree

    Tree(words.home()).read(trail_of("experiments", address))
    confirm(f"Delete experiment {address.experiment!r} with its jobs?", yes)
    if no_wait:
        place = ["-g", address.group, "-w", address.workspace, "-n", address.experiment]
        background(["experiment", "delete", "-y", *place])
    else:
        delete_experiment(words.home(), address)
    return NOTHING
