"""Named local clusters as resources: made, looked at, resized and deleted, by `petctl cluster` and the front ends.

    $PETCTL_HOME/clusters/NAME/cluster.json   what it is to be (spec.py); found by `find_cluster`
                               slots.db       its queue (slots.py) and its nodes (nodes.py, model.py)
                               nodes/N/       what prepares a node (setup.py)
                               mounts/        what its jobs find under $PETCTL_CLUSTER_MOUNTS (mounts.py)

A cluster is a share of this machine with a queue of its own. Every call is a look: it settles the nodes, starts what
is due and restarts what was killed. Answers are plain data.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from petctl import text
from petctl.clusters.base import AlreadyExists
from petctl.clusters.local.pools import mounts, setup
from petctl.clusters.local.pools.description import sized, spec_from
from petctl.clusters.local.pools.model import PREPARING, READY, UNUSABLE, Node
from petctl.clusters.local.pools.nodes import counted, looked, read_nodes, write_nodes
from petctl.clusters.local.pools.spec import FleetDirectory, FleetSpec, find_spec, fleet_names, read_spec, write_spec
from petctl.clusters.local.queue.queue import look
from petctl.config.settings import cluster_settings
from petctl.errors import NotFound, UsageError
from petctl.files import make_private_directory
from petctl.kinds import is_kind

ABANDONED = 3600.0  # seconds after which the unfinished directory of a killed command is removed
CANCEL_WITHIN = 60.0  # for jobs to end in their grace when their cluster is deleted; then they are killed
KILL_WITHIN = 30.0


def create(home: Path, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Makes a cluster whole or not at all; its nodes are prepared in the background."""
    checked = spec_from(name, spec)
    if is_kind(name) or cluster_settings(name) or find_spec(home, name) is not None:
        raise AlreadyExists(f"cluster {name!r} already exists; delete it first, or choose another name")
    now = time.time()
    checked = replace(checked, id=secrets.token_hex(8), created=now, changed=now)
    _remove_abandoned(home)
    draft = FleetDirectory(home, f".new-{secrets.token_hex(6)}")
    try:
        make_private_directory(draft.path)
        mounts.link(draft, checked)
        write_spec(draft, checked)
        _give_name(draft, FleetDirectory(home, name))
    except BaseException:
        _remove(draft)
        raise
    initial = int(spec.get("initial") or 0) if checked.auto else 0
    with looked(home, name) as database:
        here = read_nodes(database)
        extra = range(len(here), min(initial, checked.high))
        state = PREPARING if checked.prepares else READY
        write_nodes(database, here, [*here, *(Node(number, state, now) for number in extra)])
    return read(home, name)


def names(home: Path) -> list[str]:
    """Every named local cluster."""
    return fleet_names(home)


def read(home: Path, name: str) -> dict[str, Any]:
    """A cluster as it is now."""
    spec, here, claims = _look(home, name)
    return _view(home, spec, here, claims)


def read_all(home: Path) -> list[dict[str, Any]]:
    """All of them; without one that is deleted meanwhile."""
    found = []
    for name in names(home):
        with suppress(NotFound):
            found.append(read(home, name))
    return found


def nodes(home: Path, name: str) -> list[dict[str, Any]]:
    """Its nodes, with the jobs that have them."""
    spec, here, _ = _look(home, name)
    return [_row(FleetDirectory(home, name), spec, node) for node in here]


def change(home: Path, name: str, **size: Any) -> dict[str, Any]:
    """Another size (`description.SIZE`): a number of nodes, or bounds for auto-scale. Unusable nodes that stay are
    prepared again."""
    read_spec(home, name)
    directory, now = FleetDirectory(home, name), time.time()
    with looked(home, name) as database:  # the description is changed under the same lock as the nodes
        spec = sized(read_spec(home, name), **size)
        write_spec(directory, replace(spec, changed=now))
        here = read_nodes(database)
        write_nodes(database, here, [_fresh(directory, spec, n) if n.state == UNUSABLE else n for n in here])
    return read(home, name)


def reset(home: Path, name: str, node: str) -> dict[str, Any]:
    """Prepares a node again, an unusable one above all."""
    spec = read_spec(home, name)
    directory = FleetDirectory(home, name)
    with looked(home, name) as database:
        here = read_nodes(database)
        found = next((item for item in here if str(item.number) == node), None)
        if found is None:
            known = ", ".join(str(item.number) for item in here) or "none"
            raise NotFound(f"cluster {name} has no node {node!r}; its nodes: {known}")
        if found.job:
            raise UsageError(f"node {node} of {name} is in use by {found.job}; reset it when that job has ended")
        if found.state != PREPARING:
            write_nodes(database, here, [_fresh(directory, spec, item) if item == found else item for item in here])
    return next(row for row in nodes(home, name) if row["name"] == node)


def delete(home: Path, name: str, force: bool = False) -> None:
    """Removes the cluster and all that was made for it; its jobs must have ended, or are ended with `force`."""
    view = read(home, name)
    jobs = [*view["running"], *view["queued"]]
    if jobs and not force:
        queued = text.counted(len(view["queued"]), "queued job")
        raise UsageError(
            f"cluster {name} has {len(view['running'])} running and {queued}: "
            f"{', '.join(jobs[:5])}{' ...' if len(jobs) > 5 else ''}; wait for them, or cancel them with --force"
        )
    directory = FleetDirectory(home, name)
    with looked(home, name) as database:  # from here on nobody can submit a job to it, or prepare a node
        spec = replace(read_spec(home, name), deleting=True)
        write_spec(directory, spec)
        jobs = [str(job) for (job,) in database.execute("SELECT job FROM claims").fetchall()]
    _end(home, jobs)
    setup.clear_all(directory, spec)
    mounts.unmount(directory, spec)
    hidden = FleetDirectory(home, f".new-{secrets.token_hex(6)}")
    directory.path.rename(hidden.path)  # out of sight in one step
    _remove(hidden)


def _look(home: Path, name: str) -> tuple[FleetSpec, list[Node], list[tuple[str, int]]]:
    """What it is to be, its nodes and the jobs with what each was granted, once all that is due was done."""
    spec = read_spec(home, name)
    look(home, name)
    with looked(home, name) as database:
        claims = database.execute("SELECT job, granted FROM claims ORDER BY priority DESC, place").fetchall()
        return spec, read_nodes(database), claims


def mount_root(home: Path, name: str) -> Path:
    """Where the cluster's mounts are."""
    return FleetDirectory(home, name).mounts


def _fresh(directory: FleetDirectory, spec: FleetSpec, node: Node) -> Node:
    """The node as if it were new."""
    setup.again(directory, node.number)
    return Node(node.number, PREPARING if spec.prepares else READY, time.time())


def _end(home: Path, jobs: Sequence[str]) -> None:
    """Ends the jobs of a cluster that goes away, within their grace if they can."""
    from petctl.clusters.local.backend import connect

    here = connect(home, {})
    for kill, patience in ((False, CANCEL_WITHIN), (True, KILL_WITHIN)):
        left = [job for job in jobs if (home / "jobs" / job / "job.json").exists()]
        left = [job for job in left if (now := here.status(job)).finished is None or now.unattended]
        for job in left:
            here.cancel(job, kill)
        deadline = time.monotonic() + patience
        for job in left:
            status = here.status(job)
            while (status.finished is None or status.unattended) and time.monotonic() < deadline:
                again = here.attend(job)
                status = here.watch(job, status, min(again, deadline - time.monotonic()))


def _view(home: Path, spec: FleetSpec, here: Sequence[Node], claims: Sequence[tuple[str, int]]) -> dict[str, Any]:
    counts = counted(here)
    steady = not counts["preparing"] and not counts["leaving"]
    scale = {"mode": "auto", "min": spec.low, "max": spec.high, "idle_time": spec.idle_time}
    return {
        "name": spec.name,
        "kind": "local",
        "id": spec.id,
        "created": spec.created,
        "allocation": "deleting" if spec.deleting else "steady" if steady else "resizing",
        "allocation_since": max([spec.changed, *(node.since for node in here if not node.job)]),
        "scale": scale if spec.auto else {"mode": "manual", "nodes": spec.low},
        "deallocation": spec.deallocation,
        "gpus_per_node": spec.gpus_per_node,
        "setup": asdict(spec.setup) if spec.setup is not None else None,
        "mounts": [asdict(mount) for mount in spec.mounts],
        "mount_root": str(mount_root(home, spec.name)),
        "nodes": len(here),
        "counts": counts,
        "running": [job for job, granted in claims if granted],
        "queued": [job for job, granted in claims if not granted],
        "problems": [f"node {node.number} is unusable: {node.reason}" for node in here if node.reason],
    }


def _row(directory: FleetDirectory, spec: FleetSpec, node: Node) -> dict[str, Any]:
    return {
        "name": str(node.number),
        "state": node.shown,
        "since": node.since,
        "job": node.job,
        "job_node": str(node.member) if node.job else "",
        "reason": node.reason,
        "attempts": node.attempts,
        "output": str(directory.output(spec, node.number)) if spec.setup is not None else "",
    }


def _give_name(draft: FleetDirectory, final: FleetDirectory) -> None:
    if final.path.exists() and not final.spec.exists():  # what a late word to a deleted cluster has left
        final.path.rename(draft.path.with_name(f".new-{secrets.token_hex(6)}"))
    try:
        draft.path.rename(final.path)
    except OSError:
        if final.spec.exists():
            raise AlreadyExists(f"cluster {final.name!r} already exists") from None
        raise


def _remove_abandoned(home: Path) -> None:
    for path in (home / "clusters").glob(".new-*"):
        if time.time() - path.stat().st_mtime > ABANDONED:
            _remove(FleetDirectory(home, path.name))


def _remove(directory: FleetDirectory) -> None:
    """Removes a directory that is nobody's cluster; never what is mounted in it."""
    if directory.path.exists() and not mounts.mounted_below(directory.path):
        shutil.rmtree(directory.path, ignore_errors=True)
