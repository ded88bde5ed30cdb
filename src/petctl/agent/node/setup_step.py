"""The step that makes a node ready, a process of its own: installs the code's requirements, then runs the job's line.

Nodes that share a directory take turns, so that two never build the same thing at the same moment. It runs under the
agent's interpreter and must not touch what the job's own processes inherit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import List, Sequence

from petctl.agent.data.new_files import note_built
from petctl.agent.node.native import own_words
from petctl.agent.node.requirements import make
from petctl.files import locked

_PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from petctl.agent.node.setup_step import main; main()"


def argv(lock: str, line: str, copy: str, python: str = "", requirements: str = "", environment: str = "") -> List[str]:
    """The command line of this step. `copy`: of the job's code, if it has one."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    here = os.path.dirname(package)  # a directory, or the pyz
    return [*own_words(), "-c", _PROGRAM, here, lock, line, copy, python, requirements, environment]


def main() -> None:
    """Runs it; exits with the code of what failed."""
    sys.exit(prepare(sys.argv[1:]))


def prepare(words: Sequence[str]) -> int:
    """The exit code: a signal's as a shell gives it."""
    lock, line, copy, python, requirements, environment = words
    code = make(python, requirements, environment) if requirements else 0
    if code == 0 and line:
        with locked(lock):
            code = subprocess.call(["/bin/sh", "-c", line])
            if code == 0 and copy:
                note_built(copy)
    return code if code >= 0 else 128 - code
