"""az storage container, blob: containers of this machine's accounts, of Azure and of Azurite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from petctl.compat.batchai.cli import options
from petctl.compat.batchai.cli.az.containers_common import (
    account_options,
    add_drawer_verbs,
    no_progress_option,
    row,
)
from petctl.compat.batchai.cli.az.entries import EntryKind, add_inside_verbs, opened
from petctl.compat.batchai.cli.base_command import NOTHING, group, leaf
from petctl.errors import UsageError

if TYPE_CHECKING:
    from petctl.compat.batchai.service.contents import Drawer

container_option = click.option("-c", "--container-name", "container", required=True, metavar="NAME", help="It.")
blob_option = click.option("-n", "--name", "name", required=True, metavar="NAME", help="The blob.")
BLOB = EntryKind(
    "blob", "container", "name", options.together(container_option, blob_option), "-c data -n train/x.bin", str
)
file_option = click.option("-f", "--file", "file", required=True, metavar="FILE", help="A file of this machine.")


def add_containers(storage: click.Group) -> None:
    """The verbs of containers and blobs."""
    add_drawer_verbs(group("container", "Blob containers.", storage), "blob", "container")
    blob = group("blob", "Blobs of a container.", storage)
    _add_blobs(blob)
    add_inside_verbs(blob, BLOB)


def _add_blobs(blob: click.Group) -> None:
    @leaf(blob, "upload", "az storage blob upload -c data -n train/x.bin -f x.bin --account-name mystorage")
    @container_option
    @blob_option
    @file_option
    @no_progress_option
    @click.option("--overwrite", is_flag=True, help="Accepted; a blob that is there is replaced in any case.")
    @account_options
    def upload(container: str, name: str, file: str, no_progress: bool, overwrite: bool, **said: Any) -> object:
        """Copy a file into the container, under a name."""
        from petctl.compat.batchai.service.contents import described, find
        from petctl.compat.batchai.service.contents import upload as bring

        if not Path(file).is_file():
            raise UsageError(f"--file: there is no file {file!r}")
        drawer = _container(container, said)
        bring(drawer, Path(file), name, exactly=True)
        entry = find(drawer, name)
        return described(entry, name)["properties"] if entry else NOTHING

    @leaf(blob, "download", "az storage blob download -c data -n train/x.bin -f x.bin --account-name mystorage")
    @container_option
    @blob_option
    @file_option
    @no_progress_option
    @account_options
    def download(container: str, name: str, file: str, no_progress: bool, **said: Any) -> object:
        """Copy a blob into a file."""
        from petctl.compat.batchai.service.contents import described, find
        from petctl.compat.batchai.service.contents import download as fetch

        drawer = _container(container, said)
        fetch(drawer, name, Path(file))
        entry = find(drawer, name)
        return described(entry, name) if entry else NOTHING

    @leaf(blob, "list", "az storage blob list -c data --account-name mystorage -o table", row=row)
    @container_option
    @click.option("--prefix", default="", metavar="TEXT", help="Only names that begin so.")
    @account_options
    def list_(container: str, prefix: str, **said: Any) -> object:
        """List the blobs of a container."""
        from petctl.compat.batchai.service.contents import described, listing

        found = sorted(listing(_container(container, said), "", deep=True))
        return [described(entry, entry.path) for entry in found if entry.path.startswith(prefix)]


def _container(name: str, said: dict[str, Any]) -> Drawer:
    return opened(BLOB, name, said)
