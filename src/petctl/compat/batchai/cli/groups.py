"""az group, account, login, logout, and batchai group, list-usages: what the recipes of Batch AI type around it."""

from __future__ import annotations

import getpass
from typing import Any

from petctl.compat.batchai.cli import options
from petctl.compat.batchai.cli.base_command import NOTHING, background, confirm, leaf, option, say
from petctl.compat.batchai.cli.base_command import group as group_of_verbs
from petctl.compat.batchai.cli.printing import columns
from petctl.compat.batchai.service import report
from petctl.compat.batchai.service.names import SUBSCRIPTION, Address
from petctl.compat.batchai.service.resource_store import Tree
from petctl.compat.batchai.service.resources import create_group, group_trail

WORKSPACES_PER_GROUP = 800

_ROW = columns("Name name, Location location, Status properties.provisioningState")
group = group_of_verbs("group", "Resource groups: what workspaces and storage accounts are in.", "az", _ROW)
account = group_of_verbs("account", "There is no account, and none is needed.", "az")
name_option = option("-n, --name, -g, --resource-group name NAME", "The resource group.", required=True, names="groups")
_USAGE = columns("Name name.localizedValue, Current currentValue, Limit limit")


@leaf(group, "create -n recipes -l eastus")
@name_option
@options.location_option
@option("--tags NAME=VALUE", "Tags; several.", multiple=True)
def create(name: str, location: str, tags: tuple[str, ...]) -> object:
    """Make a resource group; one that is there stays as it is."""
    pairs = {tag.partition("=")[0]: tag.partition("=")[2] for tag in tags}
    return report.group(name, create_group(options.home(), name, location, pairs))


@leaf(group, "show -n recipes")
@name_option
def show(name: str) -> object:
    """Show a resource group."""
    return report.group(name, Tree(options.home()).read(group_trail(name)))


@leaf(group, "list -o table")
def list_() -> object:
    """List the resource groups."""
    tree = Tree(options.home())
    return [report.group(name, tree.read(group_trail(name))) for name in tree.names((), "groups")]


@leaf(group, "exists -n recipes")
@name_option
def exists(name: str) -> object:
    """Say whether there is a resource group of this name."""
    return Tree(options.home()).find(group_trail(name)) is not None


@leaf(group, "delete -n recipes -y")
@name_option
@options.yes_option
@options.no_wait_option
def delete(name: str, yes: bool, no_wait: bool) -> object:
    """Delete a resource group with its workspaces, jobs, clusters and storage accounts; jobs are ended first."""
    from petctl.compat.batchai.service.removal import delete as remove

    Tree(options.home()).read(group_trail(name))
    confirm(f"Delete resource group {name!r} with everything in it?", yes)
    if no_wait:
        background(["group", "delete", "-y", "-n", name])
    else:
        remove(options.home(), "groups", Address(name))
    return NOTHING


def _subscription() -> dict[str, Any]:
    user = {"name": getpass.getuser(), "type": "user"}
    about = {"environmentName": "petctl", "name": "this machine", "state": "Enabled", "user": user}
    return {**about, "id": SUBSCRIPTION, "isDefault": True, "tenantId": SUBSCRIPTION}


@leaf(account, "show --query id -o tsv")
def show_account() -> object:
    """Show the subscription that ids have a place for."""
    return _subscription()


@leaf(account, "list")
def list_accounts() -> object:
    """List it."""
    return [_subscription()]


@leaf(account, "set")
def set_account() -> object:
    """Accept any subscription."""
    say("there are no subscriptions here; nothing was set")
    return NOTHING


@leaf("az", "login")
def login() -> object:
    """Say that no account is needed."""
    say("this is petctl's stand-in for az: it works on this machine, and needs no account")
    return [_subscription()]


@leaf("az", "logout")
def logout() -> object:
    """Say that no account is needed."""
    say("this is petctl's stand-in for az: no login was needed")
    return NOTHING


@leaf("batchai", "list-usages -o table", row=_USAGE)
@options.location_option
def list_usages(location: str) -> object:
    """List usage and limits: node slots, clusters, nodes. There are no quotas; a limit of -1 is none."""
    from petctl.clusters.base import find_cluster
    from petctl.clusters.provisioner import find_provisioner
    from petctl.kinds import DEFAULT

    home = options.home()
    tree, views = Tree(home), find_provisioner(DEFAULT).read_all(home)
    here: Any = find_cluster(DEFAULT, home).capacity()
    spaces = max((len(tree.names(group_trail(name), "workspaces")) for name in tree.names((), "groups")), default=0)
    return [
        _usage("Slots", "node slots of cluster local", here["running_nodes"], here["max_nodes"]),
        _usage("Nodes", "nodes of clusters", sum(view["nodes"] for view in views), -1),
        _usage("Clusters", "clusters", len(views), -1),
        _usage("Workspaces", "workspaces in the fullest group", spaces, WORKSPACES_PER_GROUP),
    ]


def _usage(name: str, words: str, current: int, limit: int) -> dict[str, Any]:
    return {"currentValue": current, "limit": limit, "name": {"localizedValue": words, "value": name}, "unit": "Count"}
