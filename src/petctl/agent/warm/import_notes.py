"""Where the workers of a node note their imports: a file without a name, in memory only, because states hold secrets.

    Notes.path             what a worker gets, to write to
    Notes.grown()          has anything been written since this was last asked?
    Notes.read()           what is new in it: modules with the states they were imported in, and remarks

What the lines look like is in startup/sitecustomize/learning.py.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, NamedTuple, Set, Tuple

from petctl.agent.warm.preloads import is_state

_MOST = 1 << 24


class Noted(NamedTuple):
    """What workers have noted."""

    imports: List[Tuple[str, Dict[str, Any]]]
    misfits: List[Tuple[str, str]]  # modules that were imported ahead in another state, and in what that differed


class Notes:
    """One such file; it goes with the process."""

    def __init__(self) -> None:
        self._file = os.memfd_create("petctl-imports")
        self._size = self._done = 0
        self._states: Dict[str, Dict[str, Any]] = {}  # by the worker's number
        self._seen: Set[Tuple[str, str]] = set()  # a module that is not there is looked for again and again
        self.path = f"/proc/{os.getpid()}/fd/{self._file}"

    def grown(self) -> bool:
        before, self._size = self._size, os.fstat(self._file).st_size
        return before != self._size

    def read(self) -> Noted:
        data = os.pread(self._file, _MOST, self._done)
        complete = data[: data.rfind(b"\n") + 1]
        self._done += len(complete)
        noted = Noted([], [])
        for line in complete.decode("utf-8", "replace").splitlines():
            worker, _, text = line.partition(" ")
            if text.startswith("{"):
                self._states[worker] = _state(text)
            elif text.startswith("!"):
                name, _, why = text[1:].partition(": ")
                noted.misfits.append((name, why))
                self._seen = {(other, each) for other, each in self._seen if other != worker}  # it begins again
            elif text and (worker, text) not in self._seen:
                self._seen.add((worker, text))
                noted.imports.append((text, self._states.get(worker, {})))
        return noted


def _state(text: str) -> Dict[str, Any]:
    try:
        state = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return state if is_state(state) else {}
