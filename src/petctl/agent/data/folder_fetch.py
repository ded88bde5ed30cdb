"""Brings a folder of a store into its copy on this machine: only what is not there yet, or not any more the same.

Files are replaced by renaming, so whoever reads the old one can go on. Killed at any moment, the next one goes on where
this one was. What was changed here and is not sent yet is never overwritten in a copy that jobs write to; in one that
they only read, the store is right.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Callable, Dict, Sequence

from petctl.agent.data.folder_cache import Cache
from petctl.agent.data.folder_copy import Copy, Known
from petctl.agent.data.parallel import together
from petctl.errors import Damaged, NoSuchPlace, PetctlError
from petctl.storage.core.files import PART_SUFFIX, Depot, Entry

AT_ONCE = 8  # transfers
SIGNED_AHEAD = 500
ATTEMPTS = 3  # at a folder that is being changed meanwhile

Progress = Callable[[int, int], None]  # files that are here, of so many


class Fetch:
    """One folder on its way here."""

    def __init__(
        self,
        copy: Copy,
        cache: Cache,
        depot: Depot,
        grant: str,
        location: str,
        writable: bool,
        without: Sequence[str] = (),
        given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """`without`: paths in it that are other folders."""
        self._copy, self._cache, self._depot, self._grant = copy, cache, depot, grant
        self._location, self._writable, self._without, self._given_up = location, writable, tuple(without), given_up
        self._made: Dict[str, str] = {}

    def bring(self, job: str, progress: Progress) -> None:
        """Makes the copy hold what the store holds, unless this job has done so before. It is used from then on."""
        copy = self._copy
        with copy.locked(self._given_up):
            copy.use()
            copy.say_about(location=self._location, writable=self._writable)
            if copy.is_fresh(job):
                return
            copy.index.load()
            for attempt in range(ATTEMPTS):
                try:
                    self._refresh(progress)
                    break
                except (Damaged, NoSuchPlace):
                    if attempt + 1 == ATTEMPTS or not copy.index.paths():
                        raise
            copy.made_fresh(job)

    def _refresh(self, progress: Progress) -> None:
        wanted = {entry.path: entry for entry in self._depot.entries(self._grant) if self._is_wanted(entry.path)}
        if not wanted and not self._writable:
            raise NoSuchPlace(f"{self._location} is empty or does not exist")
        self._check_names(wanted)
        todo = [entry for entry in wanted.values() if not self._is_here(entry)]
        need = sum(entry.size for entry in wanted.values())
        self._cache.make_room(self._copy, need, sum(entry.size for entry in todo), self._location)
        self._drop_stale(wanted)
        done = len(wanted) - len(todo)
        progress(done, len(wanted))
        counting = threading.Lock()

        def fetch(entry: Entry) -> None:
            nonlocal done
            self._fetch(entry)
            with counting:
                done += 1
                progress(done, len(wanted))

        for start in range(0, len(todo), SIGNED_AHEAD):
            some = todo[start : start + SIGNED_AHEAD]
            self._depot.sign_ahead(self._grant, "GET", [entry.path for entry in some])
            together(fetch, some, AT_ONCE, self._given_up)

    def _is_wanted(self, path: str) -> bool:
        return not path.endswith(PART_SUFFIX) and not any(
            path == other or path.startswith(f"{other}/") for other in self._without
        )

    def _check_names(self, wanted: Dict[str, Entry]) -> None:
        for path in wanted:
            above = path.rpartition("/")[0]
            while above:
                if above in wanted:
                    raise PetctlError(
                        f"{self._location} has a file {above} and a folder of the same name; rename one of them"
                    )
                above = above.rpartition("/")[0]

    def _is_here(self, entry: Entry) -> bool:
        copy = self._copy
        try:
            found = os.stat(os.path.join(copy.files, entry.path))
        except OSError:
            return False
        if not copy.is_as_known(entry.path, found):
            return self._writable  # changed here: it is on its way up
        known = copy.index.get(entry.path)
        return known is not None and (known.size, known.tag) == (entry.size, entry.tag)

    def _drop_stale(self, wanted: Dict[str, Entry]) -> None:
        """What is no longer in the store goes, as long as no other node is reading here."""
        copy = self._copy
        if not copy.is_mine():
            return
        for path in copy.index.paths():
            if path in wanted:
                continue
            file = os.path.join(copy.files, path)
            with contextlib.suppress(OSError):
                if copy.is_as_known(path, os.stat(file)):
                    os.unlink(file)
                    os.removedirs(os.path.dirname(file))
            copy.index.note(path, None)
        os.makedirs(copy.files, mode=0o700, exist_ok=True)

    def _fetch(self, entry: Entry) -> None:
        target = os.path.join(self._folder(os.path.dirname(entry.path)), os.path.basename(entry.path))
        self._depot.fetch(self._grant, entry, target)
        found = os.stat(target)
        self._copy.index.note(entry.path, Known(found.st_size, found.st_mtime_ns, entry.tag))

    def _folder(self, path: str) -> str:
        """A folder of the copy; never through a link that leads out of it."""
        if path not in self._made:
            root = os.path.realpath(self._copy.files)
            folder = os.path.normpath(os.path.join(root, path))
            try:
                os.makedirs(folder, mode=0o755, exist_ok=True)
            except OSError as error:
                raise PetctlError(f"cannot fetch {self._location}/{path} to {folder}: {error.strerror}") from None
            if os.path.realpath(folder) != folder:
                raise PetctlError(f"cannot fetch {self._location}/{path}: {folder} is a link, made by a job")
            self._made[path] = folder
        return self._made[path]
