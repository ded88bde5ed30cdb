"""Whether the kernel has killed processes for memory where this node's workers run: a SIGKILL tells nothing itself."""

from __future__ import annotations

import os
from typing import List

_ROOT = "/sys/fs/cgroup"
_FULL = 0.99  # version 1 does not count what it refused; pages are had in batches


class MemoryWatch:
    """Remembers how often it has, and tells when it did so again."""

    def __init__(self, proc: str = "/proc", cgroups: str = _ROOT) -> None:
        self._proc, self._cgroups = proc, cgroups
        self._seen = self._kills()

    def killed(self) -> bool:
        """Has it killed anything since this was asked last?"""
        before, self._seen = self._seen, self._kills()
        return self._seen > before

    def limit(self) -> int:
        """The bytes that the own control group may use, where it has wanted more; else 0."""
        for place in self._places():
            counts = dict(line.partition(" ")[::2] for line in _lines(place))
            if counts:
                group, new = os.path.dirname(place), place.endswith("events")
                most = _number(f"{group}/{'memory.max' if new else 'memory.limit_in_bytes'}")
                used = [_number(f"{group}/memory.{kind}max_usage_in_bytes") for kind in ("", "memsw.")]
                return most if (counts.get("oom") != "0" if new else max(used) >= most * _FULL) else 0
        return 0

    def _kills(self) -> int:
        """Of the own control group, else of the machine."""
        for path in (*self._places(), f"{self._proc}/vmstat"):
            for line in _lines(path):
                name, _, number = line.partition(" ")
                if name == "oom_kill" and number.strip().isdigit():
                    return int(number)
        return 0

    def _places(self) -> List[str]:
        places: List[str] = []
        for line in _lines(f"{self._proc}/self/cgroup"):
            number, _, rest = line.strip().partition(":")
            kind, _, path = rest.partition(":")
            path = path.strip("/")
            if "memory" in kind.split(","):
                names = [os.path.join(self._cgroups, "memory", at, "memory.oom_control") for at in (path, "")]
            else:
                names = [os.path.join(self._cgroups, at, "memory.events") for at in (path, "")]
            places += names if number == "0" or "memory" in kind.split(",") else []
        return places


def _number(path: str) -> int:
    words = "".join(_lines(path)[:1])
    return int(words) if words.isdigit() else 0


def _lines(path: str) -> List[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []
