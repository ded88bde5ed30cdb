"""batchai file-server: create, show, list, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from petctl.compat.batchai.cli import options as words
from petctl.compat.batchai.cli.base_command import group, leaf, say
from petctl.compat.batchai.cli.crud import Resource, add_usual_verbs

if TYPE_CHECKING:
    from petctl.compat.batchai.service.names import Address

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
@click.option("-f", "--config-file", metavar="FILE", help="A settings file; options override it.")
@words.no_wait_option
def create(address: Address, config_file: str | None, no_wait: bool, **given: Any) -> object:
    """Make a file server: a directory, mounted with --nfs or by `fileServers` of a job file."""
    from petctl.compat.batchai.jobfile import read_settings
    from petctl.compat.batchai.service import report
    from petctl.compat.batchai.service.machines import FILE_SERVER, idle_words
    from petctl.compat.batchai.service.servers import create_server

    properties = read_settings(config_file, FILE_SERVER) if config_file else {}
    record = create_server(words.home(), address, properties, given)
    options = idle_words(given)
    if options:
        say(f"{', '.join(options)}: kept, without effect; the file server is the directory {record['directory']}")
    return report.file_server(address, record)


def _shown(address: Address) -> object:
    from petctl.compat.batchai.service import report

    return report.file_server(address, words.record("fileservers", address)[1])


add_usual_verbs(
    file_server,
    Resource(
        "fileservers",
        "file-server",
        NAME,
        _row,
        _shown,
        place="-g recipes -w lab",
        name="data",
        told=", and the directory that it is",
        along=" with its files",
    ),
)
