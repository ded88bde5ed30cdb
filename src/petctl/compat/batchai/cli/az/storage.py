"""az storage, batchai storage: accounts here; what is in them in `shares.py` and `containers.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from petctl.compat.batchai.cli import options
from petctl.compat.batchai.cli.az.containers import add_containers
from petctl.compat.batchai.cli.az.shares import add_shares
from petctl.compat.batchai.cli.base_command import NOTHING, IdleOption, confirm, group, leaf

if TYPE_CHECKING:
    from pathlib import Path

storage = group("storage", "Storage: accounts of this machine; containers of Azure and Azurite too.")
account = group("account", "Storage accounts: directories of this machine.", storage)
keys = group("keys", "Keys of an account.", account)
add_shares(storage)
add_containers(storage)

name_option = click.option(
    "-n",
    "--name",
    "--account-name",
    "name",
    required=True,
    metavar="NAME",
    help="The storage account.",
    shell_complete=options.complete("storage"),
)


def _row(found: Any) -> dict[str, Any]:
    return {
        "Name": found["name"],
        "Resource Group": found["resourceGroup"],
        "Location": found["location"],
        "SKU": found["sku"]["name"],
    }


@leaf(account, "create", "az storage account create -n mystorage --sku Standard_LRS -g recipes -l eastus", row=_row)
@name_option
@options.group_option
@options.location_option
@click.option("--sku", cls=IdleOption, default="Standard_RAGRS", show_default=True, metavar="NAME", help="Kept.")
@click.option("--kind", cls=IdleOption, default="StorageV2", show_default=True, metavar="NAME", help="Kept.")
def create(name: str, group: str | None, location: str, sku: str, kind: str) -> object:
    """Make a storage account in a group that is there."""
    from petctl.compat.batchai.service.names import DEFAULT
    from petctl.compat.batchai.service.storage import create_account

    create_account(options.home(), name, group or DEFAULT, location, sku, kind)
    return _shown(options.home(), name)


@leaf(account, "show", "az storage account show -n mystorage", row=_row)
@name_option
@options.group_option
def show(name: str, group: str | None) -> object:
    """Show a storage account, and the directory that it is."""
    return _shown(options.home(), name)


@leaf(account, "list", "az storage account list -o table", row=_row)
@options.group_option
def list_(group: str | None) -> object:
    """List the storage accounts, all or those of a group."""
    from petctl.compat.batchai.service.storage import accounts

    return [_shown(options.home(), name) for name in accounts(options.home(), group)]


@leaf(account, "delete", "az storage account delete -n mystorage -y")
@name_option
@options.group_option
@options.yes_option
def delete(name: str, group: str | None, yes: bool) -> object:
    """Delete a storage account with everything in it."""
    from petctl.compat.batchai.service.storage import delete_account, read_account

    read_account(options.home(), name)
    confirm(f"Delete storage account {name!r} with everything in it?", yes)
    delete_account(options.home(), name)
    return NOTHING


@leaf(keys, "list", "az storage account keys list -n mystorage --query '[0].value' -o tsv")
@name_option
@options.group_option
def keys_list(name: str, group: str | None) -> object:
    """List the keys; made up when the account was made, and taken wherever a key may be given."""
    from petctl.compat.batchai.service.storage import read_account

    values = read_account(options.home(), name)["keys"]
    return [
        {"keyName": f"key{number}", "permissions": "FULL", "value": value} for number, value in enumerate(values, 1)
    ]


def _shown(home: Path, name: str) -> dict[str, Any]:
    from petctl.compat.batchai.service import report
    from petctl.compat.batchai.service.resource_store import Tree
    from petctl.compat.batchai.service.storage import account_trail, read_account

    return report.account(name, read_account(home, name), str(Tree(home).directory(account_trail(name))))
