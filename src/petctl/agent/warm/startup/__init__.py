"""What the agent slips into the start of the user's own Python: see `sitecustomize/`.

The agent itself only needs to know where this is and how to ask for it. Nothing below runs in the agent's process.
"""

from __future__ import annotations

import os
from typing import Dict, Mapping

VARIABLE = "PETCTL_STARTUP"  # ROLE:VALUE
SNAPSHOT = "PETCTL_STARTUP_SNAPSHOT"  # LENGTH:COPYOWN: where the snapshot is, and what it was taken of
STACKS = "PETCTL_STARTUP_STACKS"  # 1: write the stacks to stderr on SIGURG
CHECK = "check"  # then ZYGOTE, if the interpreter runs this at all
ZYGOTE = "zygote"  # the value is the descriptor of its socket
LEARN = "learn"  # the value is the file for the names of imported modules

DIRECTORY = os.path.dirname(os.path.abspath(__file__))  # may lie within petctl-agent.pyz


def environment(env: Mapping[str, str], role: str, value: str) -> Dict[str, str]:
    """The environment that makes a Python process do this first; it takes it out again before anything else runs."""
    return {**_first(env), VARIABLE: f"{role}:{value}"}


def with_snapshot(env: Mapping[str, str], copy: str, own: str) -> Dict[str, str]:
    """The environment of a Python process that is to import the user's project from its snapshot."""
    return {**_first(env), SNAPSHOT: f"{len(copy)}:{copy}{own}"}


def with_stacks(env: Mapping[str, str]) -> Dict[str, str]:
    """The environment of a Python process that can be asked for its stacks by a signal."""
    return {**_first(env), STACKS: "1"}


def _first(env: Mapping[str, str]) -> Dict[str, str]:
    path = [part for part in env.get("PYTHONPATH", "").split(os.pathsep) if part and part != DIRECTORY]
    return {**env, "PYTHONPATH": os.pathsep.join([DIRECTORY, *path])}
