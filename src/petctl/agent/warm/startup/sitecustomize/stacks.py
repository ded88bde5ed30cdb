"""Lets a worker write its stacks to stderr when the agent asks with a signal: it may hang and report nothing more.

SIGURG, because a process that does not expect it ignores it, and one that has a handler of its own must expect it for
no reason. faulthandler's handler runs whatever the interpreter does, holds no descriptor but stderr, and is nothing
that a script would see.
"""

from __future__ import annotations

import sys


def answer_signal() -> None:
    """From now on SIGURG has the stacks of all threads written to descriptor 2."""
    known = "faulthandler" in sys.modules
    try:
        import faulthandler
        from _signal import SIGURG  # type: ignore[import-not-found]

        faulthandler.register(SIGURG, file=2, all_threads=True)
    except (ImportError, AttributeError, ValueError, OSError, RuntimeError):
        pass  # a Python without it, or a worker without stderr
    if not known:
        sys.modules.pop("faulthandler", None)
