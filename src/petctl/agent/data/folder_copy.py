"""The copy of one folder on this machine: who uses it, and what in it is as in the store.

    ROOT/KEY/files/          the copy
    ROOT/KEY/index           JSON lines: [path, size, time, tag] of each file that is as in the store; [path]: no more
    ROOT/KEY/about.json      of which location, how large, fresh for which jobs
    ROOT/KEY.lock            held by whoever changes the copy or its index
    ROOT/KEY.used            held, shared, by every node that uses the copy; its time says when that was last so

All locks are flocks: they die with their holder. A file that differs from the index was changed here and is not sent
yet. Which copies there are, and which one goes when room is needed, is folder_cache.py; this file knows no stores.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from petctl.errors import GivenUp, PetctlError
from petctl.files import hold, open_lock, read_json, release, replace, wait_for_lock
from petctl.storage.core.body import local_error
from petctl.storage.core.endpoint import PART_SUFFIX

_JOBS = 50  # so many jobs a copy remembers to be fresh for
_PAUSE = 0.1  # seconds between two attempts at a lock


class Known(NamedTuple):
    """A file as it was when it was the same here and in the store."""

    size: int
    time: int  # nanoseconds, of the file here
    tag: str  # of the object; empty: not known


class Index:
    """Which files are as in the store. Every change is a line that is appended, so that a kill loses none."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: Dict[str, Known] = {}
        self._seen: Tuple[int, int] = (0, 0)  # inode, bytes
        self._lock = threading.Lock()

    def load(self) -> None:
        """What is written down now: another process may have changed it. The caller holds the copy's lock."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            self._known, self._seen = {}, (0, 0)
            return
        if (found.st_ino, found.st_size) == self._seen:
            return
        with open(self._path, "rb") as file:
            data = file.read()
        lines = data.split(b"\n")
        self._known = {}
        for line in lines[:-1]:
            try:
                path, *rest = json.loads(line)
            except ValueError:
                continue  # torn by a kill
            if rest:
                self._known[path] = Known(int(rest[0]), int(rest[1]), str(rest[2]))
            else:
                self._known.pop(path, None)
        self._seen = (found.st_ino, found.st_size)
        if len(lines) > 2 * len(self._known) + 1000 or lines[-1]:
            self._write_anew()

    def _write_anew(self) -> None:
        _replace(self._path, b"".join(_line(path, known) for path, known in self._known.items()))
        found = os.stat(self._path)
        self._seen = (found.st_ino, found.st_size)

    def get(self, path: str) -> Optional[Known]:
        return self._known.get(path)

    def paths(self) -> List[str]:
        return list(self._known)

    def note(self, path: str, known: Optional[Known]) -> None:
        """The file is as in the store; None: nothing is known of it any more."""
        with self._lock:
            if known is None and self._known.pop(path, None) is None:
                return
            if known is not None:
                self._known[path] = known
            try:
                with open(self._path, "ab") as file:
                    file.write(_line(path, known))
            except OSError as error:
                raise local_error(error, self._path) from None
            found = os.stat(self._path)
            self._seen = (found.st_ino, found.st_size)


def _line(path: str, known: Optional[Known]) -> bytes:
    return json.dumps([path, *(known or ())]).encode() + b"\n"


class Copy:
    """One folder's copy on this machine."""

    def __init__(self, root: str, key: str) -> None:
        self.key = key
        self.directory = os.path.join(root, key)
        self.files = os.path.join(self.directory, "files")
        self.index = Index(os.path.join(self.directory, "index"))
        self._about = os.path.join(self.directory, "about.json")
        self._lock_file, self.used_file = f"{self.directory}.lock", f"{self.directory}.used"
        self._use = -1

    def use(self) -> None:
        """From now on nobody throws it away, until this process ends or lets go of it. The caller holds its lock."""
        if self._use < 0:
            os.makedirs(os.path.dirname(self.directory), mode=0o700, exist_ok=True)
            self._use = wait_for_lock(self.used_file, shared=True)
        os.utime(self.used_file)

    def let_go(self) -> None:
        """This process does not need it any more."""
        if self._use >= 0:
            with contextlib.suppress(OSError):
                os.utime(self.used_file)
            release(self._use)
            self._use = -1

    def is_mine(self) -> bool:
        """Does nobody but this process use it? The caller uses it, and holds its lock."""
        try:
            return hold(self._use, wait=False)
        finally:
            hold(self._use, shared=True)

    @contextlib.contextmanager
    def locked(self, given_up: Callable[[], bool] = lambda: False, wait: bool = True) -> Iterator[bool]:
        """Alone with the copy; without `wait` it may answer False."""
        os.makedirs(os.path.dirname(self.directory), mode=0o700, exist_ok=True)
        descriptor = open_lock(self._lock_file)
        try:
            pause = threading.Event()
            while not hold(descriptor, wait=False):
                if given_up():
                    raise GivenUp
                if not wait:
                    yield False
                    return
                pause.wait(_PAUSE)
            yield True
        finally:
            release(descriptor)

    def about(self) -> Dict[str, Any]:
        """What is written down about it."""
        try:
            return read_json(self._about)
        except (OSError, ValueError):
            return {}

    def say_about(self, **facts: Any) -> None:
        """Writes it down, with what is known already."""
        os.makedirs(self.files, mode=0o700, exist_ok=True)
        _replace(self._about, json.dumps({**self.about(), **facts}).encode())

    def is_fresh(self, job: str) -> bool:
        """Has this job brought everything already? What it sees does not change because another node starts."""
        return job in self.about().get("fresh", ())

    def made_fresh(self, job: str) -> None:
        self.say_about(fresh=[*self.about().get("fresh", ()), job][-_JOBS:])

    def walk(self) -> Iterator[Tuple[str, os.stat_result]]:
        """Every file of the copy. Links count if they lead to a file of the same copy; links to directories do not."""
        inside = os.path.realpath(self.files) + os.sep
        for folder, folders, names in os.walk(self.files, onerror=_unless_gone):
            folders.sort()
            for name in sorted(names):
                path = os.path.join(folder, name)
                try:
                    if os.path.islink(path) and not os.path.realpath(path).startswith(inside):
                        continue
                    found = os.stat(path)
                except OSError as error:
                    _unless_gone(error)
                    continue
                if stat.S_ISREG(found.st_mode) and not name.endswith(PART_SUFFIX):
                    yield os.path.relpath(path, self.files), found

    def is_as_known(self, path: str, found: os.stat_result) -> bool:
        """Is the file the same as in the store?"""
        known = self.index.get(path)
        return known is not None and (known.size, known.time) == (found.st_size, found.st_mtime_ns)

    def changes(self) -> int:
        """How many files were changed here and are not sent. The caller holds its lock."""
        self.index.load()
        return sum(1 for path, found in self.walk() if not self.is_as_known(path, found))


def _replace(path: str, data: bytes) -> None:
    """Writes a file anew; on a full disk the old one stays."""
    try:
        replace(path, data, draft=f"{path}.new")
    except OSError as error:
        raise local_error(error, path) from None


def _unless_gone(error: OSError) -> None:
    """A file that cannot be looked at must not be taken for one that was removed."""
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise PetctlError(f"{error.filename}: {error.strerror}; petctl cannot list that folder") from None
