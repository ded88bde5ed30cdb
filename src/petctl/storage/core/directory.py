"""A grant that is a directory of this machine: the same verbs as for a bucket (`objects.py`), by plain copies.

A file appears under its name when it is whole.
"""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from typing import Callable, Iterator, Sequence

from petctl.errors import NoSuchPlace, Refused
from petctl.files import replacing
from petctl.storage.core.body import Body, local_error, opened
from petctl.storage.core.endpoint import PART_SUFFIX, Entry
from petctl.storage.core.grants import check_path
from petctl.storage.core.incoming_file import Incoming


class Directory:
    """The files below a directory. `base` must be there already: it shows that this is the machine that is meant."""

    def __init__(self, root: str, base: str, moved: Callable[[int], None]) -> None:
        self._root, self._base, self._moved = root, base, moved

    def shown(self, path: str) -> str:
        """A file, as people write it."""
        return os.path.join(self._root, path)

    def entries(self) -> Iterator[Entry]:
        """Everything below it, in order; links to files count as files, links to directories are left out."""
        self._check()
        for folder, folders, files in os.walk(self._root):
            folders.sort()
            for name in sorted(files):
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError, Refused):
                    found = os.stat(path)
                    if stat.S_ISREG(found.st_mode) and not name.endswith(PART_SUFFIX):
                        relative = check_path(os.path.relpath(path, self._root))
                        yield Entry(relative, found.st_size, found.st_mtime, _tag(found))

    def sign_ahead(self, method: str, paths: Sequence[str]) -> None:
        """Files need no signatures."""

    def put(self, path: str, body: Body) -> str:
        """Writes a file beside its name, then gives it that name; its tag."""
        self._check()
        target = os.path.join(self._root, check_path(path))
        folder, name = os.path.split(target)
        draft = os.path.join(folder, f".{name[:100]}.{uuid.uuid4().hex[:8]}{PART_SUFFIX}")
        try:
            os.makedirs(folder, exist_ok=True)
            with replacing(target, draft=draft) as file:
                for block in body.pieces():
                    file.write(block)
                    self._moved(len(block))
                file.flush()
                tag = _tag(os.fstat(file.fileno()))
        except OSError as error:
            raise local_error(error, target) from None
        return tag

    def read(self, entry: Entry, incoming: Incoming) -> None:
        """Copies a file out."""
        self._check()
        with opened(os.path.join(self._root, check_path(entry.path)), entry.size) as body:
            for block in body.pieces():
                incoming.write(block)
                self._moved(len(block))

    def remove(self, path: str) -> None:
        """Removes a file; one that is not there is as good."""
        self._check()
        try:
            os.unlink(os.path.join(self._root, check_path(path)))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise local_error(error, self.shown(path)) from None

    def _check(self) -> None:
        if not os.path.isdir(self._base):
            raise NoSuchPlace(f"the directory {self._base} does not exist on this machine ({os.uname().nodename})")


def _tag(found: os.stat_result) -> str:
    return f"{found.st_mtime_ns:x}-{found.st_size:x}"
