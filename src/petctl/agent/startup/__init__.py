"""What the agent slips into the start of the user's own Python: see `sitecustomize/`.

The agent itself only needs to know where this is and how to ask for it. Nothing below runs in the agent's process.
"""

from __future__ import annotations

import os
from typing import Dict, Mapping

VARIABLE = "PETCTL_STARTUP"  # ROLE:VALUE
CHECK = "check"  # then ZYGOTE, if the interpreter runs this at all
ZYGOTE = "zygote"  # the value is the descriptor of its socket
LEARN = "learn"  # the value is the file for the names of imported modules

DIRECTORY = os.path.dirname(os.path.abspath(__file__))  # may lie within petctl-agent.pyz


def environment(env: Mapping[str, str], role: str, value: str) -> Dict[str, str]:
    """The environment that makes a Python process do this first; it takes it out again before anything else runs."""
    path = [part for part in (DIRECTORY, env.get("PYTHONPATH")) if part]
    return {**env, VARIABLE: f"{role}:{value}", "PYTHONPATH": os.pathsep.join(path)}
