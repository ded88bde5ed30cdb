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
from petctl.compat.batchai.service.names import Address
from petctl.compat.batchai.service.resource_store import Missing, Trail, Tree
from petctl.compat.batchai.service.resources import group_trail, trail_of
from petctl.compat.batchai.service.storage import account_trail, accounts
from petctl.errors import NotFound, PetctlError
from petctl.files import release, wait_for_lock
from petctl.kinds import DEFAULT

ENDING_WITHIN = 120.0


def delete(home: Path, kind: str, address: Address) -> None:
    """Removes a resource of any kind, as ids name it."""
    if kind == "jobs":
        delete_jobs(home, [address])
    else:
        _DELETE[kind](home, address)


def delete_group(home: Path, group: str) -> None:
    """Removes a group, its workspaces and its storage accounts."""
    tree, trail = Tree(home), group_trail(group)
    with _deleting(tree, trail):
        for workspace in tree.names(trail, "workspaces"):
            with suppress(Missing):
                delete_workspace(home, Address(group, workspace))
        for name in accounts(home, group):
            with tree.locked():
                tree.remove(account_trail(name))


def delete_workspace(home: Path, address: Address) -> None:
    """Removes a workspace: its jobs, then its clusters, then its file servers, which those may have mounted."""
    tree, trail = Tree(home), trail_of("workspaces", address)
    with _deleting(tree, trail):
        for experiment in tree.names(trail, "experiments"):
            with suppress(Missing):
                delete_experiment(home, address._replace(experiment=experiment))
        for name in tree.names(trail, "clusters"):
            with suppress(Missing):
                delete_cluster(home, address._replace(name=name))
        for name in tree.names(trail, "fileservers"):
            with suppress(Missing):
                delete_server(home, address._replace(name=name))


def delete_experiment(home: Path, address: Address) -> None:
    """Removes an experiment with its jobs; all are told to end before the first is waited for."""
    tree, trail = Tree(home), trail_of("experiments", address)
    with _deleting(tree, trail):
        delete_jobs(home, [address._replace(name=name) for name in tree.names(trail, "jobs")])


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


def delete_cluster(home: Path, address: Address) -> None:
    """Removes a cluster; jobs that run on it are ended, wherever their names are."""
    tree, trail = Tree(home), trail_of("clusters", address)
    with _deleting(tree, trail) as record:
        delete_fleet(home, record)
        forget_secrets(home, DEFAULT, record["secrets"])


def delete_server(home: Path, address: Address) -> None:
    """Removes a file server with its files."""
    tree, trail = Tree(home), trail_of("fileservers", address)
    with _deleting(tree, trail):
        pass  # nothing is in it that could run


_DELETE = {
    "workspaces": delete_workspace,
    "experiments": delete_experiment,
    "clusters": delete_cluster,
    "fileservers": delete_server,
}


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
    found: set[str] = set()
    for group in tree.names((), "groups"):
        for workspace in tree.names(group_trail(group), "workspaces"):
            space = (*group_trail(group), ("workspaces", workspace))
            for experiment in tree.names(space, "experiments"):
                inside = (*space, ("experiments", experiment))
                for job in tree.names(inside, "jobs"):
                    found |= set((tree.find((*inside, ("jobs", job))) or {}).get("secrets", ()))
    return found
