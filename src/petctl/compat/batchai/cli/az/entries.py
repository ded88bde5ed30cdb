"""The verbs of one file in a share, and of one blob in a container, which are the same: show, exists, url, delete, and
upload-batch and download-batch of many. What differs is how it is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from petctl.compat.batchai.cli import options as words
from petctl.compat.batchai.cli.az.containers_common import account_options, account_said, batch_options, row
from petctl.compat.batchai.cli.base_command import NOTHING, leaf
from petctl.errors import UsageError

if TYPE_CHECKING:
    from petctl.compat.batchai.service.contents import Drawer


class EntryKind(NamedTuple):
    """What is in a drawer, in the words of the command line."""

    kind: str  # "file" or "blob"
    drawer: str  # "share" or "container": also the name of its parameter
    parameter: str  # that says which one it is
    options: words.Decorator  # for both
    example: str
    shown: Callable[[str], str]  # how it is called in answers


def opened(thing: EntryKind, name: str, said: dict[str, Any]) -> Drawer:
    """The share or container of this name."""
    from petctl.compat.batchai.service.contents import open_drawer

    return open_drawer(words.home(), thing.kind, account_said(said), name)


def add_inside_verbs(parent: click.Group, thing: EntryKind) -> None:
    """All of them."""
    kind = thing.kind

    def line(verb: str) -> str:
        return f"az storage {kind} {verb} {thing.example} --account-name mystorage"

    def place(said: dict[str, Any]) -> tuple[Drawer, str]:
        return opened(thing, said[thing.drawer], said), said[thing.parameter]

    @leaf(parent, "show", line("show"), row=row)
    @thing.options
    @account_options
    def show(**said: Any) -> object:
        from petctl.compat.batchai.service.contents import described, find
        from petctl.compat.batchai.service.resource_store import Missing

        drawer, path = place(said)
        entry = find(drawer, path)
        if entry is None:
            raise Missing(f"there is no {kind} {path!r} in {thing.drawer} {said[thing.drawer]!r}")
        return described(entry, thing.shown(path))

    @leaf(parent, "exists", line("exists"))
    @thing.options
    @account_options
    def exists(**said: Any) -> object:
        from petctl.compat.batchai.service.contents import find

        return {"exists": find(*place(said)) is not None}

    @leaf(parent, "url", line("url"))
    @thing.options
    @account_options
    def url(**said: Any) -> object:
        drawer, path = place(said)
        return drawer.link(path)

    @leaf(parent, "delete", line("delete"))
    @thing.options
    @account_options
    def delete(**said: Any) -> object:
        from petctl.compat.batchai.service.contents import remove

        remove(*place(said))
        return NOTHING

    @leaf(parent, "upload-batch", f"az storage {kind} upload-batch -d logs -s ./here --account-name mystorage")
    @batch_options(f"The {thing.drawer}.", "A directory of this machine.")
    @account_options
    def upload_batch(destination: str, source: str, path: str, **said: Any) -> object:
        from petctl.compat.batchai.service.contents import upload

        folder = Path(source)
        if not folder.is_dir():
            raise UsageError(f"--source: there is no directory {source!r}")
        drawer = opened(thing, destination, said)
        upload(drawer, folder, path)
        files = sorted(str(found.relative_to(folder)) for found in folder.rglob("*") if found.is_file())
        return [drawer.link(f"{path}/{name}") for name in files]

    @leaf(parent, "download-batch", f"az storage {kind} download-batch -d ./here -s logs --account-name mystorage")
    @batch_options("A directory of this machine.", f"The {thing.drawer}.")
    @account_options
    def download_batch(destination: str, source: str, path: str, **said: Any) -> object:
        from petctl.compat.batchai.service.contents import download, listing

        drawer = opened(thing, source, said)
        names = [entry.path for entry in listing(drawer, path, deep=True)]
        download(drawer, path, Path(destination))
        return sorted(names)

    for verb, sentence in (
        (show, f"Show a {kind}'s size and time."),
        (exists, f"Say whether there is such a {kind}."),
        (url, f"Print where a {kind} is."),
        (delete, f"Delete a {kind}."),
        (upload_batch, f"Copy everything in a directory into the {thing.drawer}; print where each {kind} is."),
        (download_batch, f"Copy everything in the {thing.drawer} into a directory."),
    ):
        verb.help = sentence
