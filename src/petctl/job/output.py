"""Where one output of a job lies."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple


class Output(NamedTuple):
    """Where one output of a job lies; the one without an id is everything that has no place of its own."""

    id: str
    location: str
    settings: Dict[str, Any]  # how its store is reached, in the words of `stores:` in the configuration
