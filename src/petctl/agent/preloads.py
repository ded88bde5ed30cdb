"""What is known about the imports of one command, and where that is kept between runs.

    $XDG_CACHE_HOME/petctl/preload/<sha256 of interpreter, command and directory>.json

    {"python": TEXT, "names": [...], "without": {MODULE: WHY}}

It is only a memory: a file that is missing, damaged or cannot be written means that nothing is known yet. Nothing here
starts a process or decides when to import what.
"""

from __future__ import annotations

import json
import os
from hashlib import sha256
from typing import Dict, Iterable, List, Sequence

_MOST_NAMES = 20_000
_LARGEST_FILE = 4 << 20


class Preloads:
    """The modules that a command imports, in their order, and those that cannot be imported ahead."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.python = ""  # which interpreter all of this is about, in its own words
        self.names: List[str] = []
        self.without: Dict[str, str] = {}
        self._read()

    def _read(self) -> None:
        try:
            with open(self._path, "rb") as file:
                data = json.loads(file.read(_LARGEST_FILE))
            python, names, without = data["python"], data["names"], data["without"]
            if isinstance(python, str) and _are_texts(names) and _are_texts([*without, *without.values()]):
                self.python, self.names, self.without = python, names, without
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass

    def belong_to(self, python: str) -> bool:
        """Whether what is known is about this interpreter. If not, it is forgotten."""
        if self.python and self.python != python:
            self.names, self.without = [], {}
            self.python = python
            return False
        self.python = python
        return True

    def add(self, names: Iterable[str]) -> List[str]:
        """Those of the names that were not known; from now on they are."""
        known = {*self.names, *self.without}
        new = [name for name in dict.fromkeys(names) if name not in known][: max(0, _MOST_NAMES - len(self.names))]
        self.names += new
        return new

    def drop(self, names: Sequence[str]) -> None:
        """They cannot be imported ahead after all, for no reason that has to be remembered."""
        gone = set(names)
        self.names = [name for name in self.names if name not in gone]

    def keep_out(self, modules: Sequence[str], why: str) -> None:
        """From now on these are left to the workers."""
        self.without.update(dict.fromkeys(modules, why))
        self.drop(modules)

    def save(self) -> None:
        """Whole or not at all; other nodes may do the same at the same time, in pods with the same process number."""
        content = {"python": self.python, "names": self.names, "without": self.without}
        draft = f"{self._path}.{os.uname().nodename}.{os.getpid()}"
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            with open(draft, "w", encoding="utf-8") as file:
                json.dump(content, file)
            os.replace(draft, self._path)
        except OSError:
            try:
                os.unlink(draft)
            except OSError:
                pass


def path_of(interpreter: str, argv: Sequence[str], cwd: str) -> str:
    """The file for this command. The interpreter counts with what it is now: a replaced one is another one."""
    try:
        found = os.stat(interpreter)
        identity = [os.path.realpath(interpreter), found.st_mtime_ns, found.st_size]
    except OSError:
        identity = [interpreter]
    key = json.dumps([interpreter, identity, list(argv), cwd])
    cache = os.environ.get("PETCTL_CACHE") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "petctl", "preload", f"{sha256(key.encode('utf-8', 'replace')).hexdigest()}.json")


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
