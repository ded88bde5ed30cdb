"""batchai file-server: create, show, list, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from petctl.cli.compat import words
from petctl.cli.compat.frame import NOTHING, confirm, group, leaf, say

if TYPE_CHECKING:
    from petctl.batchai.names import Address

NAME = ("-n", "--name")
file_server = group("file-server", "File servers: directories that clusters and jobs mount by name.")


def _row(found: Any) -> dict[str, Any]:
    mount = found["mountSettings"]
    return {
        "Name": found["name"],
        "Resource Group": found["resourceGroup"],
        "Size": found["vmSize"],
        "Disks": found["dataDisks"]["diskCount"],
        "Public IP": mount["fileServerPublicIp"],
        "Internal IP": mount["fileServerInternalIp"],
        "Mount Point": mount["mountPoint"],
    }


@leaf(
    file_server,
    "create",
    "batchai file-server create -n data -g recipes -w lab -s Standard_D2 --disk-count 2 --disk-size 10",
    row=_row,
)
@words.addressed("fileservers", *NAME)
@words.machine_options
@click.option("--disk-count", type=click.IntRange(1), metavar="N", help="Kept.")
@click.option("--disk-size", type=click.IntRange(1), metavar="GB", help="Kept; there is as much room as on this disk.")
@click.option("--storage-sku", type=click.Choice(["Premium_LRS", "Standard_LRS"]), help="Kept.")
@click.option("--caching-type", type=click.Choice(["none", "readonly", "readwrite"]), help="Kept.")
@click.option("-f", "--config-file", metavar="FILE", help="A settings file; options win over it.")
@words.no_wait_option
def create(address: Address, config_file: str | None, no_wait: bool, **given: Any) -> object:
    """Make a file server: a directory, mounted with --nfs or by `fileServers` of a job file."""
    from petctl.batchai import reported
    from petctl.batchai.machines import FILE_SERVER, idle_words, read_settings
    from petctl.batchai.servers import create_server

    properties = read_settings(config_file, FILE_SERVER) if config_file else {}
    record = create_server(words.home(), address, properties, given)
    options = idle_words(given)
    if options:
        say(f"{', '.join(options)}: kept, without effect; the file server is the directory {record['directory']}")
    return reported.file_server(address, record)


@leaf(file_server, "show", "batchai file-server show -n data -g recipes -w lab", row=_row)
@words.addressed("fileservers", *NAME, ids=True)
def show(address: Address) -> object:
    """Show a file server."""
    from petctl.batchai import reported
    from petctl.batchai.resources import trail_of
    from petctl.batchai.tree import Tree

    return reported.file_server(address, Tree(words.home()).read(trail_of("fileservers", address)))


@leaf(file_server, "list", "batchai file-server list -g recipes -w lab -o table", row=_row)
@words.in_workspace
def list_(address: Address) -> object:
    """List the file servers of a workspace."""
    from petctl.batchai import reported
    from petctl.batchai.resources import trail_of
    from petctl.batchai.tree import Tree

    tree, space = Tree(words.home()), trail_of("workspaces", address)
    tree.read(space)
    found = [address._replace(name=name) for name in tree.names(space, "fileservers")]
    return [reported.file_server(one, tree.read(trail_of("fileservers", one))) for one in found]


@leaf(file_server, "delete", "batchai file-server delete -n data -g recipes -w lab -y")
@words.addressed("fileservers", *NAME, ids=True)
@words.yes_option
@words.no_wait_option
def delete(address: Address, yes: bool, no_wait: bool) -> object:
    """Delete a file server with its files."""
    from petctl.batchai.removal import delete_server
    from petctl.batchai.resources import trail_of
    from petctl.batchai.tree import Tree

    Tree(words.home()).read(trail_of("fileservers", address))
    confirm(f"Delete file server {address.name!r} with its files?", yes)
    delete_server(words.home(), address)
    return NOTHING
