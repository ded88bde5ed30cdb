"""Waiting for files to change without polling, where Linux's inotify is to be had; polling every 0.1 s elsewhere.

It says only that something changed, and which of the watched directories and files; what that means is the reader's
business. A burst of changes is reported as "anything may have changed" rather than parsed one by one.
"""

from __future__ import annotations

import os
import select
import struct
from typing import Dict, NamedTuple, Optional, Set, Tuple

from petctl.agent.node import native

_EVENT = struct.Struct("iIII")
_BURST = 8192  # bytes of events that are still worth parsing
_POLL = 0.1
_MASK = native.IN_CREATE | native.IN_MOVED_TO | native.IN_MODIFY


class Changes(NamedTuple):
    """What happened. `anything`: too much to name."""

    anything: bool
    names: Set[Tuple[str, str]]  # (directory, name in it)


class Watcher:
    """Watches directories. One thread waits; any thread or signal handler may `wake` it."""

    def __init__(self) -> None:
        self._inotify = native.inotify_open()
        self._paths: Dict[int, str] = {}
        self._blind = self._inotify < 0  # some directory can only be polled
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._poll = select.poll()  # unlike select, not limited to low descriptors
        for fd in (self._inotify, self._wake_read):
            if fd >= 0:
                self._poll.register(fd, select.POLLIN)

    def watch(self, directory: str) -> bool:
        """Begins to watch a directory; False when it does not exist."""
        if not os.path.isdir(directory):
            return False
        if self._inotify >= 0 and directory not in self._paths.values():
            watch = native.inotify_watch(self._inotify, directory, _MASK)
            if watch >= 0:
                self._paths[watch] = directory
            else:
                self._blind = True  # the user's limit of watches is reached
        return True

    def wait(self, seconds: Optional[float]) -> Changes:
        """Until something changes, `wake` is called or the time is over."""
        if self._blind:
            seconds = _POLL if seconds is None else min(seconds, _POLL)
        ready = {fd for fd, _ in self._poll.poll(None if seconds is None else max(0.0, seconds) * 1000)}
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        if self._inotify not in ready:
            return Changes(self._blind, set())
        data = self._drain()
        if data is None or self._blind:
            return Changes(True, set())
        return Changes(False, set(self._parse(data)))

    def _drain(self) -> Optional[bytes]:
        total = b""
        while True:
            try:
                data = os.read(self._inotify, 65536)
            except BlockingIOError:
                return total
            if len(data) > _BURST:
                return None  # the rest wakes us again
            total += data

    def _parse(self, data: bytes) -> Set[Tuple[str, str]]:
        found: Set[Tuple[str, str]] = set()
        at = 0
        while at < len(data):
            watch, _, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            name = data[at : at + length].rstrip(b"\0")
            at += length
            if watch in self._paths:
                found.add((self._paths[watch], os.fsdecode(name)))
        return found

    def wake(self) -> None:
        """Ends the current or the next `wait`."""
        try:
            os.write(self._wake_write, b".")
        except OSError:
            pass  # it is awake, or closed

    def close(self) -> None:
        """Gives its descriptors back."""
        fds = (self._inotify, self._wake_read, self._wake_write)
        self._inotify = self._wake_read = self._wake_write = -1
        for fd in fds:
            if fd >= 0:
                os.close(fd)
