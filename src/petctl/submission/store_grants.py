"""From where the user wants something to be, to what the coordinator may sign for it (`storage/core/grants.py`).

    pin        at submit: a location with its endpoint and region, as plain data for the job's record; never a key
    check      at submit: asks the store, without writing: is the bucket there, does the key open it?
    grant_of   in the coordinator, again and again: the pinned place with the key of the moment

Standard library only: the supervisor uses it. Which places a job has is not known here.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any, Dict, Mapping

from petctl.errors import NoSuchPlace, Refused, UsageError
from petctl.storage.core.grants import Grant, Grants
from petctl.storage.core.store_errors import KEYS
from petctl.storage.stores.credentials import Surroundings, base_url, find_access, resolve
from petctl.storage.stores.location import Location, parse_location


def pin(text: str, surroundings: Surroundings) -> Dict[str, Any]:
    """A place as it is kept in a record. Relative paths are relative to the current directory."""
    location = parse_location(text)
    if location.sas:
        raise UsageError(
            f"{location}: a SAS in a job's location would end up in its record; leave it out and set "
            f"AZURE_STORAGE_SAS_TOKEN, or: petctl secret set azure-{location.account}-sas"
        )
    if location.kind == "gs":
        raise UsageError(
            f"{location}: jobs can use s3://, az:// and directories; copy from or to gs:// with petctl data"
        )
    location = resolve(location, surroundings)
    if location.local:
        return {"location": location.path}
    access = find_access(location, surroundings)
    pinned: Dict[str, Any] = {"location": str(location), "endpoint": access.endpoint}
    if location.kind == "s3":
        pinned["region"] = access.region
    if access.anonymous:
        pinned["anonymous"] = True
    return pinned


def check(pinned: Mapping[str, Any], surroundings: Surroundings, write: bool) -> None:
    """Raises what a job would stumble over later: StoreError with its sentence. Nothing is written."""
    grant = grant_of(pinned, surroundings, write)
    if grant.kind != "file":
        Grants({"": grant}).page("", "")
        return
    place = Path(grant.base)
    if not place.exists() and not write:
        raise NoSuchPlace(f"{place} does not exist")
    there = next(folder for folder in (place, *place.parents) if folder.exists())
    if not there.is_dir():
        raise NoSuchPlace(f"{there} is a file, not a directory")
    if write and not os.access(there, os.W_OK | os.X_OK):
        raise Refused(f"no permission to write to {there}; choose another place, or have its owner permit it")


def grant_of(pinned: Mapping[str, Any], surroundings: Surroundings, write: bool, below: str = "") -> Grant:
    """The grant for a pinned place, or for what is `below` it; Refused where no key for it can be found now."""
    location = parse_location(str(pinned["location"]))
    if location.local:
        return Grant("file", location.path, f"{below}/" if below else "", write, shown=location.path)
    settings = {name: pinned[name] for name in ("endpoint", "region", "anonymous") if pinned.get(name)}
    known = Surroundings(surroundings.environ, {location.root: settings}, surroundings.secret)
    access = find_access(location, known)
    if not access.key and not access.sas and not access.anonymous:
        raise Refused(
            f"{location.root}: found no key, and nodes do not use a machine's identity; {KEYS[location.kind]}"
        )
    return Grant(
        kind=location.kind,
        base=base_url(_root(location), access),
        prefix="".join(f"{part}/" for part in (location.path, below) if part),
        write=write,
        region=access.region,
        key_id=access.key_id,
        key=access.key,
        token=access.token,
        sas=access.sas,
        shown=location.root,
    )


def keys_of(home: Path) -> Surroundings:
    """Where keys are looked for, without the configuration: what that said is pinned."""
    from petctl.secret_file import secret_value

    return Surroundings(os.environ, {}, partial(secret_value, home))


def _root(location: Location) -> Location:
    return Location(location.kind, location.bucket, "", location.account)
