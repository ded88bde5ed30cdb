"""Notes which modules a worker imports, so that the next zygote can import them ahead.

Only what is really imported counts: many libraries look for optional packages (importlib.util.find_spec) that the
script never uses. Nothing here may disturb the worker: it holds no descriptor, starts no thread, hides its errors, and
imports nothing that a Python has not loaded anyway, or it would delay every first start.
"""

import os
import sys
import time

_OF_SITE = ("sitecustomize", "usercustomize")  # any Python looks for them
_SECONDS = 120.0  # what is imported later than this is no part of starting up


class _Notes:
    """A finder that finds nothing: the first to be asked for each module that is not loaded yet."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._process = os.getpid()  # forks of the worker are not asked: what they import is their own business
        self._end = time.monotonic() + _SECONDS

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if self._path and name not in _OF_SITE and os.getpid() == self._process and _is_import():
            self._note(name)

    def _note(self, name: str) -> None:
        try:
            if time.monotonic() > self._end:
                raise TimeoutError
            # Opened each time: a script may close every descriptor it does not know, and get the number for its own.
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                os.write(file, name.encode() + b"\n")
            finally:
                os.close(file)
        except (OSError, ValueError):
            self._path = ""  # it stays in sys.meta_path: taking it out while that is gone through would skip another


def _is_import() -> bool:
    return sys._getframe(3).f_code.co_name == "_find_and_load_unlocked"


def note_imports(path: str) -> None:
    """From now on the names go to this file, a line each."""
    sys.meta_path.insert(0, _Notes(path))
