"""Nodes and GPUs of this machine, or of a cluster that was made on it: how many there are, and how many are free."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from petctl.clusters.local.pools import pool
from petctl.clusters.local.queue.queue import look
from petctl.clusters.local.queue.queue_claims import slots_of
from petctl.clusters.local.queue.slots import default_slots
from petctl.clusters.local.record import LocalRequest
from petctl.config.settings import positive_setting
from petctl.errors import PetctlError
from petctl.job.record import JobRecord
from petctl.machine.gpus import visible_gpus


def machine(home: Path, name: str, settings: Mapping[str, Any], read: Callable[[str], JobRecord]) -> dict[str, object]:
    """This machine's: a node there is a slot for a process."""
    look(home, name)
    claims = slots_of(home, name).claims()
    total = positive_setting(dict(settings), name, "slots", default_slots())
    used = sum(claim.granted for claim in claims)
    room: dict[str, object] = {"max_nodes": total, "running_nodes": used, "free_nodes": max(0, total - used)}
    gpus = len(visible_gpus(os.environ))
    if gpus:
        records = ((claim.granted, _record(read, claim.job)) for claim in claims if claim.granted)
        held = sum(nodes * LocalRequest.of(record).gpus for nodes, record in records if record)
        room |= {"total_gpu": gpus, "free_gpu": max(0, gpus - held)}
    return room


def fleet(home: Path, name: str) -> dict[str, object]:
    """Those of a cluster that was made on this machine."""
    view = pool.read(home, name)
    counts, scale = view["counts"], view["scale"]
    room: dict[str, object] = {"max_nodes": scale.get("max", scale.get("nodes"))}
    room |= {f"{state}_nodes": counts[state] for state in ("running", "preparing", "unusable")}
    room |= {"free_nodes": counts["idle"]}
    if view["gpus_per_node"]:
        room |= {"total_gpu": view["nodes"] * view["gpus_per_node"], "free_gpu": counts["idle"] * view["gpus_per_node"]}
    return room


def _record(read: Callable[[str], JobRecord], job: str) -> JobRecord | None:
    try:
        return read(job)
    except PetctlError:  # damaged, or removed meanwhile: the others must still be counted
        return None
