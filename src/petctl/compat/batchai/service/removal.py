"""Deleting a resource with everything in it: jobs end first, then clusters, then the rest.

A parent that is being deleted takes no new children. Killed half-way, it is still there, says `deleting`, and can be
deleted again. What keeps it from being deleted is written into its record: nobody may be waiting for the answer.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from petctl.compat.batchai.service.clusters import delete_fleet, forget_secrets
from petctl.compat.batchai.service.jobs import SUBMITTING, handle_of, results_place
from petctl.compat.batchai.service.names import KINDS, Address
from petctl.compat.batchai.service.resource_store import RECORD, Missing, Trail, Tree
from petctl.compat.batchai.service.resources import trail_of
from petctl.compat.batchai.service.storage import account_trail, accounts
from petctl.errors import NotFound, PetctlError
from petctl.files import read_json_or_none as read_json
from petctl.files import release, wait_for_lock
from petctl.kinds import DEFAULT

ENDING_WITHIN = 120.0
_INSIDE = {"groups": ["workspaces"], "workspaces": ["experiments", "clusters", "fileservers"]}
"""In the order in which they go: jobs run on clusters, and clusters mount file servers."""


def delete(home: Path, kind: str, address: Address) -> None:
    """Removes a resource of any kind with everything in it. All jobs of an experiment are told to end before the first
    is waited for; those that run on a cluster are ended, wherever their names are."""
    if kind == "jobs":
        delete_jobs(home, [address])
        return
    tree, trail = Tree(home), trail_of(kind, address)
    with _deleting(tree, trail) as record:
        for inner in _INSIDE.get(kind, ()):
            field = KINDS[inner].path[-1][1]
            for name in tree.names(trail, inner):
                with suppress(Missing):
                    delete(home, inner, address._replace(**{field: name}))
        if kind == "experiments":
            delete_jobs(home, [address._replace(name=name) for name in tree.names(trail, "jobs")])
        elif kind == "clusters":
            delete_fleet(home, record)
            forget_secrets(home, DEFAULT, record["secrets"])
        elif kind == "groups":
            for name in accounts(home, address.group):
                with tree.locked():
                    tree.remove(account_trail(name))


def delete_jobs(home: Path, addresses: Sequence[Address]) -> None:
    """Ends and removes jobs. What they wrote to their mounts stays; one that is gone meanwhile is no matter."""
    tree = Tree(home)
    for address in addresses:
        with suppress(Missing), _telling(tree, trail_of("jobs", address)):
            _end_job(tree, address)
    for address in addresses:
        with _telling(tree, trail_of("jobs", address)):
            _remove_job(tree, address)


def _end_job(tree: Tree, address: Address) -> None:
    trail = trail_of("jobs", address)
    _mark(tree, trail)
    # Whoever is submitting it is let finish: a job that starts after its name is gone would be nobody's.
    with suppress(FileNotFoundError):  # that came to nothing, and took the name along
        release(wait_for_lock(tree.directory(trail) / SUBMITTING))
    with suppress(NotFound):
        handle_of(tree.home, address, certain=True).cancel(kill=True)


def _remove_job(tree: Tree, address: Address) -> None:
    trail = trail_of("jobs", address)
    record = tree.find(trail)
    if record is None:
        return
    with suppress(NotFound):
        handle = handle_of(tree.home, address, certain=True)
        try:
            handle.wait(ENDING_WITHIN)
        except TimeoutError as error:
            raise PetctlError(f"{error}; delete it again later") from None
        handle.remove()
    with tree.locked():
        tree.remove(trail)
        unused = set(record["secrets"]) - (_secrets_in_use(tree) if record["secrets"] else set())
    forget_secrets(tree.home, record["cluster"]["petctl"], sorted(unused))
    if record["petctl"]:
        shutil.rmtree(results_place(tree.home, record["petctl"]), ignore_errors=True)


@contextmanager
def _deleting(tree: Tree, trail: Trail) -> Iterator[dict[str, Any]]:
    """Says so in the record, does what is to be done, then removes it."""
    record = _mark(tree, trail)
    with _telling(tree, trail):
        yield record
    with tree.locked():
        tree.remove(trail)


def _mark(tree: Tree, trail: Trail) -> dict[str, Any]:
    with tree.locked():
        return tree.change(trail, deleting=True, problem=None)


@contextmanager
def _telling(tree: Tree, trail: Trail) -> Iterator[None]:
    """An error is told to whoever waits, and to those who look at the resource later."""
    try:
        yield
    except Exception as error:
        with tree.locked(), suppress(Missing):
            tree.change(trail, problem=str(error))
        raise


def _secrets_in_use(tree: Tree) -> set[str]:
    """Those that jobs still name: a resubmitted job has the secrets of the first one."""
    records = tree.root.glob(f"groups/*/workspaces/*/experiments/*/jobs/*/{RECORD}")
    return {name for place in records for name in (read_json(place) or {}).get("secrets", ())}
