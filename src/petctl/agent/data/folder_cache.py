"""All copies of folders on this machine: together they stay below a limit, and the least recently used one goes first.

A copy that somebody uses is never thrown away (folder_copy.py), nor one with files that are nowhere else yet.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from typing import Iterator, List, NamedTuple, Tuple

from petctl.agent.data.folder_copy import Copy
from petctl.errors import NoRoom
from petctl.files import is_locked, locked, make_private_directory, release, take_lock
from petctl.text import amount

LIMIT = 50 << 30  # bytes that all copies may have
_GONE = ".gone-"


class CopyState(NamedTuple):
    """A copy as `petctl data cache ls` shows it."""

    copy: Copy
    location: str
    writable: bool
    size: int
    used: float
    in_use: bool


class Cache:
    """All copies of one machine."""

    def __init__(self, root: str, limit: int = LIMIT) -> None:
        self.root, self.limit = root, limit

    def copy(self, location: str, endpoint: str, writable: bool, without: Tuple[str, ...] = ()) -> Copy:
        """The copy of a location; of those that jobs write to there is another one."""
        about = json.dumps([location, endpoint, writable, sorted(without)])
        return Copy(self.root, hashlib.sha256(about.encode()).hexdigest()[:32])

    def make_room(self, own: Copy, need: int, missing: int, what: str) -> None:
        """Throws away what was not used for the longest time until `need` bytes of `own`, of which so many are
        `missing`, have room; NoRoom, with its sentence, when that is not enough. The caller holds the lock of `own`."""
        if need > self.limit:
            raise NoRoom(
                f"{what} has {amount(need)}, but the cache on this machine is limited to "
                f"{amount(self.limit)}; raise `cache:` in petctl.yaml, or map only a part: --folder NAME/PART"
            )
        with self._alone():
            self._sweep()
            others = [state for state in self.states() if state.copy.key != own.key]
            taken = sum(state.size for state in others)
            for state in sorted(others, key=lambda state: state.used):
                if taken + need <= self.limit and self._free() >= missing:
                    break
                if self._remove(state.copy):
                    taken -= state.size
            if taken + need > self.limit:
                raise NoRoom(
                    f"{what} has {amount(need)}; the cache on this machine is limited to "
                    f"{amount(self.limit)}, and other jobs or files not uploaded yet use {amount(taken)} of it. "
                    f"Wait for those jobs, or raise `cache:` in petctl.yaml"
                )
            if self._free() < missing:
                raise NoRoom(
                    f"{amount(missing)} of {what} must be fetched, but the disk of {self.root} has "
                    f"only {amount(self._free())} free; free some space there"
                )
            own.say_about(bytes=need)

    def clear(self) -> Tuple[int, int]:
        """Throws away every copy that nobody uses and that holds nothing of its own; how many, and their bytes."""
        count = size = 0
        with self._alone():
            self._sweep()
            for state in self.states():
                if self._remove(state.copy):
                    count, size = count + 1, size + state.size
        return count, size

    def states(self) -> List[CopyState]:
        """Every copy there is."""
        found = []
        try:
            names = sorted(os.listdir(self.root))
        except FileNotFoundError:
            return []
        for key in names:
            copy = Copy(self.root, key)
            about = copy.about() if os.path.isdir(copy.files) else {}
            if about:
                used = os.stat(copy.used_file).st_mtime if os.path.exists(copy.used_file) else 0.0
                location, size = str(about.get("location", "")), int(about.get("bytes", 0))
                in_use = is_locked(copy.used_file, shared=True)
                found.append(CopyState(copy, location, bool(about.get("writable")), size, used, in_use))
        return found

    def _remove(self, copy: Copy) -> bool:
        """Throws a copy away, unless somebody uses or changes it, or it holds what is nowhere else."""
        with copy.locked(wait=False) as alone:
            if not alone:
                return False
            used = take_lock(copy.used_file, within=0.0)
            if used is None:
                return False
            try:
                if copy.about().get("writable") and copy.changes():
                    return False
                os.rename(copy.directory, os.path.join(self.root, f"{_GONE}{copy.key}-{time.monotonic_ns()}"))
            finally:
                release(used)
        self._sweep()
        return True

    def _sweep(self) -> None:
        """What was thrown away, also by somebody who was killed meanwhile."""
        for name in os.listdir(self.root):
            if name.startswith(_GONE):
                shutil.rmtree(os.path.join(self.root, name), ignore_errors=True)

    def _free(self) -> int:
        found = os.statvfs(self.root)
        return found.f_bavail * found.f_frsize

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        make_private_directory(self.root)
        with locked(os.path.join(self.root, "lock")):
            yield
