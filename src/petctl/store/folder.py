"""The file system of this machine as one end of a transfer. Files appear under their names only when they are complete.

A file arrives as NAME.petctl-part in its own directory and is renamed at the end, with the source's time. Beside a
large one lies NAME.petctl-part.done: a line that says what it is a copy of, then `number md5` for each part that is in.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import threading
from pathlib import Path
from typing import Iterator, Sequence

from petctl.errors import Damaged, NoRoom, NoSuchPlace, Refused, StoreError, is_no_room
from petctl.store.body import Body, FileSlice, Held
from petctl.store.location import Location
from petctl.store.parts import part_size
from petctl.store.place import Entry, Sink

PARTIAL = ".petctl-part"
DONE = ".petctl-part.done"
_IN_MEMORY = 1 << 20


class Folder:
    """All files of this machine; paths are absolute."""

    def __init__(self) -> None:
        self.location = Location("file", path="/")
        self._open: dict[str, int] = {}
        self._made: set[str] = set()
        self._lock = threading.Lock()

    def entries(self, path: str) -> Iterator[Entry]:
        yield from self._below(path, "", ())

    def own_entries(self, path: str) -> Iterator[Entry]:
        """The same without what lies behind links to folders: what may be removed."""
        yield from self._below(path, "", None)

    def children(self, path: str) -> Iterator[Entry]:
        for item in self._scan(path):
            if item.is_dir():
                yield Entry(item.name, 0, item.stat().st_mtime, folder=True)
            elif item.is_file() and not _passing(item.name):
                yield _entry(item.stat(), item.name)

    def find(self, path: str) -> Entry | None:
        try:
            found = os.stat(path)  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _explained(error, path) from None
        return _entry(found, path) if stat.S_ISREG(found.st_mode) else None

    def whole(self, entry: Entry) -> Body:
        try:
            with open(entry.path, "rb") as file:
                data = file.read(entry.size + 1)
        except OSError as error:
            raise _explained(error, entry.path) from None
        if len(data) != entry.size:
            raise _changed(entry.path)
        return Held(data)

    def slice(self, entry: Entry, offset: int, length: int) -> Body:
        with self._lock:
            if entry.path not in self._open:
                try:
                    self._open[entry.path] = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC)
                except OSError as error:
                    raise _explained(error, entry.path) from None
            return FileSlice(self._open[entry.path], offset, length, entry.path)

    def close(self, entry: Entry) -> None:
        with self._lock:
            descriptor = self._open.pop(entry.path, None)
        if descriptor is not None:
            os.close(descriptor)

    def checksum(self, entry: Entry) -> str:
        """MD5 of the file, or of its parts where it is large: what an upload would make of it."""
        from petctl.store.parts import PART, whole_checksum

        if entry.size <= PART:
            return self.whole(entry).md5().hex()
        part = part_size(entry.size)
        try:
            with open(entry.path, "rb") as file:
                md5s = [
                    FileSlice(file.fileno(), offset, min(part, entry.size - offset), entry.path).md5()
                    for offset in range(0, entry.size, part)
                ]
        except OSError as error:
            raise _explained(error, entry.path) from None
        return whole_checksum(md5s)

    def check_unchanged(self, entry: Entry) -> None:
        now = self.find(entry.path)
        if now is None or (now.size, now.tag) != (entry.size, entry.tag):
            raise _changed(entry.path)

    def put(self, path: str, body: Body, source: Entry) -> None:
        partial = path + PARTIAL
        try:
            self._make_folder_of(path)
            with open(partial, "wb") as file:
                file.write(body.read())
            _give_name(partial, path, source)
        except OSError as error:
            _forget(partial)
            raise _explained(error, path) from None

    def sink(self, path: str, source: Entry, identity: str) -> Sink | None:
        try:
            self._make_folder_of(path)
            return _FileSink(path, source, identity)
        except OSError as error:
            raise _explained(error, path) from None

    def remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                Path(path).unlink(missing_ok=True)
            except OSError as error:
                raise _explained(error, path) from None

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
                raise _explained(error, item.path) from None

    def _scan(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as items:
                return sorted(items, key=lambda item: item.name)
        except OSError as error:
            raise _explained(error, folder) from None


class _FileSink:
    """A large file on its way in."""

    def __init__(self, path: str, source: Entry, identity: str) -> None:
        self._path, self._source = path, source
        self._partial, self._done = path + PARTIAL, path + DONE
        self.part, self.trusted = part_size(source.size), True
        self.there: dict[int, bytes] = {}
        self._lock = threading.Lock()
        self._data = os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._record = -1
        try:
            fcntl.flock(self._data, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._record = os.open(self._done, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND, 0o666)
            self._take_up(json.dumps({"of": identity, "size": source.size, "part": self.part}) + "\n")
        except BaseException as error:
            self.leave()
            if isinstance(error, BlockingIOError):
                raise StoreError(f"another petctl is writing {path} right now; wait for it to end") from None
            raise

    def send(self, number: int, body: Body, md5: bytes) -> None:
        try:
            _write_all(self._data, body.read(), number * self.part)
            os.write(self._record, f"{number} {md5.hex()}\n".encode())
        except OSError as error:
            raise _explained(error, self._path) from None

    def finish(self, md5s: Sequence[bytes]) -> None:
        try:
            os.ftruncate(self._data, self._source.size)
            _give_name(self._partial, self._path, self._source)
        except OSError as error:
            raise _explained(error, self._path) from None
        finally:
            self.leave()
        _forget(self._done)

    def leave(self) -> None:
        with self._lock:
            for descriptor in (self._data, self._record):
                if descriptor >= 0:
                    os.close(descriptor)
            self._data = self._record = -1

    def _take_up(self, header: str) -> None:
        lines = Path(self._done).read_text(encoding="ascii", errors="replace").splitlines(keepends=True)
        if not lines or lines[0] != header:
            os.ftruncate(self._record, 0)
            os.ftruncate(self._data, 0)
            os.write(self._record, header.encode())
            return
        for line in lines[1:]:
            number, _, md5 = line.strip().partition(" ")
            if line.endswith("\n") and number.isdigit() and len(md5) == 32:
                self.there[int(number)] = bytes.fromhex(md5)


def _write_all(descriptor: int, data: object, offset: int) -> None:
    view = memoryview(data)  # type: ignore[arg-type]
    while view.nbytes:
        count = os.pwrite(descriptor, view, offset)
        view, offset = view[count:], offset + count


def _give_name(partial: str, path: str, source: Entry) -> None:
    os.utime(partial, (source.modified, source.modified))
    os.replace(partial, path)  # noqa: PTH105


def _entry(found: os.stat_result, path: str) -> Entry:
    return Entry(path, found.st_size, found.st_mtime, str(found.st_mtime_ns))


def _passing(name: str) -> bool:
    return name.endswith((PARTIAL, DONE))


def _forget(path: str) -> None:
    try:
        Path(path).unlink(missing_ok=True)
    except OSError:
        pass  # the error that led here says more


def _changed(path: str) -> Damaged:
    return Damaged(f"{path} was changed while it was read; run the same command again")


def _explained(error: OSError, path: str) -> StoreError | NoRoom:
    if is_no_room(error):
        return NoRoom(
            f"no room for {path}: the disk is full; make room and run the same command again, it goes on from here"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Refused(f"{path}: {error.strerror}; check who may read and write it")
    if error.errno == errno.ENOENT:
        return NoSuchPlace(f"{path} does not exist")
    if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        return StoreError(f"{path}: a file and a folder of the same name are in each other's way; remove one of them")
    return StoreError(f"{path}: {error.strerror or error}")
