"""The agent's command line: reads the words, becomes the guardian, and lets its child be the agent.

Everything heavy (asyncio, the rendezvous) is imported in that child only, so the guardian stays small.
"""

from __future__ import annotations

import os
import sys
from typing import Callable, List, Mapping, Optional

from petctl.agent.node.options import USAGE, Options, parse_join
from petctl.errors import InternalError, PetctlError, UsageError

Command = Callable[[List[str]], int]


def main(words: Optional[List[str]] = None, others: Optional[Mapping[str, Command]] = None) -> int:
    """Runs one command and answers with its exit code; `others` are commands that are not a node's."""
    words = sys.argv[1:] if words is None else words
    try:
        return _run(words, others or {})
    except PetctlError as error:
        print(f"petctl-agent: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:  # before there was anything to stop
        return 130


def _run(words: List[str], others: Mapping[str, Command]) -> int:
    if words and words[0] in others:
        return others[words[0]](words[1:])
    if not words or "--help" in words or "-h" in words or words[0] == "help":
        _print(USAGE.rstrip("\n"))
        return 0 if words else UsageError.code
    command, rest = words[0], words[1:]
    if command in ("version", "--version"):
        import petctl

        _print(f"petctl {petctl.__version__} (Python {sys.version.split()[0]})")
        return 0
    if command != "join":
        known = ", ".join(["join", *others])
        raise UsageError(f"unknown command {command!r}; use {known}, version or --help")
    return _join(parse_join(rest))


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter would write it once more
        if not isinstance(error, BrokenPipeError):
            raise PetctlError(f"cannot write the output: {error.strerror}") from None


def _join(options: Options) -> int:
    from petctl.agent.node.guardian import Lifeline, guard

    options = options._replace(file=os.path.abspath(options.file))
    _forget_own_locale()

    def run_agent(lifeline: Lifeline) -> int:
        try:
            from petctl.agent.node.agent import run

            return run(options, lifeline)
        except PetctlError as error:
            print(f"petctl-agent: {error}", file=sys.stderr)
            return error.code
        except Exception:
            import traceback

            traceback.print_exc()
            print("petctl-agent: internal error; the workers of this node were stopped", file=sys.stderr)
            return InternalError.code

    return guard(run_agent, options.state_dir, f"{options.node}/{options.incarnation}")


def _forget_own_locale() -> None:
    """Removes LC_CTYPE where the interpreter has set it itself: workers may not know that locale."""
    try:
        with open("/proc/self/environ", "rb") as file:
            if b"\0LC_CTYPE=" not in b"\0" + file.read():
                os.environ.pop("LC_CTYPE", None)
    except OSError:
        pass
