"""This worker's place in the round, as its launcher wrote it into the environment. Nothing here waits or connects.

petctl, torchrun and the user's own launchers use the same names; without a launcher a worker is a world of its own.
"""

from __future__ import annotations

import os


def rank() -> int:
    """This worker's number among all of the round, from 0."""
    return int(os.environ.get("RANK") or 0)


def world_size() -> int:
    """How many workers the round has."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def round_number() -> int:
    """petctl's number of the round; 0 before the first, and under any other launcher."""
    return int(os.environ.get("PETCTL_ROUND") or 0)
