"""The command line of `petctl-agent.pyz`: `coordinate`, `keep`, `fill`, `copy-python`, and all that an agent can do."""

from __future__ import annotations

import sys
from typing import List, Optional

from petctl.agent.node.cli import main as agent_main
from petctl.controller.options import USAGE, CoordinateOptions, parse_coordinate
from petctl.errors import InternalError, PetctlError


def main(words: Optional[List[str]] = None) -> int:
    """Runs one command and answers with its exit code."""
    return agent_main(words, {"coordinate": _coordinate, "keep": _keep, "fill": _fill, "copy-python": _copy_python})


def _keep(words: List[str]) -> int:
    from petctl.controller.kept_process import main as keep_main

    return keep_main(words)


def _fill(words: List[str]) -> int:
    from petctl.agent.data.volume_prefetch import main as fill_main

    return fill_main(words)


def _copy_python(words: List[str]) -> int:
    from petctl.agent.workers.python_copy import main as copy_main

    return copy_main(words)


def _coordinate(words: List[str]) -> int:
    if "--help" in words or "-h" in words:
        print(USAGE, end="")
        return 0
    options = parse_coordinate(words)
    from petctl.controller.init_process import keep_alive

    return keep_alive(lambda start, ready: _run(options, start, ready), options.state, options.replacement)


def _run(options: CoordinateOptions, start: int, ready: int) -> int:
    """The coordinator's process. Everything heavy is imported here, so its parent stays small."""
    try:
        from petctl.controller.controller import run

        return run(options, start, ready)
    except PetctlError as error:
        print(f"petctl-agent: {error}", file=sys.stderr)
        return error.code
    except Exception:
        import traceback

        traceback.print_exc()
        print("petctl-agent: internal error; the coordinator will be restarted", file=sys.stderr)
        return InternalError.code
