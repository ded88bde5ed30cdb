"""A node's private directory: short enough a path for a Unix socket, closed to other users, gone with the node.

    PRIVATE/agent.sock          where the workers reach their agent (channel.py)
    PRIVATE/library/petctl      this very petctl, and nothing else of what is installed beside it
    PRIVATE/mpi                 what mpirun needs (mpi_round.py); its shared memory is in /dev/shm/NAME-mpi

The guardian makes it and removes it. A node with a state directory has the same one in each of its lives, and the
state directory's lock makes it that node's alone: what a life that was cut short left there is found by the next one.

A node works without it, only that its workers cannot talk to it: nothing here raises.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Callable, List

from petctl import __version__

SOCKET = "agent.sock"
MPI = "mpi"
_LIBRARY = "library"
_LONGEST = 107 - len("/" + SOCKET)  # what the address of a Unix socket can hold


def make(state_dir: str) -> str:
    """An empty directory that only this user can enter, or an empty string where none can be had."""
    name = name_of(state_dir) if state_dir else f"petctl-{os.urandom(6).hex()}"
    for parent in _parents():
        path = os.path.join(parent, name)
        if len(os.fsencode(path)) > _LONGEST:
            continue
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not _is_own(path):
                continue
            _clear(path)
        except OSError:
            continue
        return path
    return ""


def remove(path: str) -> None:
    """Removes what `make` made and what was put there."""
    if path:
        _clear(path)
        _quietly(os.rmdir, path)


def remove_of(state_dir: str) -> None:
    """The same for a node that is dead and could not do it itself."""
    for parent in _parents():
        path = os.path.join(parent, name_of(state_dir))
        if _is_own(path):
            remove(path)


def name_of(state_dir: str) -> str:
    """The name of the private directory of the node with this state directory."""
    from hashlib import sha256

    return f"petctl-{sha256(os.fsencode(os.path.realpath(state_dir))).hexdigest()[:16]}"


def library(private: str, python: str) -> str:
    """What to put on a worker's PYTHONPATH so that it finds this petctl; empty where it has it, or cannot."""
    if python and _has_petctl(python):
        return ""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parent = os.path.dirname(package)
    if os.path.isfile(parent):
        return parent  # petctl-agent.pyz
    if not private:
        return ""
    # Not the package's parent: where petctl is installed, everything beside it would hide the user's own packages.
    path = os.path.join(private, _LIBRARY)
    try:
        os.makedirs(path, exist_ok=True)
        os.symlink(package, os.path.join(path, "petctl"))
    except FileExistsError:
        pass
    except OSError:
        return ""
    return path


def shared_memory(private: str) -> str:
    """Where the ranks of an MPI job may share memory on this node."""
    return os.path.join("/dev/shm", os.path.basename(private) + "-mpi")


def clear_mpi(private: str) -> None:
    """Removes what mpirun and its ranks left, whole trees of it."""
    for path in (os.path.join(private, MPI), shared_memory(private)):
        if _is_own(path):
            from shutil import rmtree

            rmtree(path, ignore_errors=True)


def _has_petctl(python: str) -> bool:
    """Is this very version installed for that interpreter? Looked up, because asking it would cost its start-up."""
    from glob import escape, glob
    from shutil import which

    found = which(python)
    prefix = escape(os.path.dirname(os.path.dirname(os.path.abspath(found)))) if found else ""
    return bool(prefix and glob(f"{prefix}/lib/python3*/*-packages/petctl-{__version__}.dist-info"))


def _parents() -> List[str]:
    own = os.environ.get("TMPDIR", "")
    # The path is part of shell scripts and of lists that mpirun splits.
    return [*([own] if re.fullmatch(r"/[\w./+-]*", own) else []), "/tmp", "/dev/shm"]


def _is_own(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _clear(path: str) -> None:
    _quietly(os.unlink, os.path.join(path, SOCKET))
    _quietly(os.unlink, os.path.join(path, _LIBRARY, "petctl"))
    _quietly(os.rmdir, os.path.join(path, _LIBRARY))
    clear_mpi(path)


def _quietly(act: Callable[[str], None], path: str) -> None:
    try:
        act(path)
    except OSError:
        pass  # never was there, or somebody else put something into it
