"""Many runs at a glance, and the cluster they run on: what ACT's `query` without ids, `qf`, `qq`, `qr`, `blame` and
`summary` show.

Rows are the facts of `run_facts.py`; `lines_of` makes text of them. Logs are not looked at.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from petctl.compat.act.run_facts import STATUS, facts_of
from petctl.errors import PetctlError

if TYPE_CHECKING:
    from petctl.clusters.base import Cluster
    from petctl.compat.act.config.config import Config
    from petctl.job.record import JobRecord
    from petctl.jobs import Status

COLUMNS = (
    *("appID", "status", "cluster", "experiment", "num_gpu", "start_time", "elapsedTime"),
    *("step", "speed", "full_expid", "result", "cmd"),
)
LONGEST = 80  # characters of one cell; the whole of it is among a run's facts
_GPU = "nvidia.com/gpu"


def runs(config: Config, states: Collection[str] | None = None, most: int | None = None) -> list[dict[str, object]]:
    """The runs of the configuration's experiment, the newest first; `states`: only those, in ACT's words."""
    found = _rows(config.cluster, states, config.experiment)
    return [row for _, row in zip(range(most), found, strict=False)] if most is not None else list(found)


def blame(config: Config, most: int = 5) -> list[dict[str, object]]:
    """Whose runs have been there for longest on the cluster, in any experiment; a higher `elapsedTime` first."""
    running = list(_rows(config.cluster, ("Running",)))
    return sorted(running, key=lambda row: str(row.get("start_time", "")))[:most]


def summary(config: Config) -> dict[str, object]:
    """What the cluster has, how much of it is free, and how many jobs run and wait, as far as this user may know."""
    from petctl.clusters.base import find_cluster
    from petctl.home import petctl_home
    from petctl.jobs import list_jobs

    home = petctl_home()
    where = find_cluster(config.cluster, home)
    words = [STATUS[status.state] for status in list_jobs(config.cluster)]
    return {
        "cluster": where.name,
        **_room(home, where),
        "running_jobs": words.count("Running") + words.count("Starting"),
        "queued_jobs": words.count("Queued"),
    }


def lines_of(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """A table. What is the same in all rows is told once, above it; what no row knows is left out."""
    cells = [{name: _cell(row.get(name)) for name in COLUMNS} for row in rows]
    known = [name for name in COLUMNS if any(row[name] for row in cells)]
    shared = [name for name in known[1:] if len(rows) > 1 and len({row[name] for row in cells}) == 1]
    shown = [name for name in known if name not in shared]
    table = [shown, *([_cut(row[name]) for name in shown] for row in cells)]
    widths = [max(len(line[k]) for line in table) for k in range(len(shown))]
    above = [f"{name}: {cells[0][name]}" for name in shared]
    aligned = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in table] if rows else []
    return [*above, *([""] if above else []), *aligned]


def _rows(
    cluster: str, states: Collection[str] | None = None, experiment: str | None = None
) -> Iterator[dict[str, object]]:
    """The facts of a cluster's jobs, one by one: whoever wants a few does not ask for all."""
    from petctl.clusters.base import find_cluster
    from petctl.home import petctl_home
    from petctl.jobs import list_jobs

    where = find_cluster(cluster, petctl_home())
    for status in list_jobs(cluster):
        if states is not None and STATUS[status.state] not in states:
            continue
        status, record = _whole(where, status), _record(where, status.id)
        named = str(record.job.get("experiment", "")) if record else ""
        if experiment is None or named == experiment:
            yield {**facts_of(status, record), **({"experiment": named} if named else {})}


def _whole(where: Cluster, status: Status) -> Status:
    """With what only the job itself tells, where a list left that out."""
    from petctl.jobs import JobHandle

    if status.summary and not status.final:
        with suppress(PetctlError):  # it has gone meanwhile
            return JobHandle(status.id, where).status()
    return status


def _record(where: Cluster, job: str) -> JobRecord | None:
    try:
        return where.record(job)
    except PetctlError:  # damaged, or removed meanwhile: the others must still be listed
        return None


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else " ".join(str(value).split())


def _cut(text: str) -> str:
    return f"{text[: LONGEST - 3]}..." if len(text) > LONGEST else text


# -- the cluster -------------------------------------------------------------------------------------------------------


def _room(home: Path, where: Cluster) -> dict[str, object]:
    """Nodes and GPUs of a cluster; nothing where it is a kind that cannot be asked."""
    from petctl.clusters.local.cluster import LocalCluster

    if isinstance(where, LocalCluster):
        return _fleet(home, where.name) if where.settings.get("resource") else _machine(home, where)
    from petctl.clusters.kubernetes.cluster import KubernetesCluster

    return _nodes_of(where.settings) if isinstance(where, KubernetesCluster) else {}


def _machine(home: Path, where: Any) -> dict[str, object]:
    """This machine: a node there is a slot for a process."""
    from petctl.clusters.local.gpus import visible_gpus
    from petctl.clusters.local.queue.queue import look
    from petctl.clusters.local.queue.queue_claims import slots_of
    from petctl.clusters.local.queue.slots import default_slots
    from petctl.clusters.local.record import LocalRequest
    from petctl.config.settings import positive_setting

    look(home, where.name)
    claims = slots_of(home, where.name).claims()
    total = positive_setting(dict(where.settings), where.name, "slots", default_slots())
    used = sum(claim.granted for claim in claims)
    room: dict[str, object] = {"max_nodes": total, "running_nodes": used, "free_nodes": max(0, total - used)}
    gpus = len(visible_gpus(os.environ))
    if gpus:
        records = ((claim.granted, _record(where, claim.job)) for claim in claims if claim.granted)
        held = sum(nodes * LocalRequest.of(record).gpus for nodes, record in records if record)
        room |= {"total_gpu": gpus, "free_gpu": max(0, gpus - held)}
    return room


def _fleet(home: Path, name: str) -> dict[str, object]:
    """A cluster that was made on this machine."""
    from petctl.clusters.local.pools import pool

    view = pool.read(home, name)
    counts, scale = view["counts"], view["scale"]
    room: dict[str, object] = {"max_nodes": scale.get("max", scale.get("nodes"))}
    room |= {f"{state}_nodes": counts[state] for state in ("running", "preparing", "unusable")}
    room |= {"free_nodes": counts["idle"]}
    if view["gpus_per_node"]:
        room |= {"total_gpu": view["nodes"] * view["gpus_per_node"], "free_gpu": counts["idle"] * view["gpus_per_node"]}
    return room


def _nodes_of(settings: Mapping[str, Any]) -> dict[str, object]:
    """A Kubernetes cluster's machines, for users who may list them; how many GPUs pods have, for those who may list all
    pods."""
    from petctl.kube.api import Api, path
    from petctl.kube.failures import Forbidden
    from petctl.kube.kubeconfig import find_access

    with Api(find_access(settings)) as api:
        try:
            nodes = api.list(path("nodes"))
        except Forbidden:
            return {}
        total = sum(int(node["status"].get("allocatable", {}).get(_GPU, 0)) for node in nodes)
        ready = sum(map(_is_ready, nodes))
        room: dict[str, object] = {"max_nodes": len(nodes), "unusable_nodes": len(nodes) - ready, "total_gpu": total}
        if total:
            try:
                room["free_gpu"] = total - sum(map(_gpus_of, api.list(path("pods"))))
            except Forbidden:
                pass
        return room


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = {item["type"]: item["status"] for item in node["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and not node["spec"].get("unschedulable")


def _gpus_of(pod: Mapping[str, Any]) -> int:
    """What a pod holds; one that has ended, or has no machine yet, holds nothing."""
    if pod["status"].get("phase") in ("Succeeded", "Failed") or not pod["spec"].get("nodeName"):
        return 0
    limits = (container.get("resources", {}).get("limits", {}) for container in pod["spec"]["containers"])
    return sum(int(limit.get(_GPU, 0)) for limit in limits)
