"""Reads files once: their SHA-256, and while the bytes are there, whether they look like a secret.

hashlib lets go of the interpreter's lock for anything but tiny files, so a few threads read a big tree together. It
must not decide what is read (`tree.py`), nor remember it (`index.py`).
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from petctl.bundle.secret_scan import LARGEST, why_private
from petctl.errors import UsageError

_THREADS = 4
_WORTH_THREADS = 8 << 20  # bytes; below, starting them costs more than it saves
_PIECE = 1 << 20


class Content(NamedTuple):
    """What a file held when it was read; `status` is from before, so it does not fit a file that changed meanwhile."""

    digest: str
    size: int
    private: str
    status: os.stat_result


def open_regular(path: str) -> BinaryIO | None:
    """A file opened for reading; None where it is gone or has become something else. Never waits for a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except PermissionError:
        raise UsageError(f"{path} is not readable by this user; make it readable, or ignore it") from None
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return open(descriptor, "rb", buffering=0)


def read(root: Path, path: str) -> Content | None:
    """What the file holds; None where it is gone."""
    file = open_regular(f"{root}/{path}")
    if file is None:
        return None
    with file:
        before = os.fstat(file.fileno())
        data = file.read(min(before.st_size, LARGEST) + 1)
        digest, size = hashlib.sha256(data), len(data)
        private = why_private(path, data if size <= LARGEST else None)
        while data and size != before.st_size:
            data = file.read(_PIECE)
            digest.update(data)
            size += len(data)
    return Content(digest.hexdigest(), size, private, before)


def state_of(status: os.stat_result) -> tuple[int, int, int, int]:
    """What changes when a file's content does."""
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def read_all(root: Path, files: Sequence[tuple[str, int]]) -> list[Content | None]:
    """The same for many files, given with their sizes."""
    paths = [path for path, _ in files]
    if sum(size for _, size in files) < _WORTH_THREADS:
        return [read(root, path) for path in paths]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as threads:
        return list(threads.map(lambda path: read(root, path), paths))
