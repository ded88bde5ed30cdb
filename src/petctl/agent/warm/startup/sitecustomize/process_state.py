"""What modules may find in their process when they are imported: taken down in a worker, made again in a zygote.

    Start()             what there is now, before the script
    start.now()         in what the process differs from that; {}: in nothing
    start.enter(state)  makes the process differ from it in exactly that; False: that cannot be done from here
    start.unchanged()   is it the same as when this was last asked, as far as that can be said at no cost?

    {"env": {NAME: VALUE or null}, "path": [...], "cwd": PATH, "argv": [...], "filters": [...], "settings": {...}}

Settings can be compared, but not made. Values may be secret: nothing here writes them anywhere.
"""

from __future__ import annotations

import os
import sys

from .process_settings import Parts, cwd, filter_list, filters, make_filters, settings
from .snapshot import in_snapshot

TYPE_CHECKING = False  # typing itself is not loaded by every Python
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Tuple

    State = Dict[str, Any]
else:
    State = dict

_FROM_STATE = ("path", "argv", "cwd", "filters")
_NOTHING = object()


class Start:
    """The process before its script. `own`: variables that each worker has its own value of; they never count."""

    def __init__(self, own: Iterable[str] = ()) -> None:
        self.own = frozenset(own)
        self.env = dict(os.environ)
        self.parts = Parts.read()
        self.imported = self.parts  # what modules that were imported ahead have made of it
        self._filters, self._settings = filters(), settings()
        self._path = [*_head(), *self.parts["path"]]  # as the script will find it
        self._last: Tuple[Any, ...] = ()

    def now(self, with_settings: bool = True) -> State:
        """In what the process differs from its start. Costs some 0.1 ms, without the settings a tenth of that."""
        state: State = {}
        env = changes(self.env, os.environ, self.own)
        if env:
            state["env"] = env
        if sys.path != self._path and [in_snapshot(part) or part for part in map(str, sys.path)] != self._path:
            state["path"] = list(map(str, sys.path))
        if cwd() != self.parts["cwd"]:
            state["cwd"] = cwd()
        if not self._same_arguments():
            state["argv"] = list(map(str, sys.argv))
        found = filters()
        if found != self._filters:
            state["filters"] = found
        values = settings() if with_settings else self._settings
        if values != self._settings:
            state["settings"] = changes(self._settings, values)
        return state

    def unchanged(self) -> bool:
        """Is everything but the settings as when this was last asked?"""
        data: Any = os.environ._data  # type: ignore[attr-defined]
        before, self._last = self._last, (dict(data), list(sys.path), cwd(), list(sys.argv), list(filter_list()))
        return before == self._last

    def enter(self, state: State) -> bool:
        """Makes everything as `state` says, after what imported modules did."""
        wanted = dict(self.env)
        for name, value in state.get("env", {}).items():
            put(wanted, name, value)
        for name, value in changes(dict(os.environ), wanted, self.own).items():
            put(os.environ, name, value)
        parts = {**self.imported, **{name: self.parts[name] for name in _FROM_STATE}, "path": self._path}
        parts.update({name: state[name] for name in ("path", "argv", "cwd") if name in state})
        try:
            Parts.write(Parts.read(), parts)
            make_filters(state.get("filters", self._filters))
        except (OSError, LookupError, AttributeError):
            return False
        return bool(changes(self._settings, settings()) == state.get("settings", {}))

    def leave(self) -> None:
        """Makes everything as it was at the start: what the script does, it will do itself."""
        for name, value in changes(dict(os.environ), self.env, self.own).items():
            put(os.environ, name, value)
        Parts.write(Parts.read(), self.parts)

    def _same_arguments(self) -> bool:
        """runpy puts a file's name in the place of -m."""
        before: List[str] = self.parts["argv"]
        return sys.argv == before or (before[:1] == ["-m"] and sys.argv[1:] == before[1:])


def script_directory() -> str:
    """What the interpreter will put at the head of a worker's sys.path; empty: nothing."""
    if getattr(sys.flags, "safe_path", False) or not sys.argv:
        return ""
    if sys.argv[0] in ("", "-c", "-m"):
        return in_snapshot(cwd()) or cwd()
    return os.path.dirname(os.path.realpath(sys.argv[0]))


def _head() -> List[str]:
    """The first entry of the script's sys.path, as the interpreter makes it."""
    directory = script_directory()
    return [""] if directory and sys.argv[0] == "-c" else [directory] if directory else []


def differences(first: State, second: State) -> List[str]:
    """What differs between two states: variables by their names, the rest by what it is."""
    names = {"path": "sys.path", "cwd": "the working directory", "argv": "sys.argv", "filters": "warnings' filters"}
    found = sorted(changes(first.get("env", {}), second.get("env", {}), missing=_NOTHING))
    found += [name for key, name in names.items() if first.get(key) != second.get(key)]
    return found + sorted(changes(first.get("settings", {}), second.get("settings", {}), missing=_NOTHING))


def changes(before: Any, after: Any, without: Iterable[str] = (), missing: object = None) -> Dict[str, Any]:
    """What makes `after` of `before`; a name that is gone has the value None."""
    found = {name: value for name, value in after.items() if before.get(name, missing) != value and name not in without}
    found.update((name, None) for name in before if name not in after and name not in without)
    return found


def put(variables: Any, name: str, value: Optional[str]) -> None:
    """Sets it, or with None takes it away."""
    if value is None:
        variables.pop(name, None)
    else:
        variables[name] = value
