"""A Batch AI job file with what this machine knows of its mounts and secrets.

    mounts:                                                        in petctl.yaml: where a share is on every node
      https://account.file.core.windows.net/share: /mnt/share
    secrets:                                                       ... and which secret stands for a key vault's
      https://vault.vault.azure.net/secrets/token: token

A share, container or file server that is not there is one of this machine's storage accounts, or a container of a real
account whose key is known, or cannot be had.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from petctl.compat.batchai.jobfile import Found, JobFile, Resolver, Volume, read_document
from petctl.compat.batchai.jobfile.read import ACCOUNT, KEY
from petctl.compat.batchai.service.storage import place_of
from petctl.errors import PetctlError, UsageError
from petctl.home import petctl_home
from petctl.job.spec.document import Document
from petctl.job.spec.job import Prepared

NAME, READER, CREATE_CLUSTER = "Batch AI", "petctl.compat.batchai.jobfile", "batchai cluster create"
_TOP = ("properties", "nodeCount", "stdOutErrPathPrefix")  # at the top of such a file, and of none of petctl's


def is_one(root: Mapping[str, Any]) -> bool:
    """Is this the content of a file of Batch AI's? `job/file/read.py` asks, and finds this module by its name."""
    return any(name in _TOP or str(name).endswith("Settings") for name in root)


def read_job_file(document: Document, sets: Mapping[str, str]) -> Prepared:
    """The job in it; `sets` fills its <NAME>s."""
    for name in sets:
        if name not in (ACCOUNT, KEY):
            raise UsageError(f"--set {name}: a Batch AI job file has only <{ACCOUNT}> and <{KEY}> to fill in")
    account, key = (sets.get(name) or os.environ.get(name, "") for name in (ACCOUNT, KEY))
    surroundings = JobFile(resolver(petctl_home()), account=account, key=key, secret_of=secret_of)
    return read_document(document, surroundings)


def resolver(home: Path) -> Resolver:
    """Where the volumes of a Batch AI job are: as configured, else among this machine's storage accounts."""
    mounts = {name: _absolute(name, text) for name, text in _setting("mounts").items()}

    def resolve(volume: Volume) -> Found | str:
        said = volume.said.rstrip("/")
        whole = said.removesuffix(f"/{volume.below}")
        if said != whole and said in mounts:  # this directory of the share has a place of its own
            return Found(mounts[said], here=False)
        if whole in mounts:
            return Found(str(Path(mounts[whole], volume.below)), here=False)
        return _own(home, volume)

    return resolve


def _absolute(name: str, text: str) -> str:
    place = Path(text).expanduser()
    if not place.is_absolute():
        raise UsageError(f"petctl.yaml: mounts.{name} must be a path that begins with /, not {text!r}")
    return str(place)


def secret_of(url: str) -> str:
    """The name of the secret that the configuration has for a key vault's address."""
    return _setting("secrets").get(url, "")


def _own(home: Path, volume: Volume) -> Found | str:
    try:
        place = place_of(home, volume.kind, volume.account, volume.name)
    except PetctlError as error:
        return str(error)
    if place is not None and (place / volume.below).is_dir():
        return Found(str(place / volume.below))
    if place is not None:
        return f"there is no directory {volume.below} in {volume.said}"
    if volume.kind == "blob" and (remote := _container(home, volume)) is not None:
        return remote
    known = f"set its directory in petctl.yaml: mounts: {{{volume.said}: DIRECTORY}}"
    if volume.kind == "nfs":
        return f"this machine has no such file server; create it with batchai file-server create, or {known}"
    what = {"file": "share", "blob": "container"}[volume.kind]
    return (
        f"this machine has no storage account {volume.account!r} with a {what} {volume.name!r}; create them "
        f"(batchai storage account create, batchai storage {what} create), or {known}"
    )


def _container(home: Path, volume: Volume) -> Found | str | None:
    """A container of a real account, if a key for it is known; that it opens is found out now."""
    from petctl.storage.stores.credentials import Surroundings, find_access
    from petctl.storage.stores.location import parse_location
    from petctl.submission.store_grants import check, pin
    from petctl.submission.stores import surroundings

    location, known = f"az://{volume.account}/{volume.name}", surroundings(home)
    secret = known.secret

    def found(name: str) -> str:
        return secret(name) or (volume.key if name == f"azure-{volume.account}-key" else "")

    known = Surroundings(known.environ, known.stores, found)
    try:
        access = find_access(parse_location(location), known)
        if not access.key and not access.sas and not access.anonymous:
            return None
        check(pin(location, known), known, write=True)
    except PetctlError as error:
        return str(error)
    return Found("", location=location)


def _setting(name: str) -> dict[str, str]:
    """A mapping of texts at the top of the configuration files, the project's winning."""
    from petctl.config.settings import sections

    found: dict[str, str] = {}
    for file, section in sections(name):
        for key, value in section.items():
            if not isinstance(value, str) or not value:
                raise UsageError(f"{file}: {name}.{key} must be a text, not {value!r}")
            found[str(key).rstrip("/")] = value
    return found
