"""The TCP connections of this process's torch groups, and how to cut them while the main thread waits in a collective.

torch's own abort does not bring back a thread that waits in a gloo collective; a shut connection does, at once. So
this notes which sockets appear while a group or its store is being made (`watching`), by descriptor and inode: a
descriptor that was closed and given to somebody else is never touched. Python's own sockets, made by other threads
meanwhile, are not the group's. Listening sockets stay: gloo ends the process when one fails.

`cut` may be called from any thread, also while a group is being made; from then on every new connection is cut too,
until `forget`. It knows nothing of torch.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
import weakref
from typing import Any, Iterator, Set, Tuple

Known = Tuple[int, int]  # descriptor, inode


class Connections:
    """Those of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ours: Set[Known] = set()
        self._before: Set[Known] = set()
        self._foreign: Any = weakref.WeakSet()  # Python's sockets that were made while we watched
        self._watching = 0
        self._cut = False

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Connections that appear meanwhile belong to the groups."""
        with self._lock:
            self._watching += 1
            if self._watching == 1:
                self._before = _sockets()
                restore = _note_python_sockets(self._foreign)
        try:
            yield
        finally:
            with self._lock:
                self._watching -= 1
                if self._watching == 0:
                    self._ours |= self._appeared()
                    restore()
                    if self._cut:
                        _shut(self._ours)

    def cut(self) -> None:
        """Shuts them all: whoever waits on one, here or at its other end, gets an error now."""
        with self._lock:
            self._cut = True
            if self._watching:
                self._ours |= self._appeared()
            _shut(self._ours)

    def forget(self) -> None:
        """The groups are gone; the next ones start afresh."""
        with self._lock:
            self._ours.clear()
            self._cut = False

    def _appeared(self) -> Set[Known]:
        foreign = {made.fileno() for made in list(self._foreign)}
        return {known for known in _sockets() - self._before if known[0] not in foreign}


def _sockets() -> Set[Known]:
    """Every socket of this process."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            status = os.fstat(int(name))
        except OSError:
            continue
        if stat.S_ISSOCK(status.st_mode):
            found.add((int(name), status.st_ino))
    return found


def _shut(known: Set[Known]) -> None:
    for descriptor, inode in known:
        try:
            copy = os.dup(descriptor)  # from here on nobody can give the number to another file
        except OSError:
            continue
        try:
            if os.fstat(copy).st_ino == inode:
                _shut_one(copy)
        finally:
            os.close(copy)


def _shut_one(descriptor: int) -> None:
    end = socket.socket(fileno=os.dup(descriptor))
    with end:
        try:
            listening = end.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if end.family in (socket.AF_INET, socket.AF_INET6) and not listening:
                end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # its other end was faster


def _note_python_sockets(noted: Any) -> Any:
    """Notes every Python socket from now on; the answer ends that."""
    original = socket.socket.__init__

    def noting(self: socket.socket, *words: Any, **named: Any) -> None:
        original(self, *words, **named)
        noted.add(self)

    def restore() -> None:
        socket.socket.__init__ = original  # type: ignore[method-assign]
        noted.clear()

    socket.socket.__init__ = noting  # type: ignore[method-assign]
    return restore
