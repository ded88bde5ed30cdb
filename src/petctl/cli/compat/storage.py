"""az storage, batchai storage: accounts here; what is in them in `shares.py` and `containers.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from petctl.cli.compat import words
from petctl.cli.compat.containers import add_containers
from petctl.cli.compat.frame import NOTHING, IdleOption, confirm, group, leaf
from petctl.cli.compat.shares import add_shares

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
    shell_complete=words.complete("storage"),
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
@words.group_option
@words.location_option
@click.option("--sku", cls=IdleOption, default="Standard_RAGRS", show_default=True, metavar="NAME", help="Kept.")
@click.option("--kind", cls=IdleOption, default="StorageV2", show_default=True, metavar="NAME", help="Kept.")
def create(name: str, group: str | None, location: str, sku: str, kind: str) -> object:
    """Make a storage account in a group that is there."""
    from petctl.batchai.names import DEFAULT
    from petctl.batchai.storage import create_account

    create_account(words.home(), name, group or DEFAULT, location, sku, kind)
    return _shown(words.home(), name)


@leaf(account, "show", "az storage account show -n mystorage", row=_row)
@name_option
@words.group_option
def show(name: str, group: str | None) -> object:
    """Show a storage account, and the directory that it is."""
    return _shown(words.home(), name)


@leaf(account, "list", "az storage account list -o table", row=_row)
@words.group_option
def list_(group: str | None) -> object:
    """List the storage accounts, all or those of a group."""
    from petctl.batchai.storage import accounts

    return [_shown(words.home(), name) for name in accounts(words.home(), group)]


@leaf(account, "delete", "az storage account delete -n mystorage -y")
@name_option
@words.group_option
@words.yes_option
def delete(name: str, group: str | None, yes: bool) -> object:
    """Delete a storage account with everything in it."""
    from petctl.batchai.storage import delete_account, read_account

    read_account(words.home(), name)
    confirm(f"Delete storage account {name!r} with everything in it?", yes)
    delete_account(words.home(), name)
    return NOTHING


@leaf(keys, "list", "az storage account keys list -n mystorage --query '[0].value' -o tsv")
@name_option
@words.group_option
def keys_list(name: str, group: str | None) -> object:
    """List the keys; made up when the account was made, and taken wherever a key may be given."""
    from petctl.batchai.storage import read_account

    values = read_account(words.home(), name)["keys"]
    return [
        {"keyName": f"key{number}", "permissions": "FULL", "value": value} for number, value in enumerate(values, 1)
    ]


def _shown(home: Path, name: str) -> dict[str, Any]:
    from petctl.batchai import reported
    from petctl.batchai.storage import account_trail, read_account
    from petctl.batchai.tree import Tree

    return reported.account(name, read_account(home, name), str(Tree(home).directory(account_trail(name))))
