"""From the shell's words to the exit code: help and version at once, the rest by click."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from petctl.cli.compat.act.verbs import overview


def start(program: str, words: Sequence[str] | None) -> NoReturn:
    """Runs one command line, under the name that was typed."""
    given = list(sys.argv[1:] if words is None else words)
    if f"_{program.upper()}_COMPLETE" not in os.environ:
        if given in ([], ["--help"], ["-h"], ["help"]):
            _print(overview(program))
        if given in (["--version"], ["version"]):
            from petctl import __version__

            _print(f"{program} of petctl {__version__}")
    try:
        from petctl.cli.compat.act.flags import root
        from petctl.cli.failures import run_to_exit_code

        code = run_to_exit_code(given, root(program), program)
    except KeyboardInterrupt:  # while it was still importing
        code = 130
    sys.exit(code)


def _print(text: str) -> NoReturn:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)
