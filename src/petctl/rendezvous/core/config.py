"""The bounds of a job's rounds: a module of its own, since whoever lists jobs reads them and needs no rendezvous."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple


@dataclass(frozen=True)
class Config:
    """The bounds of a job's rounds. Seconds."""

    min_nodes: int
    max_nodes: int
    wanted: int
    restarts: int = 3
    retry_on: Tuple[Tuple[int, int], ...] = ()  # ranges of exit codes that are restarted from ...
    retry_causes: Tuple[str, ...] = ()  # ... and known causes, by name; neither: all failures
    silence: float = 5.0
    join_timeout: float = 600.0  # 0: wait for ever
    last_call: float = 0.0
    resize_interval: float = 30.0
    recover_within: float = 0.0  # a new coordinator waits so long for all nodes of the last round; 0: as for silence
    eager: bool = False  # restarts are cheap: go on without nodes that are not ready to train, and take them in later
    stall_after: float = 60.0  # without a step, once steps are reported; 0: wait for ever
    offers: bool = False  # members have to know each other: all reserve, and each place holds what all have offered
    tasks: Tuple[int, ...] = ()  # of each role, 0: one on each node; none: every node has as many workers as it says
