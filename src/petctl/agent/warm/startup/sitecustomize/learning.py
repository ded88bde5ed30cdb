"""Notes which modules a worker imports, and in which state of the process, for the next zygote to do the same.

    PID NAME        it is about to be imported ...
    PID {...}       ... and, before that, in what the process differs from its start, where that has changed
    PID !TEXT       an import that was made ahead did not fit

Only what is really imported counts: many libraries look for optional packages (importlib.util.find_spec) that the
script never uses. Nothing here may disturb the worker: it holds no descriptor, starts no thread, hides its errors, and
loads next to nothing that a Python has not loaded anyway, or it would delay every first start.
"""

from __future__ import annotations

import os
import time

from .import_hook import Hook, importing_module, installed_places
from .process_state import Start

TYPE_CHECKING = False  # typing itself is not loaded by every Python
if TYPE_CHECKING:
    from typing import Any, Optional

    from .process_state import State

_OF_SITE = ("sitecustomize", "usercustomize")  # any Python looks for them
_SECONDS = 120.0  # what is imported later than this is no part of starting up


class Notes:
    """What one worker notes."""

    def __init__(self, path: str, start: Start) -> None:
        self._path, self._start = path, start
        self._process = os.getpid()  # forks of the worker are not asked: what they import is their own business
        self._end = time.monotonic() + _SECONDS
        self._places = installed_places()
        self._state: Optional[State] = None

    def see(self, name: str, frame: Any) -> None:
        """A module is about to be looked for."""
        if self._path and name not in _OF_SITE and os.getpid() == self._process:
            try:
                self._write(self._new_state(frame), name)
            except Exception:
                self._path = ""

    def remark(self, state: State, name: str, text: str) -> None:
        """An import that was made ahead does not fit this state."""
        if self._path and os.getpid() == self._process:
            self._state = state
            self._write(state, name, "!" + text)

    def _new_state(self, frame: Any) -> Optional[State]:
        """None: it is the same as before. Settings change outside of modules' imports, and are looked at only there."""
        within = importing_module(frame, self._places)
        if self._start.unchanged() and within:
            return None
        state = self._start.now(with_settings=not within)
        if within and self._state and "settings" in self._state:
            state["settings"] = self._state["settings"]
        if state == self._state:
            return None
        self._state = state
        return state

    def _write(self, state: Optional[State], *lines: str) -> None:
        if time.monotonic() > self._end:
            raise TimeoutError
        text = "".join(f"{self._process} {line}\n" for line in lines)
        if state is not None:
            text = f"{self._process} {_as_json(state)}\n{text}"
        # Opened each time: a script may close every descriptor it does not know, and get the number for its own.
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(file, text.encode("utf-8", "surrogateescape"))
        finally:
            os.close(file)


def note_imports(path: str) -> None:
    """From now on they go to this file."""
    Hook(Notes(path, Start()).see)


def _as_json(value: Any) -> str:
    """Without the module, which may not be loaded: texts, numbers, None, lists and objects with texts as names."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_as_json(str(name))}:{_as_json(each)}" for name, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_as_json, value)) + "]"
    if isinstance(value, str):
        return (
            '"'
            + "".join(_SPECIAL.get(each) or (each if each.isprintable() else _escaped(each)) for each in value)
            + '"'
        )
    return "null" if value is None else str(int(value))


_SPECIAL = {'"': '\\"', "\\": "\\\\"}


def _escaped(each: str) -> str:
    number = ord(each)
    if number < 0x10000:
        return f"\\u{number:04x}"
    number -= 0x10000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"
