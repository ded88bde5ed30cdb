"""The file system of this machine as one end of a transfer. What arrives is `arriving_file.py`'s."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import Iterator, Sequence

from petctl.errors import Damaged
from petctl.storage.core.body import Body, FileSlice, Held, own_buffer
from petctl.storage.core.checksums import MD5, Known, whole_md5
from petctl.storage.core.parts import PART, part_size
from petctl.storage.stores.arriving_file import DONE, PARTIAL, FileSink, explained, forget, put_small
from petctl.storage.stores.endpoint import Entry, Sink
from petctl.storage.stores.location import Location


class LocalFolder:
    """All files of this machine; paths are absolute."""

    def __init__(self) -> None:
        self.location = Location("file", path="/")
        self._open: dict[str, int] = {}
        self._made: set[str] = set()
        self._lock = threading.Lock()

    def entries(self, path: str) -> Iterator[Entry]:
        yield from self._below(path, "", ())

    def own_entries(self, path: str) -> Iterator[Entry]:
        yield from self._below(path, "", None)

    def children(self, path: str) -> Iterator[Entry]:
        for item in self._scan(path):
            if item.is_dir():
                yield Entry(item.name, 0, item.stat().st_mtime, folder=True)
            elif item.is_file() and not _passing(item.name):
                yield _entry(item.stat(), item.name)

    def holds(self, path: str) -> bool:
        return Path(path).is_dir()

    def find(self, path: str) -> Entry | None:
        try:
            found = os.stat(path)  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise explained(error, path) from None
        return _entry(found, path) if stat.S_ISREG(found.st_mode) else None

    def whole(self, entry: Entry) -> Body:
        try:
            file = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.read(file, entry.size + 1)
                now = os.fstat(file)
            finally:
                os.close(file)
        except OSError as error:
            raise explained(error, entry.path) from None
        if len(data) != entry.size or entry.tag not in ("", str(now.st_mtime_ns)):
            raise _changed(entry.path)
        return Held(data)

    def slice(self, entry: Entry, offset: int, length: int) -> Body:
        return FileSlice(self._opened(entry.path), offset, length, entry.path)

    def stream(self, entry: Entry, offset: int, length: int) -> Iterator[memoryview]:
        descriptor, end = self._opened(entry.path), offset + length
        while offset < end:
            piece = own_buffer()[: end - offset]
            count = os.preadv(descriptor, [piece], offset)
            if not count:
                raise _changed(entry.path)
            yield piece[:count]
            offset += count

    def known(self, entry: Entry) -> Known:
        return Known()  # a file says nothing of itself

    def _opened(self, path: str) -> int:
        with self._lock:
            if path not in self._open:
                try:
                    self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                except OSError as error:
                    raise explained(error, path) from None
            return self._open[path]

    def close(self, entry: Entry) -> None:
        with self._lock:
            descriptor = self._open.pop(entry.path, None)
        if descriptor is not None:
            os.close(descriptor)

    def checksum(self, entry: Entry) -> str:
        """MD5 of the file, or of its parts where it is large: what an upload would make of it."""
        if entry.size <= PART:
            return self.whole(entry).sums(MD5).md5.hex()
        part = part_size(entry.size)
        try:
            with open(entry.path, "rb") as file:
                sums = [
                    FileSlice(file.fileno(), offset, min(part, entry.size - offset), entry.path).sums(MD5)
                    for offset in range(0, entry.size, part)
                ]
        except OSError as error:
            raise explained(error, entry.path) from None
        return whole_md5(sums)

    def check_unchanged(self, entry: Entry) -> None:
        now = self.find(entry.path)
        if now is None or (now.size, now.tag) != (entry.size, entry.tag):
            raise _changed(entry.path)

    def put(self, path: str, body: Body, source: Entry) -> None:
        try:
            self._make_folder_of(path)
        except OSError as error:
            raise explained(error, path) from None
        put_small(path, body.read(), source)

    def sink(self, path: str, source: Entry, identity: str) -> Sink | None:
        try:
            self._make_folder_of(path)
            return FileSink(path, source, identity)
        except OSError as error:
            raise explained(error, path) from None

    def tidy(self, path: str) -> None:
        forget(path + DONE)  # it was killed between the file's renaming and the record's end

    def check_may_look(self) -> None:
        pass

    def remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                Path(path).unlink(missing_ok=True)
            except OSError as error:
                raise explained(error, path) from None

    def remove_empty(self, path: str) -> None:
        """Removes a folder and those in it that hold nothing any more; links are removed, never followed."""
        for folder, folders, files in os.walk(path, topdown=False):
            for name in [*folders, *files]:
                item = Path(folder, name)
                if item.is_symlink():
                    item.unlink(missing_ok=True)
            try:
                Path(folder).rmdir()
            except OSError:
                pass  # something of another kind is in it, and stays

    def _make_folder_of(self, path: str) -> None:
        folder = path.rpartition("/")[0] or "/"
        if folder not in self._made:
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103
            self._made.add(folder)

    def _below(self, folder: str, begin: str, above: tuple[tuple[int, int], ...] | None) -> Iterator[Entry]:
        """`above`: the folders that this one lies in, where links are followed."""
        for item in self._scan(folder):
            try:
                if above is None and item.is_symlink() and item.is_dir():
                    continue
                if item.is_dir():
                    found = item.stat()
                    identity = (found.st_dev, found.st_ino)
                    if identity not in (above or ()):  # a link to a folder that it lies in has no end
                        inside = None if above is None else (*above, identity)
                        yield from self._below(item.path, f"{begin}{item.name}/", inside)
                elif item.is_file() and not _passing(item.name):
                    yield _entry(item.stat(), begin + item.name)
            except OSError as error:
                raise explained(error, item.path) from None

    def _scan(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as items:
                return sorted(items, key=lambda item: item.name)
        except OSError as error:
            raise explained(error, folder) from None


def _entry(found: os.stat_result, path: str) -> Entry:
    return Entry(path, found.st_size, found.st_mtime, str(found.st_mtime_ns))


def is_empty(path: str) -> bool:
    """Whether a folder holds nothing at all, told by its first item: there may be very many."""
    try:
        with os.scandir(path) as items:
            return next(items, None) is None
    except OSError:
        return False


def _passing(name: str) -> bool:
    return name.endswith((PARTIAL, DONE))


def _changed(path: str) -> Damaged:
    return Damaged(f"{path} changed while it was read; run the same command again")
