"""az storage, batchai storage: accounts; shares and containers ("drawers") with their files, blobs and directories.

    account    directories of this machine
    share, directory, file         of this machine's accounts
    container, blob                of those, of Azure and of Azurite

Shares and containers have the same verbs, and so have what is in them: one table (`KINDS`) says how they are called.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

from petctl.compat.batchai.cli import options
from petctl.compat.batchai.cli.base_command import NOTHING, Function, IdleOption, Verbs, confirm, group, leaf, option
from petctl.compat.batchai.cli.printing import columns
from petctl.compat.batchai.service import contents, report
from petctl.compat.batchai.service.contents import Drawer
from petctl.compat.batchai.service.names import DEFAULT
from petctl.compat.batchai.service.resource_store import Missing, Tree
from petctl.compat.batchai.service.storage import account_trail, accounts, create_account, delete_account, read_account
from petctl.errors import UsageError

_ACCOUNT = options.together(
    option("--account-name NAME", "The storage account.", variable="AZURE_STORAGE_ACCOUNT", names="storage"),
    option("--account-key KEY", "Its key: for accounts of Azure and Azurite.", variable="AZURE_STORAGE_KEY"),
    option("--sas-token TEXT", "A SAS instead of the key.", variable="AZURE_STORAGE_SAS_TOKEN"),
    option(
        "--connection-string TEXT",
        "Account, key and endpoint, of Azure or Azurite.",
        variable="AZURE_STORAGE_CONNECTION_STRING",
    ),
    option("--blob-endpoint URL", "Where the account's blobs are, if not at Azure.", default=""),
    option("--auth-mode MODE", "Accepted."),
)
_SAID = ("account_name", "account_key", "sas_token", "connection_string", "blob_endpoint")  # in `contents.Account`
_NO_PROGRESS = option("--no-progress", "Accepted; none is shown.", expose_value=False)
_ROW = columns("Name name, Type type, Content Length properties.contentLength, Last Modified properties.lastModified")


class Kind(NamedTuple):
    """Shares, or containers, and what is in them."""

    word: str  # of what is in one: "file" or "blob"
    noun: str
    flags: str  # that name the share or container
    item: options.Decorator  # names a file or blob
    shown: Callable[[str], str]  # ... as it is called in answers
    example: str


def _text(words: str, help: str, **more: Any) -> options.Decorator:  # noqa: A002  click's word
    """An option that has to be given, or has a default."""
    return option(words, help, required="default" not in more, **more)


_FILE = _text("-p, --path path PATH", "A file in the share.")
_BLOB = _text("-n, --name path NAME", "The blob.")
SHARES = Kind("file", "share", "-s, --share-name", _FILE, lambda path: Path(path).name, "-s logs -p run/stdout.txt")
CONTAINERS = Kind("blob", "container", "-c, --container-name", _BLOB, str, "-c data -n train/x.bin")
KINDS = {"share": SHARES, "file": SHARES, "directory": SHARES, "container": CONTAINERS, "blob": CONTAINERS}
WHOLE = "-n, --name"  # name the share or container in verbs of its own

storage = group("storage", "Storage: accounts of this machine; containers of Azure and Azurite too.", "az")
_ACCOUNT_ROW = columns("Name name, Resource Group resourceGroup, Location location, SKU sku.name")
account = group("account", "Storage accounts: directories of this machine.", storage, _ACCOUNT_ROW)
keys = group("keys", "Keys of an account.", account)
shares = group("share", "File shares.", storage)
containers = group("container", "Blob containers.", storage)
directory = group("directory", "Directories of a share.", storage)
files = group("file", "Files of a share.", storage)
blobs = group("blob", "Blobs of a container.", storage)


def _verb(
    parent: Verbs,
    line: str,
    *own: options.Decorator,
    flags: str = "",
    must: bool = True,
    table: bool = False,
) -> Callable[[Function], click.Command]:
    """A verb with an example of its words. The function gets the share or container as `drawer` (`must`: it has to be
    there); its docstring is the help."""
    kind = KINDS[str(parent.name)]

    def decorate(function: Function) -> click.Command:
        def run(**given: Any) -> Any:
            said, name = _said(given), given.pop("drawer")
            return function(drawer=contents.open_drawer(options.home(), kind.word, said, name, must), **given)

        which = _text(f"{flags or kind.flags} drawer NAME", f"The {kind.noun}.")
        example = f"{line} --account-name mystorage"
        words = options.together(which, *own, _ACCOUNT)(run)
        made: click.Command = leaf(parent, example, row=_ROW if table else None)(words)
        made.help = str(function.__doc__).format(noun=kind.noun, word=kind.word)
        return made

    return decorate


def _said(given: dict[str, Any]) -> contents.Account:
    """The account that the options name; they are taken out."""
    given.pop("auth_mode")
    return contents.Account(*(given.pop(name) for name in _SAID))


def _existing(path: str, flag: str, folder: bool = False) -> Path:
    place = Path(path)
    if not (place.is_dir() if folder else place.is_file()):
        raise UsageError(f"{flag}: there is no {'directory' if folder else 'file'} {path!r}")
    return place


def _described(drawer: Drawer, path: str) -> Any:
    entry = contents.find(drawer, path)
    return contents.described(entry, path) if entry else NOTHING


# -- accounts ----------------------------------------------------------------------------------------------------------

_NAME = option("-n, --name, --account-name name NAME", "The storage account.", required=True, names="storage")


def _account(name: str) -> dict[str, Any]:
    home = options.home()
    return report.account(name, read_account(home, name), str(Tree(home).directory(account_trail(name))))


@leaf(
    account,
    "create -n mystorage --sku Standard_LRS -g recipes -l eastus",
)
@_NAME
@options.group_option
@options.location_option
@option("--sku NAME", "Kept.", cls=IdleOption, default="Standard_RAGRS", show_default=True)
@option("--kind NAME", "Kept.", cls=IdleOption, default="StorageV2", show_default=True)
def create(name: str, group: str | None, location: str, sku: str, kind: str) -> object:
    """Make a storage account in a group that is there."""
    create_account(options.home(), name, group or DEFAULT, location, sku, kind)
    return _account(name)


@leaf(account, "show -n mystorage")
@_NAME
@options.group_option
def show(name: str, group: str | None) -> object:
    """Show a storage account, and the directory that it is."""
    return _account(name)


@leaf(account, "list -o table")
@options.group_option
def list_(group: str | None) -> object:
    """List the storage accounts, all or those of a group."""
    return [_account(name) for name in accounts(options.home(), group)]


@leaf(account, "delete -n mystorage -y")
@_NAME
@options.group_option
@options.yes_option
def delete(name: str, group: str | None, yes: bool) -> object:
    """Delete a storage account with everything in it."""
    read_account(options.home(), name)
    confirm(f"Delete storage account {name!r} with everything in it?", yes)
    delete_account(options.home(), name)
    return NOTHING


@leaf(keys, "list -n mystorage --query '[0].value' -o tsv")
@_NAME
@options.group_option
def keys_list(name: str, group: str | None) -> object:
    """List the keys; made up when the account was made, and taken wherever a key may be given."""
    values = read_account(options.home(), name)["keys"]
    return [
        {"keyName": f"key{number}", "permissions": "FULL", "value": value} for number, value in enumerate(values, 1)
    ]


# -- shares and containers, and what both hold -------------------------------------------------------------------------

_QUOTA = option("--quota GB", "Accepted; there is as much room as on the disk.", cls=IdleOption, type=int)
_INSIDE = _text("--destination-path, --path path PATH", "A folder inside.", default="")


def _add_drawers(parent: Verbs) -> None:
    kind = KINDS[str(parent.name)]

    @_verb(parent, "create -n logs", _QUOTA, flags=WHOLE, must=False)
    def create(drawer: Drawer, quota: int | None) -> object:
        """Create a {noun}; an existing one stays as it is."""
        return {"created": contents.create(options.home(), drawer)}

    @leaf(parent, "list --account-name mystorage -o table")
    @_ACCOUNT
    def list_(**given: Any) -> object:
        names = contents.drawers(options.home(), kind.word, _said(given))
        return [{"metadata": None, "name": name} for name in names]

    list_.help = f"List the {kind.noun}s of an account."

    @_verb(parent, "exists -n logs", flags=WHOLE, must=False)
    def exists(drawer: Drawer) -> object:
        """Say whether there is such a {noun}."""
        return {"exists": contents.exists(drawer)}

    @_verb(parent, "show -n logs", flags=WHOLE)
    def show(drawer: Drawer) -> object:
        """Show a {noun}, and where it is."""
        if not contents.exists(drawer):
            raise Missing(f"account {drawer.account!r} has no {kind.noun} {drawer.name!r}")
        return {"metadata": None, "name": drawer.name, "petctl": {"location": str(drawer.location)}}

    @_verb(parent, "url -n logs", flags=WHOLE)
    def url(drawer: Drawer) -> object:
        """Print where a {noun} is."""
        return drawer.link("").rstrip("/")

    @_verb(parent, "delete -n logs -y", options.yes_option, flags=WHOLE, must=False)
    def delete(drawer: Drawer, yes: bool) -> object:
        """Delete a {noun} with everything in it."""
        confirm(f"Delete {kind.noun} {drawer.name!r} with everything in it?", yes)
        return {"deleted": contents.delete(options.home(), drawer)}


def _add_entries(parent: Verbs) -> None:
    kind = KINDS[str(parent.name)]

    @_verb(parent, f"show {kind.example}", kind.item, table=True)
    def show(drawer: Drawer, path: str) -> object:
        """Show a {word}'s size and time."""
        entry = contents.find(drawer, path)
        if entry is None:
            raise Missing(f"there is no {kind.word} {path!r} in {kind.noun} {drawer.name!r}")
        return contents.described(entry, kind.shown(path))

    @_verb(parent, f"exists {kind.example}", kind.item)
    def exists(drawer: Drawer, path: str) -> object:
        """Say whether there is such a {word}."""
        return {"exists": contents.find(drawer, path) is not None}

    @_verb(parent, f"url {kind.example}", kind.item)
    def url(drawer: Drawer, path: str) -> object:
        """Print where a {word} is."""
        return drawer.link(path)

    @_verb(parent, f"delete {kind.example}", kind.item)
    def delete(drawer: Drawer, path: str) -> object:
        """Delete a {word}."""
        contents.remove(drawer, path)
        return NOTHING

    source = _text("-s, --source NAME", "A directory of this machine.")
    target = _text("-d, --destination NAME", "A directory of this machine.")

    @_verb(parent, "upload-batch -d logs -s ./here", source, _INSIDE, flags="-d, --destination")
    def upload_batch(drawer: Drawer, source: str, path: str) -> object:
        """Copy everything in a directory into the {noun}; print where each {word} is."""
        place = _existing(source, "--source", folder=True)
        contents.upload(drawer, place, path)
        names = sorted(str(found.relative_to(place)) for found in place.rglob("*") if found.is_file())
        return [drawer.link(f"{path}/{name}") for name in names]

    @_verb(parent, "download-batch -d ./here -s logs", target, _INSIDE, flags="-s, --source")
    def download_batch(drawer: Drawer, destination: str, path: str) -> object:
        """Copy everything in the {noun} into a directory."""
        names = [entry.path for entry in contents.listing(drawer, path, deep=True)]
        contents.download(drawer, path, Path(destination))
        return sorted(names)


for both in (shares, containers):
    _add_drawers(both)
for both in (files, blobs):
    _add_entries(both)

# -- what only one of them has -----------------------------------------------------------------------------------------

_FOLDER = _text("-n, --name PATH", "A directory in the share.")
_IN_FOLDER = _text("-n, --name PATH", "Those in this one.", default="")
_SOURCE = _text("--source FILE", "A file of this machine.")
_INTO = _text("-p, --path PATH", "A directory that is there, or a name.", default="")
_DEST = _text("--dest PATH", "Where to; else into this directory.", default=".")
_LISTED = _text("-p, --path PATH", "A directory; else the share.", default="")
_HERE = _text("-f, --file FILE", "A file of this machine.")
_PREFIX = _text("--prefix TEXT", "Only names that begin so.", default="")
_NO_FOLDERS = option("--exclude-dir", "Files only.")
_OVERWRITE = option("--overwrite", "Accepted; a blob that is there is replaced in any case.", expose_value=False)


def _folder(drawer: Drawer, path: str) -> Path:
    return Path(drawer.place(path).path)


@_verb(directory, "create -n chainer -s scripts", _FOLDER)
def make_directory(drawer: Drawer, name: str) -> object:
    """Make a directory; the ones above it too."""
    place = _folder(drawer, name)
    there = place.is_dir()
    try:
        place.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"the directory {name!r} cannot be made: there is a file in its way") from None
    return {"created": not there}


@_verb(directory, "exists -n chainer -s scripts", _FOLDER)
def directory_exists(drawer: Drawer, name: str) -> object:
    """Say whether there is such a directory."""
    return {"exists": _folder(drawer, name).is_dir()}


@_verb(directory, "list -s scripts", _IN_FOLDER, table=True)
def list_directories(drawer: Drawer, name: str) -> object:
    """List directories."""
    return [contents.described(entry, entry.path) for entry in contents.listing(drawer, name) if entry.folder]


@_verb(directory, "delete -n chainer -s scripts", _FOLDER)
def delete_directory(drawer: Drawer, name: str) -> object:
    """Delete an empty directory."""
    try:
        _folder(drawer, name).rmdir()
    except FileNotFoundError:
        return {"deleted": False}
    except OSError as error:
        raise UsageError(f"the directory {name!r} cannot be deleted: {error.strerror}") from None
    return {"deleted": True}


@_verb(files, "upload -s scripts --source train.py --path chainer", _SOURCE, _NO_PROGRESS, _INTO)
def upload_file(drawer: Drawer, source: str, path: str) -> object:
    """Copy a file into the share."""
    contents.upload(drawer, _existing(source, "--source"), path)
    return NOTHING


@_verb(files, "download -s logs -p run/stdout.txt", _FILE, _DEST, _NO_PROGRESS)
def download_file(drawer: Drawer, path: str, dest: str) -> object:
    """Copy a file out of the share."""
    contents.download(drawer, path, Path(dest))
    return _described(drawer, path)


@_verb(files, "list -s scripts -p chainer", _LISTED, _NO_FOLDERS, table=True)
def list_files(drawer: Drawer, path: str, exclude_dir: bool) -> object:
    """List files and directories."""
    found = sorted(entry for entry in contents.listing(drawer, path) if not (exclude_dir and entry.folder))
    return [contents.described(entry, entry.path) for entry in found]


@_verb(blobs, "upload -c data -n train/x.bin -f x.bin", _BLOB, _HERE, _NO_PROGRESS, _OVERWRITE)
def upload_blob(drawer: Drawer, path: str, file: str) -> object:
    """Copy a file into the container, under a name."""
    contents.upload(drawer, _existing(file, "--file"), path, exactly=True)
    found = _described(drawer, path)
    return found if found is NOTHING else found["properties"]


@_verb(blobs, "download -c data -n train/x.bin -f x.bin", _BLOB, _HERE, _NO_PROGRESS)
def download_blob(drawer: Drawer, path: str, file: str) -> object:
    """Copy a blob into a file."""
    contents.download(drawer, path, Path(file))
    return _described(drawer, path)


@_verb(blobs, "list -c data", _PREFIX, table=True)
def list_blobs(drawer: Drawer, prefix: str) -> object:
    """List the blobs of a container."""
    found = sorted(contents.listing(drawer, "", deep=True))
    return [contents.described(entry, entry.path) for entry in found if entry.path.startswith(prefix)]
