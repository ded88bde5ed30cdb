"""The machines of a cluster, as far as its user may see them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from petctl.kube.api import Api, path
from petctl.kube.failures import Forbidden

_GPU = "nvidia.com/gpu"


def machines(api: Api) -> dict[str, object]:
    """Nodes, and GPUs where the user may list all pods; empty for users who may not list nodes."""
    try:
        nodes = api.list(path("nodes"))
    except Forbidden:
        return {}
    total = sum(int(node["status"].get("allocatable", {}).get(_GPU, 0)) for node in nodes)
    ready = sum(map(is_ready, nodes))
    found: dict[str, object] = {"max_nodes": len(nodes), "unusable_nodes": len(nodes) - ready, "total_gpu": total}
    if total:
        with suppress(Forbidden):
            found["free_gpu"] = total - sum(map(gpus_of, api.list(path("pods"))))
    return found


def is_ready(node: Mapping[str, Any]) -> bool:
    """Whether it takes pods."""
    conditions = {item["type"]: item["status"] for item in node["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and not node["spec"].get("unschedulable")


def gpus_of(pod: Mapping[str, Any]) -> int:
    """What a pod holds; one that has ended, or has no machine yet, holds nothing."""
    if pod["status"].get("phase") in ("Succeeded", "Failed") or not pod["spec"].get("nodeName"):
        return 0
    limits = (container.get("resources", {}).get("limits", {}) for container in pod["spec"]["containers"])
    return sum(int(limit.get(_GPU, 0)) for limit in limits)
