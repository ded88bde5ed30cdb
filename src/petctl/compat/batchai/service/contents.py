"""What is in a share or container: one of this machine's accounts, or a container of Azure or Azurite.

Both are ends of a transfer (`petctl.storage.stores`), so files are copied, listed and removed in one way. Which of the
two is meant follows from what was said: a connection string, or keys for an account that is not of this machine, mean
the remote one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from petctl.compat.batchai.service import storage
from petctl.compat.batchai.service.resource_store import Missing, Tree
from petctl.errors import NoSuchPlace, UsageError
from petctl.storage.stores.credentials import Surroundings, find_access
from petctl.storage.stores.endpoint import Entry
from petctl.storage.stores.location import Location
from petctl.storage.stores.signed_requests import Rest
from petctl.storage.transfer.plan import End, open_end
from petctl.storage.transfer.transfer import Tally, transfer

REAL = "file shares of real accounts cannot be changed by petctl; use the real az, or mount the share"


class Account(NamedTuple):
    """A storage account as the options name it."""

    name: str
    key: str = ""
    sas: str = ""
    connection: str = ""
    endpoint: str = ""

    def __repr__(self) -> str:
        return f"Account({self.name!r}, ...)"


class Drawer(NamedTuple):
    """A share or container that is there, or is to be made."""

    kind: str  # "file" or "blob"
    account: str
    name: str
    location: Location
    surroundings: Surroundings

    @property
    def local(self) -> bool:
        """Whether it is a directory of this machine."""
        return self.location.local

    def place(self, path: str) -> Location:
        """A path in it; no word leads out."""
        if self.local:
            return Location("file", path=str(storage.inside(Path(self.location.path), path)))
        parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]
        return self.location.below("/".join(parts)) if parts else self.location

    def end(self, path: str) -> End:
        """A path in it, looked up."""
        return open_end(self.place(path), self.surroundings)

    def link(self, path: str, seconds: int = 0) -> str:
        """An address to read a file at; of a remote one it works for so long, or with other credentials only."""
        place = self.place(path)
        if self.local:
            return Path(place.path).as_uri()
        if seconds:
            from petctl.storage.stores.signed import open_bucket

            return open_bucket(place, self.surroundings).url(place.path, seconds)
        access = find_access(place, self.surroundings)
        return f"{access.endpoint}/{place.bucket}/{place.path}"


def find_account(home: Path, said: Account) -> tuple[str, Surroundings | None]:
    """The account's name, and how it is reached; None: it is one of this machine."""
    from petctl.submission.stores import surroundings

    parts = dict(part.partition("=")[::2] for part in said.connection.split(";") if part)
    name = parts.get("AccountName") or said.name
    if not name:
        raise UsageError("no storage account given: use --account-name, --connection-string or AZURE_STORAGE_ACCOUNT")
    here = Tree(home).find(storage.account_trail(name)) is not None
    remote = said.connection or ((said.key or said.sas or said.endpoint) and not here)
    if not remote:
        storage.read_account(home, name)
        return name, None
    known = surroundings(home)
    words = {
        "AZURE_STORAGE_ACCOUNT": name,
        "AZURE_STORAGE_ACCOUNT_KEY": said.key,
        "AZURE_STORAGE_SAS_TOKEN": said.sas,
        "AZURE_STORAGE_CONNECTION_STRING": said.connection,
        "AZURE_STORAGE_ENDPOINT": said.endpoint,
    }
    environ = {key: value for key, value in known.environ.items() if not key.startswith("AZURE_STORAGE_")}
    return name, dataclasses.replace(known, environ=environ | {key: value for key, value in words.items() if value})


def open_drawer(home: Path, kind: str, said: Account, name: str, must: bool = True) -> Drawer:
    """A share or container; Missing where it must be there and is not."""
    account, remote = find_account(home, said)
    if remote is None:
        place = storage.drawer(home, kind, account, name, must)
        return Drawer(kind, account, name, Location("file", path=str(place)), Surroundings())
    if kind == "file":
        raise UsageError(REAL)
    return Drawer(kind, account, name, Location("az", name, "", account), remote)


def create(home: Path, drawer: Drawer) -> bool:
    """Makes it; False when it is there."""
    if drawer.local:
        return storage.create_drawer(home, drawer.kind, drawer.account, drawer.name)
    if exists(drawer):
        return False
    _rest(drawer).call("PUT", "", {"restype": "container"})
    return True


def delete(home: Path, drawer: Drawer) -> bool:
    """Removes it with all that is in it; False when there was none."""
    if drawer.local:
        return storage.delete_drawer(home, drawer.kind, drawer.account, drawer.name)
    return _ask(drawer, "DELETE")


def exists(drawer: Drawer) -> bool:
    """Whether it is there."""
    if drawer.local:
        return Path(drawer.location.path).is_dir()
    return _ask(drawer, "HEAD")


def drawers(home: Path, kind: str, said: Account) -> list[str]:
    """The names of an account's shares or containers."""
    account, remote = find_account(home, said)
    if remote is None:
        return storage.drawers(home, kind, account)
    if kind == "file":
        raise UsageError(REAL)
    whole = Location("az", "", "", account)
    rest = Rest(whole, find_access(whole, remote))
    names: list[str] = []
    marker = ""
    while True:
        page = ElementTree.fromstring(
            rest.call("GET", "", {"comp": "list", **({"marker": marker} if marker else {})}).body
        )
        names += [item.findtext("Name") or "" for item in page.iter("Container")]
        marker = page.findtext("NextMarker") or ""
        if not marker:
            return names


def upload(drawer: Drawer, source: Path, path: str, exactly: bool = False) -> int:
    """Brings a file or folder in; into a folder that is there, or `exactly` to the path. How many files came."""
    target = drawer.end(path)
    if exactly:
        target = dataclasses.replace(target, folder=False)
    return _copy(_mine(source, drawer.surroundings), target)


def download(drawer: Drawer, path: str, target: Path) -> int:
    """Brings a file or folder out, to a path or into a folder that is there."""
    source = drawer.end(path)
    if source.entry is None and not source.folder:
        raise Missing(f"there is no file {path!r} in {drawer.name!r} of account {drawer.account!r}")
    return _copy(source, _mine(target, drawer.surroundings))


def listing(drawer: Drawer, path: str, deep: bool = False) -> Iterator[Entry]:
    """What is in a folder, or with `deep` every file below it."""
    end = drawer.end(path)
    if end.entry is not None:
        return iter([end.entry._replace(path=end.location.name)])
    if not end.folder and path.strip("/."):
        raise Missing(f"there is no folder {path!r} in {drawer.name!r} of account {drawer.account!r}")
    return end.place.entries(end.path) if deep else end.place.children(end.path)


def find(drawer: Drawer, path: str) -> Entry | None:
    """One file, if it is there."""
    return drawer.end(path).entry


def remove(drawer: Drawer, path: str) -> None:
    """Removes one file."""
    end = drawer.end(path)
    if end.entry is None:
        raise Missing(f"there is no file {path!r} in {drawer.name!r} of account {drawer.account!r}")
    end.place.remove([end.path])


def described(entry: Entry, name: str) -> dict[str, Any]:
    """A file or folder as Azure's command line shows it."""
    modified = datetime.fromtimestamp(int(entry.modified), timezone.utc).isoformat() if entry.modified else None
    properties = {
        "contentLength": None if entry.folder else entry.size,
        "etag": entry.tag or None,
        "lastModified": modified,
    }
    kind = "dir" if entry.folder else "file"
    return {"metadata": None, "name": name, "properties": properties, "snapshot": None, "type": kind}


def _mine(path: Path, surroundings: Surroundings) -> End:
    return open_end(Location("file", path=str(path.expanduser().absolute())), surroundings)


def _copy(source: End, target: End) -> int:
    if source.entry is None and not source.folder:
        raise UsageError(f"{source.location} does not exist")
    tally = Tally()
    transfer(source, target, tally)
    return tally.found


def _ask(drawer: Drawer, method: str) -> bool:
    """Asks Azure for something about a container; False where there is none."""
    try:
        _rest(drawer).call(method, "", {"restype": "container"})
    except NoSuchPlace:
        return False
    return True


def _rest(drawer: Drawer) -> Rest:
    return Rest(drawer.location, find_access(drawer.location, drawer.surroundings))
