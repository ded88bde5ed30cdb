"""Directories and files that no other user can enter, read or lock, whatever the umask says."""

from __future__ import annotations

import os
import stat


def make_private_directory(path: str | os.PathLike[str]) -> None:
    """Makes a directory, and what is missing above it, for this user alone; one that is there stays as it is."""
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(parent):
        make_private_directory(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def make_private_file(path: str | os.PathLike[str]) -> None:
    """Makes an empty file for this user alone, or closes one that is there: SQLite makes others of its mode."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        # not opened: to close it would drop the locks that this process has on it
        found = os.lstat(path)
        if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077 and found.st_uid == os.geteuid():
            os.chmod(path, 0o600)
