"""The tree of resources: one directory each, with `resource.json` in it, below $PETCTL_HOME/batchai.

    groups/G/resource.json
    groups/G/workspaces/W/resource.json
    groups/G/workspaces/W/{clusters,fileservers,experiments}/NAME/resource.json
    groups/G/workspaces/W/experiments/E/jobs/J/resource.json
    storage/ACCOUNT/resource.json

A resource is there when its directory has its name, and that happens in one step; a removed one is out of sight in one
step. Whoever is killed in between leaves a directory that the next writer clears away. Every change is made under one
lock, which dies with its holder; readers need none. What a record means is not known here.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from petctl.compat.batchai.service.names import DEFAULT, KINDS
from petctl.errors import NotFound, PetctlError, UsageError
from petctl.files import locked, read_json_or_none
from petctl.home import write_json

Trail = tuple[tuple[str, str], ...]
"""How one gets to a resource: (("groups", "G"), ("workspaces", "W"))."""

RECORD = "resource.json"
LONGEST = 200  # bytes; Azure's own rules (`names`) are narrower


class Missing(NotFound):
    """A resource of that name does not exist; Azure's command line ends with 3 then."""

    code = 3


class AlreadyThere(PetctlError):
    """There is a resource of that name."""


class Tree:
    """The resources below one $PETCTL_HOME."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "batchai"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else changes anything meanwhile; only for what takes moments."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(self.root / "lock"):
            for left in self.root.glob(".new-*"):  # of somebody who was killed: makers hold the lock
                shutil.rmtree(left, ignore_errors=True)
            yield

    def directory(self, trail: Trail) -> Path:
        """Where a resource is, or would be; UsageError for a name that leads elsewhere, or that no directory has."""
        for collection, name in trail:
            if not name or name in (".", "..") or set("/\0") & set(name) or len(os.fsencode(name)) > LONGEST:
                raise UsageError(f"{name[:LONGEST]!r} cannot be the name of a {KINDS[collection].noun}")
        return self.root.joinpath(*(part for step in trail for part in step))

    def find(self, trail: Trail) -> dict[str, Any] | None:
        """Its record, if there is such a resource."""
        return read_json_or_none(self.directory(trail) / RECORD)

    def read(self, trail: Trail) -> dict[str, Any]:
        """Its record; Missing names the first step of the trail that is not there."""
        for length in range(1, len(trail) + 1):
            record = self.find(trail[:length])
            if record is None:
                raise Missing(missing_words(trail[:length], self.names(trail[: length - 1], trail[length - 1][0])))
        return record or {}

    def names(self, trail: Trail, collection: str) -> list[str]:
        """What is in a collection of a resource; of the root with an empty trail."""
        try:
            found = [path.name for path in (self.directory(trail) / collection).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in found if self.find((*trail, (collection, name))) is not None)

    def make(self, trail: Trail, record: Mapping[str, Any], folders: tuple[str, ...] = ()) -> None:
        """A new resource, with empty folders beside its record; the caller holds the lock."""
        place = self.directory(trail)
        for length in range(1, len(trail)):
            if self.read(trail[:length]).get("deleting"):
                raise UsageError(f"{words(trail[:length])} is being deleted; wait for that, or choose another")
        if self.find(trail) is not None:
            raise AlreadyThere(f"{words(trail)} already exists; delete it first, or choose another name")
        if (place / RECORD).exists():  # what lies beside it may be somebody's data
            raise PetctlError(f"{place / RECORD} is damaged; repair it, or remove {place} with all that is in it")
        draft = self.root / f".new-{secrets.token_hex(6)}"
        draft.mkdir(mode=0o700)
        for folder in folders:
            (draft / folder).mkdir()
        write_json(draft / RECORD, record, mode=0o600, durable=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(place, ignore_errors=True)  # a directory without a record is nobody's
        draft.rename(place)

    def change(self, trail: Trail, **fields: Any) -> dict[str, Any]:
        """Replaces fields of a record; the caller holds the lock."""
        record = {**self.read(trail), **fields}
        write_json(self.directory(trail) / RECORD, record, mode=0o600, durable=True)
        return record

    def remove(self, trail: Trail) -> None:
        """Out of sight at once, then off the disk; the caller holds the lock."""
        self.discard(self.directory(trail))

    def discard(self, place: Path) -> None:
        """Removes a directory of the tree: out of sight at once, then off the disk."""
        hidden = self.root / f".new-{secrets.token_hex(6)}"
        try:
            place.rename(hidden)
        except FileNotFoundError:
            return
        shutil.rmtree(hidden, ignore_errors=True)


def words(trail: Trail) -> str:
    """A resource in a sentence: job 'J' of experiment 'E' of workspace 'W'."""
    (collection, name), *outer = trail[::-1]
    near = [f"{KINDS[kind].noun} {place!r}" for kind, place in outer if kind != "groups"][:2]
    return " of ".join([f"{KINDS[collection].noun} {name!r}", *near])


def missing_words(trail: Trail, there: list[str]) -> str:
    """A sentence about a resource that is not there, with the nearest of those that are."""
    import difflib

    near = difflib.get_close_matches(trail[-1][1], there, n=1, cutoff=0.5)
    if near:
        return f"there is no {words(trail)}; did you mean {near[0]!r}?"
    if there:
        return f"there is no {words(trail)}; there are: {', '.join(there[:8])}{' ...' if len(there) > 8 else ''}"
    return f"there is no {words(trail)}, nor any other; {_making(trail)}"


def _making(trail: Trail) -> str:
    """How the first one of its kind is made."""
    (kind, name), outer = trail[-1], dict(trail[:-1])
    if kind == "storage":
        return f"create one: batchai storage account create -n {name}"
    if (kind, name) == ("groups", DEFAULT):
        return "the first job makes it: batchai job create -n NAME -f job.json"
    verb = KINDS[kind].verb
    flags = [f" {KINDS[place].flag} {parent}" for place, parent in outer.items() if parent != DEFAULT]
    command = f"batchai {verb} create{''.join(flags)} -n {name}"
    if kind in ("clusters", "fileservers"):
        return f"create one: {command} ... ('batchai {verb} create --help' shows its options)"
    return f"create one: {command}{' -f job.json' if kind == 'jobs' else ''}"
