"""Where petctl keeps its state: $PETCTL_HOME, by default ~/.local/state/petctl."""

from __future__ import annotations

import os
from pathlib import Path


def petctl_home() -> Path:
    """The directory; made when something is first written to it."""
    given = os.environ.get("PETCTL_HOME")
    if given:
        return Path(given).expanduser().absolute()
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "petctl"
