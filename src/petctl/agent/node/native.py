"""The few Linux calls that Python's library does not offer, through ctypes; and the words that start this Python again.

Every function says by its result whether the system could do it, so that the callers keep working on other systems.
Policy (whom to kill, which files to cut) lives with the callers, not here.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Callable, Dict, List, Optional

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_FALLOC_FL_KEEP_SIZE = 1
_FALLOC_FL_PUNCH_HOLE = 2

IN_MODIFY = 0x2
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000

_LINUX = sys.platform.startswith("linux")
_functions: Dict[str, Any] = {}


def _function(name: str, *arguments: str) -> Any:
    """A function of the C library, by the ctypes names of its arguments; None where this system is not Linux."""
    if not _LINUX:
        return None
    if name not in _functions:
        import ctypes

        # prctl also runs between fork and exec, where letting go of the interpreter lock and taking it again is unsafe.
        library = ctypes.PyDLL(None) if name == "prctl" else ctypes.CDLL(None)
        function = getattr(library, name)
        function.argtypes = [getattr(ctypes, argument) for argument in arguments]
        _functions[name] = function
    return _functions[name]


def _prctl() -> Any:
    return _function("prctl", "c_int", "c_ulong", "c_ulong", "c_ulong", "c_ulong")


def set_child_subreaper(wanted: bool) -> bool:
    """Lets orphaned descendants become this process's children instead of init's; False where that cannot be had."""
    prctl = _prctl()
    return prctl is not None and prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0) == 0


def die_with_parent() -> Optional[Callable[[], None]]:
    """What a new process runs before exec so that it does not outlive the process that called this."""
    prctl = _prctl()
    if prctl is None:
        return None
    parent, number = os.getpid(), int(signal.SIGKILL)

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above
            os._exit(128 + number)

    return bind


def punch_hole(fd: int, offset: int, length: int) -> bool:
    """Gives the disk space of a part of a file back without moving the rest; False where the file system cannot."""
    fallocate = _function("fallocate", "c_int", "c_int", "c_int64", "c_int64")
    mode = _FALLOC_FL_PUNCH_HOLE | _FALLOC_FL_KEEP_SIZE
    return fallocate is not None and fallocate(fd, mode, offset, length) == 0


def inotify_open() -> int:
    """A new inotify descriptor, or -1."""
    open_it = _function("inotify_init1", "c_int")
    return -1 if open_it is None else int(open_it(IN_NONBLOCK_CLOEXEC))


def inotify_watch(fd: int, path: str, mask: int) -> int:
    """A watch descriptor, or -1."""
    return int(_function("inotify_add_watch", "c_int", "c_char_p", "c_uint32")(fd, os.fsencode(path), mask))


def words_of(directory: str) -> List[str]:
    """The words that start a Python which was brought into a container (agent/workers/python_copy.py)."""
    own, library = os.path.join(directory, "bin"), os.path.join(directory, "lib")
    return [os.path.join(own, "loader"), "--library-path", library, os.path.join(own, "python3"), "-I"]


def own_words() -> List[str]:
    """The words that start the interpreter which runs this."""
    words = words_of(os.path.dirname(os.path.dirname(sys.executable)))
    return words if os.path.exists(words[0]) else [sys.executable, "-I"]
