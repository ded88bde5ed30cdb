"""What a node has beside the usual, for scripts that were written for another system: a module for each.

batchai.py           directories and variables that a Batch AI job expects
batchai_output.py    the files of output that its user looks for

A module has `Site`, which makes it on one node; `round_variables`: what a worker of a round gets because of it; and
`command_environment`: what a command gets that is run beside the workers.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from petctl.job.task import Layout

_MODULES = {"batchai": "petctl.agent.layouts.batchai"}


def layout_module(layout: Layout) -> Any:
    """The module of a task's layout; few jobs have one."""
    return import_module(_MODULES[layout.kind])
