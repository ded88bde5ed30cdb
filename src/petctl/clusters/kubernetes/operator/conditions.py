"""The conditions of an ElasticJob's status: what holds, since when, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from petctl.kube.objects import written

CREATED, RUNNING, RESTARTING, SUSPENDED, SUCCEEDED, FAILED = (
    "Created",
    "Running",
    "Restarting",
    "Suspended",
    "Succeeded",
    "Failed",
)


def holds(status: Mapping[str, Any], kind: str) -> bool:
    """Is it so?"""
    return any(entry["type"] == kind and entry["status"] == "True" for entry in status.get("conditions") or ())


def has_ended(status: Mapping[str, Any]) -> bool:
    """Is the job over? Nothing takes that back."""
    return holds(status, SUCCEEDED) or holds(status, FAILED)


class Conditions:
    """Those of one status, being changed."""

    def __init__(self, status: Mapping[str, Any], now: float, generation: int) -> None:
        self._entries = {entry["type"]: dict(entry) for entry in status.get("conditions") or ()}
        self._now, self._generation = written(now), generation

    def set(self, kind: str, true: bool, reason: str, message: str = "") -> None:
        """Says whether it holds; one that never held is not mentioned as false."""
        before = self._entries.get(kind)
        if before is None and not true:
            return
        value = str(true)
        since = before["lastTransitionTime"] if before and before["status"] == value else self._now
        if before and before["status"] == value and not true:
            return  # why it ceased is what people want to read
        self._entries[kind] = {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
            "observedGeneration": self._generation,
        }

    def all(self) -> list[dict[str, Any]]:
        """As the status holds them."""
        return list(self._entries.values())
