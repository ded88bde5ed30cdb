"""A piece of a pod template, as a user writes it, merged into that of the nodes: for what petctl has no word for.

The container that runs the agent is called `petctl`; a container without a name in the patch means that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from petctl.clusters.kubernetes.names import CONTAINER
from petctl.errors import UsageError
from petctl.kube.objects import merged

_OWN = ("command", "args", "restartPolicy")


def patched(template: Mapping[str, Any], patch: Mapping[str, Any], said: str) -> dict[str, Any]:
    """The template with the patch in it; `said` is where the patch was written, for errors."""
    unknown = sorted(set(patch) - {"metadata", "spec"})
    if unknown:
        raise UsageError(f"{said}.{unknown[0]}: a pod template has metadata and spec")
    for part in ("metadata", "spec"):
        if not isinstance(patch.get(part, {}), Mapping):
            raise UsageError(f"{said}.{part} must be a mapping, not {type(patch[part]).__name__}")
    containers = patch.get("spec", {}).get("containers", [])
    if not isinstance(containers, list) or not all(isinstance(container, Mapping) for container in containers):
        raise UsageError(f"{said}.spec.containers must be a list of mappings")
    for container in containers:
        taken = [word for word in _OWN if word in container] if container.get("name", CONTAINER) == CONTAINER else []
        if taken:
            raise UsageError(
                f"{said}.spec.containers: {taken[0]} is reserved by petctl; set what to run with the job's command"
            )
    if any("name" not in container for container in containers):
        named = [{"name": CONTAINER, **container} for container in containers]
        patch = {**patch, "spec": {**patch["spec"], "containers": named}}
    if "restartPolicy" in patch.get("spec", {}):
        raise UsageError(f"{said}.spec.restartPolicy is set by petctl: a pod that ends is replaced by its Job")
    return merged(template, patch)
