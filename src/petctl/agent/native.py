"""The few Linux calls that Python's standard library does not offer, through ctypes.

Every function says by its result whether the system could do it, so that the callers keep working on other systems.
Policy (whom to kill, which files to cut) lives with the callers, not here.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Callable, Optional

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_FALLOC_FL_KEEP_SIZE = 1
_FALLOC_FL_PUNCH_HOLE = 2

IN_MODIFY = 0x2
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE_SELF = 0x400
IN_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000

_library: Any = None


def _libc() -> Any:
    """The C library, loaded once; None where it has none of these calls."""
    global _library
    if _library is None:
        if not sys.platform.startswith("linux"):
            return None
        import ctypes

        # PyDLL keeps the interpreter lock: these calls are short, and one of them runs between fork and exec.
        _library = ctypes.PyDLL(None, use_errno=True)
        _library.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        _library.inotify_add_watch.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]
        _library.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    return _library


def set_child_subreaper(wanted: bool) -> bool:
    """Lets orphaned descendants become this process's children instead of init's; False where that cannot be had."""
    libc = _libc()
    return libc is not None and libc.prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0) == 0


def die_with_parent() -> Optional[Callable[[], None]]:
    """What a new process runs before exec so that it does not outlive the process that called this."""
    libc = _libc()
    if libc is None:
        return None
    parent, prctl, number = os.getpid(), libc.prctl, int(signal.SIGKILL)

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above
            os._exit(128 + number)

    return bind


def punch_hole(fd: int, offset: int, length: int) -> bool:
    """Gives the disk space of a part of a file back without moving the rest; False where the file system cannot."""
    libc = _libc()
    mode = _FALLOC_FL_PUNCH_HOLE | _FALLOC_FL_KEEP_SIZE
    return libc is not None and libc.fallocate(fd, mode, offset, length) == 0


def inotify_open() -> int:
    """A new inotify descriptor, or -1."""
    libc = _libc()
    return -1 if libc is None else int(libc.inotify_init1(IN_NONBLOCK_CLOEXEC))


def inotify_watch(fd: int, path: str, mask: int) -> int:
    """A watch descriptor, or -1."""
    return int(_libc().inotify_add_watch(fd, os.fsencode(path), mask))
