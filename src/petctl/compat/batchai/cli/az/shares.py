"""az storage share, directory, file: shares of this machine's accounts."""

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

share_option = click.option("-s", "--share-name", "share", required=True, metavar="NAME", help="The share.")
file_option = click.option("-p", "--path", "path", required=True, metavar="PATH", help="A file in the share.")
FILE = EntryKind(
    "file",
    "share",
    "path",
    options.together(share_option, file_option),
    "-s scripts -p chainer/train.py",
    lambda path: Path(path).name,
)
folder_option = click.option("-n", "--name", "name", required=True, metavar="PATH", help="A directory in the share.")


def add_shares(storage: click.Group) -> None:
    """The verbs of shares, their directories and files."""
    add_drawer_verbs(group("share", "File shares.", storage), "file", "share")
    _add_directories(group("directory", "Directories of a share.", storage))
    files = group("file", "Files of a share.", storage)
    _add_files(files)
    add_inside_verbs(files, FILE)


def _add_directories(directory: click.Group) -> None:
    @leaf(directory, "create", "az storage directory create -n chainer -s scripts --account-name mystorage")
    @folder_option
    @share_option
    @account_options
    def create(name: str, share: str, **said: Any) -> object:
        """Make a directory; the ones above it too."""
        place = _folder(share, name, said)
        there = place.is_dir()
        try:
            place.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise UsageError(f"the directory {name!r} cannot be made: there is a file in its way") from None
        return {"created": not there}

    @leaf(directory, "exists", "az storage directory exists -n chainer -s scripts --account-name mystorage")
    @folder_option
    @share_option
    @account_options
    def exists(name: str, share: str, **said: Any) -> object:
        """Say whether there is such a directory."""
        return {"exists": _folder(share, name, said).is_dir()}

    @leaf(directory, "list", "az storage directory list -s scripts --account-name mystorage", row=row)
    @share_option
    @click.option("-n", "--name", "name", default="", metavar="PATH", help="Those in this one.")
    @account_options
    def list_(share: str, name: str, **said: Any) -> object:
        """List directories."""
        from petctl.compat.batchai.service.contents import described, listing

        found = [entry for entry in listing(_share(share, said), name) if entry.folder]
        return [described(entry, entry.path) for entry in found]

    @leaf(directory, "delete", "az storage directory delete -n chainer -s scripts --account-name mystorage")
    @folder_option
    @share_option
    @account_options
    def delete(name: str, share: str, **said: Any) -> object:
        """Delete an empty directory."""
        try:
            _folder(share, name, said).rmdir()
        except FileNotFoundError:
            return {"deleted": False}
        except OSError as error:
            raise UsageError(f"the directory {name!r} cannot be deleted: {error.strerror}") from None
        return {"deleted": True}


def _add_files(file: click.Group) -> None:
    @leaf(file, "upload", "az storage file upload -s scripts --source train.py --path chainer --account-name mystorage")
    @share_option
    @click.option("--source", required=True, metavar="FILE", help="A file of this machine.")
    @no_progress_option
    @click.option("-p", "--path", "path", default="", metavar="PATH", help="A directory that is there, or a name.")
    @account_options
    def upload(share: str, source: str, path: str, no_progress: bool, **said: Any) -> object:
        """Copy a file into the share."""
        from petctl.compat.batchai.service.contents import upload as bring

        if not Path(source).is_file():
            raise UsageError(f"--source: there is no file {source!r}")
        bring(_share(share, said), Path(source), path)
        return NOTHING

    @leaf(file, "download", "az storage file download -s logs -p run/stdout.txt --account-name mystorage")
    @share_option
    @file_option
    @click.option("--dest", default=".", metavar="PATH", help="Where to; else into this directory.")
    @no_progress_option
    @account_options
    def download(share: str, path: str, dest: str, no_progress: bool, **said: Any) -> object:
        """Copy a file out of the share."""
        from petctl.compat.batchai.service.contents import described, find
        from petctl.compat.batchai.service.contents import download as fetch

        drawer = _share(share, said)
        fetch(drawer, path, Path(dest))
        entry = find(drawer, path)
        return described(entry, path) if entry else NOTHING

    @leaf(file, "list", "az storage file list -s scripts -p chainer --account-name mystorage -o table", row=row)
    @share_option
    @click.option("-p", "--path", "path", default="", metavar="PATH", help="A directory; else the share.")
    @click.option("--exclude-dir", is_flag=True, help="Files only.")
    @account_options
    def list_(share: str, path: str, exclude_dir: bool, **said: Any) -> object:
        """List files and directories."""
        from petctl.compat.batchai.service.contents import described, listing

        found = [entry for entry in listing(_share(share, said), path) if not (exclude_dir and entry.folder)]
        return [described(entry, entry.path) for entry in sorted(found)]


def _share(name: str, said: dict[str, Any]) -> Drawer:
    return opened(FILE, name, said)


def _folder(share: str, path: str, said: dict[str, Any]) -> Path:
    return Path(_share(share, said).place(path).path)
