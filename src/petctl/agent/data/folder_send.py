"""Sends what jobs changed in the copy of a folder to its store, while they run and when they have ended.

A file is sent when it was the same at two looks, or once a minute as it is while it goes on changing; the last look
sends everything. What is in the store and is not changed here is left alone. Where files that a job removes are to be
removed in the store too (`sync`), that holds for files that came from there or were sent from here, and only when they
are missing at two looks.

Several nodes, and jobs, may look after one copy: whoever holds its lock sends, the others find nothing left to do.
"""

from __future__ import annotations

import os
import time
from typing import Callable, Dict, List, Set, Tuple

from petctl.agent.data.folder_copy import Copy, Known
from petctl.agent.data.folder_fetch import SIGNED_AHEAD
from petctl.agent.data.parallel import together
from petctl.errors import Damaged, PetctlError, Refused, StoreError
from petctl.storage.core.files import Depot
from petctl.storage.core.grants import check_path

CHANGING = 60.0  # seconds after which a file that goes on changing is sent as it is
AT_ONCE = 4
_FINAL_LOOKS = 3  # for files that change while they are sent


class Sender:
    """The way up from one copy."""

    def __init__(
        self, copy: Copy, depot: Depot, grant: str, removes: bool, given_up: Callable[[], bool] = lambda: False
    ) -> None:
        self._copy, self._depot, self._grant, self._removes, self._given_up = copy, depot, grant, removes, given_up
        self._seen: Dict[str, Tuple[int, int]] = {}  # size and time at the last look
        self._waits: Dict[str, float] = {}  # since when it changes and was not sent
        self._missing: Set[str] = set()  # at the last look
        self._unreadable: List[str] = []  # at this look, with the reason
        self._root = _identity(copy.files)

    def look(self) -> int:
        """Sends what is due; how many files. Does nothing while another process is at it."""
        with self._copy.locked(wait=False) as alone:
            return self._pass(last=False) if alone else 0

    def last_look(self) -> int:
        """Sends all that is not sent; how many files."""
        with self._copy.locked(self._given_up):
            count = 0
            for _ in range(_FINAL_LOOKS):
                count += self._pass(last=True)
                if not self._waits:
                    return count
            raise Damaged(f"{min(self._waits)} keeps changing while it is uploaded")

    def _pass(self, last: bool) -> int:
        copy, now = self._copy, time.monotonic()
        copy.index.load()
        found = dict(copy.walk())
        due: List[str] = []
        seen: Dict[str, Tuple[int, int]] = {}
        refused = [path for path in found if not _can_be_sent(path)]
        for path, facts in found.items():
            if copy.is_as_known(path, facts) or path in refused:
                self._waits.pop(path, None)
                continue
            seen[path] = (facts.st_size, facts.st_mtime_ns)
            since = self._waits.setdefault(path, now)
            if last or self._seen.get(path) == seen[path] or now - since >= CHANGING:
                due.append(path)
        self._seen, self._unreadable = seen, []
        self._waits = {path: since for path, since in self._waits.items() if path in found}
        for start in range(0, len(due), SIGNED_AHEAD):
            some = due[start : start + SIGNED_AHEAD]
            self._depot.sign_ahead(self._grant, "PUT", some)
            together(self._send, some, AT_ONCE, self._given_up)
        if self._removes:
            self._remove(set(found), last)
        if due:
            copy.say_about(bytes=sum(facts.st_size for facts in found.values()))
        if self._unreadable:
            raise PetctlError(self._unreadable[0])
        if refused:
            check_path(refused[0])
        return len(due)

    def _send(self, path: str) -> None:
        file = os.path.join(self._copy.files, path)
        try:
            before = os.stat(file)
            tag = self._depot.put(self._grant, path, file, before.st_size)
            after = os.stat(file)
        except (FileNotFoundError, Damaged):
            return  # removed or changed meanwhile: the next look knows more
        except StoreError:
            raise  # all others would meet the same
        except PetctlError as error:
            if os.path.exists(file):
                self._unreadable.append(str(error))
            self._waits.pop(path, None)
            return
        if (before.st_size, before.st_mtime_ns, before.st_ino) == (after.st_size, after.st_mtime_ns, after.st_ino):
            self._copy.index.note(path, Known(after.st_size, after.st_mtime_ns, tag))
            self._waits.pop(path, None)
        else:
            self._waits[path] = time.monotonic()

    def _remove(self, found: Set[str], last: bool) -> None:
        if _identity(self._copy.files) != self._root:
            raise PetctlError(f"{self._copy.files} was removed or replaced; its files stay in the store")
        missing = {path for path in self._copy.index.paths() if path not in found}
        for path in sorted(missing if last else missing & self._missing):
            self._depot.remove(self._grant, path)
            self._copy.index.note(path, None)
        self._missing = missing


def _can_be_sent(path: str) -> bool:
    try:
        check_path(path)
    except Refused:
        return False
    return True


def _identity(path: str) -> Tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0)
    return (found.st_dev, found.st_ino)
