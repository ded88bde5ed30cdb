"""A full disk: what a job sets aside for its last words while there is room, and how it says them when there is none.

Spares are files with blocks of their own. Text is written into them in place, so workers that fill the disk cannot
take the room in between, as they could if a reserve were deleted first. A spare stands in for one file and is used up
by it; after that only a text that fits the blocks of its predecessor can still be written, over it.

It must not know which files a job has: that is `job_directory.py`.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from petctl.errors import is_no_room, no_room_for

_NO_FALLOCATE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


def spare_of(path: Path) -> Path:
    """The file that is set aside for `path`."""
    return path.with_name(f".{path.name}.spare")


def set_aside(path: Path, size: int) -> None:
    """Takes the blocks that a later text for `path` may need."""
    descriptor = os.open(spare_of(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno not in _NO_FALLOCATE:
            raise
        os.pwrite(descriptor, bytes(size), 0)
    finally:
        os.close(descriptor)


def fill_spare(path: Path, data: bytes) -> Path:
    """The spare of `path`, with `data` in it, synced: ready to take its name."""
    spare = spare_of(path)
    if not _overwrite(spare, data, cut=True):
        raise no_room_for(path)
    return spare


def write_over(path: Path, data: bytes) -> None:
    """Puts `data` over an old text that is not needed any more, where its blocks are enough. A reader may see it torn,
    and looks again."""
    try:
        old = path.stat().st_size
    except FileNotFoundError:
        old = 0
    if not _overwrite(path, data.ljust(old), cut=False):  # in one write: no shorter than before
        raise no_room_for(path)


def _overwrite(path: Path, data: bytes, cut: bool) -> bool:
    """Whether the file had blocks for all of it; with `cut` what lies behind it goes."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        if os.fstat(descriptor).st_blocks * 512 < len(data):
            return False
        written = os.pwrite(descriptor, data, 0)
        if cut:
            os.ftruncate(descriptor, written)
        os.fsync(descriptor)
        return written == len(data)
    except OSError as error:  # a file system that writes elsewhere also what it has room for
        if is_no_room(error):
            return False
        raise
    finally:
        os.close(descriptor)
