"""Moments as the API writes them (RFC 3339, whole seconds), and as seconds since 1970."""

from __future__ import annotations

from datetime import datetime, timezone


def written(seconds: float) -> str:
    """A moment as it stands in an object."""
    return datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: object) -> float:
    """When that was; 0.0 where it says nothing."""
    return datetime.fromisoformat(str(text)).timestamp() if text else 0.0
