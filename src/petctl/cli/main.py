"""The entry of the command `petctl`: what happens between the shell's words and the exit code.

Help and version are answered here without importing click, so that they come at once. Everything else goes to the
click group in `group.py`, by way of `failures.py`, which turns every error into a sentence and an exit code.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn, Sequence

from petctl.cli.verbs import VERBS, overview


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs one command line and exits with its code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "_PETCTL_COMPLETE" not in os.environ:
        if words in ([], ["--help"], ["-h"]):
            sys.exit(_print(overview()))
        if words[:1] == ["help"] and words[1:2] and words[1] in VERBS:
            words = [*words[1:], "--help"]
        if words == ["--version"]:
            from petctl import __version__

            sys.exit(_print(f"petctl {__version__}"))
    try:
        from petctl.cli.failures import run_to_exit_code

        code = run_to_exit_code(words)
    except KeyboardInterrupt:  # while it was still importing
        code = 130
    sys.exit(code)


def _print(text: str) -> int:
    try:
        print(text, flush=True)
    except OSError as error:
        from petctl.cli.stdout_errors import tell_unwritten

        return tell_unwritten(error, "petctl")
    return 0
