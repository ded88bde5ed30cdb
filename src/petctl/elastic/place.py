"""This worker's place in the round, as its launcher wrote it into the environment. Nothing here waits or connects.

petctl, torchrun and the user's own launchers use the same names; without a launcher a worker is a world of its own.
"""

from __future__ import annotations

import os
from typing import Tuple


def rank() -> int:
    """This worker's number among all of the round, from 0."""
    return int(os.environ.get("RANK") or 0)


def world_size() -> int:
    """How many workers the round has."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def round_number() -> int:
    """petctl's number of the round; 0 before the first, and under any other launcher."""
    return int(os.environ.get("PETCTL_ROUND") or 0)


def epoch_and_round() -> Tuple[int, int]:
    """Where this worker stands in the life of its job; torchrun's restarts count as rounds."""
    epoch = int(os.environ.get("PETCTL_EPOCH") or 0)
    return epoch, round_number() or int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0)


def job() -> str:
    """The job this worker belongs to; empty under any other launcher."""
    return os.environ.get("PETCTL_JOB_ID", "")
