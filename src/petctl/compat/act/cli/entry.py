"""From the shell's words to the exit code: help and version at once, the rest by click."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from petctl.compat.act.cli.verbs import overview
from petctl.compat.batchai.cli.verbs import answer_at_once


def start(program: str, words: Sequence[str] | None) -> NoReturn:
    """Runs one command line, under the name that was typed."""
    given = list(sys.argv[1:] if words is None else words)
    answer_at_once(program, given, overview)
    try:
        from petctl.cli.failures import run_to_exit_code
        from petctl.compat.act.cli.flags import root

        code = run_to_exit_code(given, root(program), program)
    except KeyboardInterrupt:  # while it was still importing
        code = 130
    sys.exit(code)
