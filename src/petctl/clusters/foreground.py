"""Runs a command with this process's terminal and waits for it, as a shell would: Ctrl-C is the command's to answer."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from petctl.errors import UsageError


def run_in_foreground(argv: Sequence[str], cwd: str | None = None, env: Mapping[str, str] | None = None) -> int:
    """Its exit code as a shell would say it."""
    try:
        with _left_to_the_command():
            code = subprocess.run(argv, cwd=cwd, env=env, check=False).returncode
    except OSError as error:
        raise UsageError(f"cannot run {argv[0]!r} in {cwd or Path.cwd()}: {error.strerror}") from None
    return code if code >= 0 else 128 - code


@contextmanager
def _left_to_the_command() -> Iterator[None]:
    """The terminal sends the keys' signals to every process in its foreground. A handler, not SIG_IGN: that would be
    inherited by the command."""
    keys = (signal.SIGINT, signal.SIGQUIT) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, lambda *_: None) for number in keys}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
