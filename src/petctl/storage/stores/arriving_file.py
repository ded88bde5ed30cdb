"""A file on its way in: written beside its place, under its own name only when it is complete.

A file arrives as NAME.petctl-part in its own directory and is renamed at the end, with the source's time. Beside a
large one lies NAME.petctl-part.done: a line that says what it is a copy of, then `number md5 crc32` for each part that
is in.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import threading
from pathlib import Path
from typing import Any, Iterator, Sequence

from petctl.errors import NoRoom, NoSuchPlace, Refused, StoreError, is_no_room
from petctl.files import hold, release
from petctl.storage.core.checksums import Kinds, Running, Sum
from petctl.storage.core.parts import part_size
from petctl.storage.stores.endpoint import Entry

PARTIAL = ".petctl-part"
DONE = ".petctl-part.done"
_OWN = os.O_CLOEXEC | os.O_NOFOLLOW  # a link of that name was put there by somebody who wants to be written through
_RECORD = re.compile(r"(\d+) ([0-9a-f]{32}|-) ([0-9a-f]{8}|-)\n")


def put_small(path: str, data: Any, source: Entry) -> None:
    """A file that is there in one go. Not by `replace`: its draft has the time and the name of what arrives."""
    partial = path + PARTIAL
    try:
        file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _OWN, 0o666)
        try:
            _write_all(file, data, 0)
            _give_name(file, partial, path, source)
        finally:
            os.close(file)
    except OSError as error:
        forget(partial)
        raise explained(error, path) from None


class FileSink:
    """A large file on its way in."""

    def __init__(self, path: str, source: Entry, identity: str) -> None:
        self._path, self._source = path, source
        self._partial, self._done = path + PARTIAL, path + DONE
        self.part, self.trusted, self.kinds = part_size(source.size), True, Kinds()
        self.there: dict[int, Sum] = {}
        self._lock = threading.Lock()
        # The kernel lets one thread at a time write to a file, and has the others spin: a quarter of all the work.
        self._turn = threading.Lock()
        self._data = _opened(self._partial, os.O_RDWR | os.O_CREAT, path)
        self._record = -1
        try:
            if not hold(self._data, wait=False):
                raise StoreError(f"another petctl is writing {path} right now; wait for it to end")
            self._record = _opened(self._done, os.O_RDWR | os.O_CREAT | os.O_APPEND, path)
            self._take_up(json.dumps({"of": identity, "size": source.size, "part": self.part}) + "\n")
            _reserve(self._data, source.size)
        except BaseException:
            self.leave()
            raise

    def receive(self, first: int, pieces: Iterator[memoryview], kinds: Kinds) -> Iterator[Sum]:
        position = first * self.part
        end = self._end_of_part(position)
        running = Running(kinds)
        for piece in pieces:
            left = piece
            while left:
                now = left[: end - position]
                self._write(now, position)
                running.update(now)
                position, left = position + len(now), left[len(now) :]
                if position == end:
                    yield self._note(position, running.sum())
                    end, running = self._end_of_part(position), Running(kinds)

    def _end_of_part(self, position: int) -> int:
        return min((position // self.part + 1) * self.part, self._source.size)

    def _write(self, data: memoryview, position: int) -> None:
        try:
            with self._turn:
                _write_all(self._data, data, position)
        except OSError as error:
            raise explained(error, self._path) from None

    def _note(self, end: int, known: Sum) -> Sum:
        """A line of the record, for the part that ends here."""
        crc32 = "" if known.crc32 is None else f"{known.crc32:08x}"
        try:
            os.write(self._record, f"{(end - 1) // self.part} {known.md5.hex() or '-'} {crc32 or '-'}\n".encode())
        except OSError as error:
            raise explained(error, self._path) from None
        return known

    def finish(self, sums: Sequence[Sum]) -> None:
        try:
            _give_name(self._data, self._partial, self._path, self._source)
        except OSError as error:
            raise explained(error, self._path) from None
        finally:
            self.leave()
        forget(self._done)

    def discard(self) -> None:
        forget(self._done)
        forget(self._partial)

    def leave(self) -> None:
        with self._lock:
            for descriptor, close in ((self._data, release), (self._record, os.close)):
                if descriptor >= 0:
                    close(descriptor)
            self._data = self._record = -1

    def _take_up(self, header: str) -> None:
        with open(os.dup(self._record), encoding="ascii", errors="replace", newline="") as record:
            record.seek(0)
            lines = record.read().splitlines(keepends=True)
        if not lines or lines[0] != header:
            for descriptor in (self._record, self._data):
                # Not without need: a file that was cut to nothing may be written out as it is closed.
                if os.fstat(descriptor).st_size:
                    os.ftruncate(descriptor, 0)
            os.write(self._record, header.encode())
            return
        for line in lines[1:]:
            if known := _RECORD.fullmatch(line):
                number, md5, crc32 = known.groups()
                self.there[int(number)] = Sum(bytes.fromhex(md5.strip("-")), None if crc32 == "-" else int(crc32, 16))


def _opened(path: str, flags: int, target: str) -> int:
    try:
        return os.open(path, flags | _OWN, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise explained(error, target) from None
        raise


def _reserve(descriptor: int, size: int) -> None:
    """Has the file system find the room at once: writing then costs less, and a full disk is known at the start."""
    if sys.platform == "linux":
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        if libc.fallocate(descriptor, 0, 0, size) and is_no_room(OSError(ctypes.get_errno(), "")):
            raise OSError(errno.ENOSPC, "no room")
        # Not every file system can. The standard library would then write zeros instead, which takes as long as all.


def _write_all(descriptor: int, data: Any, offset: int) -> None:
    view = memoryview(data)
    while view.nbytes:
        count = os.pwrite(descriptor, view, offset)
        view, offset = view[count:], offset + count


def _give_name(file: int, partial: str, path: str, source: Entry) -> None:
    os.utime(file, (source.modified, source.modified))
    os.replace(partial, path)  # noqa: PTH105


def forget(path: str) -> None:
    """Removes what is of no more use, if it can be."""
    try:
        Path(path).unlink(missing_ok=True)
    except OSError:
        pass  # the error that led here says more


def explained(error: OSError, path: str) -> StoreError | NoRoom:
    """The error for people that one of the system stands for."""
    if is_no_room(error):
        return NoRoom(
            f"no space for {path}: the disk is full; free space and run the same command again, it continues from here"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Refused(f"{path}: {error.strerror}; check its permissions")
    if error.errno == errno.ELOOP:
        return StoreError(f"{path}{PARTIAL}: a link lies where the file is to be written; remove it")
    if error.errno == errno.ENOENT:
        return NoSuchPlace(f"{path} does not exist")
    if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        return StoreError(f"{path}: a file and a folder have the same name; remove one of them")
    return StoreError(f"{path}: {error.strerror or error}")
