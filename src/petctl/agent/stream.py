"""The live stream of `--stream`: the local workers' lines, each with its rank, on the agent's own stdout.

The files are the truth; this is a convenience for whoever watches. So it runs in threads of its own that share nothing
with the control connection, and when its reader is slow it leaves lines out and says how many: it never falls behind.
"""

from __future__ import annotations

import os
import select
import threading
import time
from typing import Callable, Optional

from petctl.agent.logfiles import LogName
from petctl.agent.logs import Chunk, LogFollower

BEHIND_LIMIT = 8 << 20  # bytes read but not yet taken by the reader


class LinePrefixer:
    """Puts `[rank]: ` before every line, and never two ranks on one line."""

    def __init__(self) -> None:
        self._unfinished: Optional[LogName] = None

    def prefix(self, chunk: Chunk) -> bytes:
        """The chunk as it is shown."""
        label = b"[%d]: " % chunk.name.rank
        data = chunk.data
        ends = data.endswith(b"\n")
        body = (data[:-1] if ends else data).replace(b"\n", b"\n" + label)
        if self._unfinished != chunk.name:
            body = label + body
            if self._unfinished is not None:
                body = b"\n" + body
        self._unfinished = None if ends else chunk.name
        return body + b"\n" if ends else body


class StreamForwarder:
    """Follows the log files in one thread and writes them to `fd` from another, with a bounded stock in between."""

    def __init__(self, log_dir: str, accept: Callable[[LogName], bool], fd: int = 1) -> None:
        self._follower = LogFollower(log_dir, accept)
        self._fd = fd
        self._prefixer = LinePrefixer()
        self._stock = bytearray()
        self._dropped = 0
        self._changed = threading.Condition()
        self._ending = False
        self._read_all = False
        self._reader = threading.Thread(target=self._read, name="petctl-stream-read", daemon=True)
        self._writer = threading.Thread(target=self._write, name="petctl-stream-write", daemon=True)

    def start(self) -> None:
        """Begins to forward."""
        self._reader.start()
        self._writer.start()

    def finish(self, patience: float) -> None:
        """Delivers what is left, unless the reader takes longer than `patience`."""
        deadline = time.monotonic() + patience
        self._ending = True
        self._follower.wake()
        for thread in (self._reader, self._writer):
            thread.join(max(0.0, deadline - time.monotonic()))

    def _read(self) -> None:
        try:
            for chunk in self._follower.follow(lambda: self._ending):
                self._offer(self._prefixer.prefix(chunk))
        finally:
            with self._changed:
                self._read_all = True
                self._changed.notify()
            self._follower.close()

    def _offer(self, data: bytes) -> None:
        with self._changed:
            if self._stock and len(self._stock) + len(data) > BEHIND_LIMIT:
                self._dropped += data.count(b"\n")
                return
            self._mark_dropped()
            self._stock += data
            self._changed.notify()

    def _mark_dropped(self) -> None:
        if self._dropped:
            self._stock += b"[petctl: %d lines dropped, the reader is slow]\n" % self._dropped
            self._dropped = 0

    def _write(self) -> None:
        while True:
            with self._changed:
                while not self._stock and not self._read_all:
                    self._changed.wait()
                if not self._stock:
                    self._mark_dropped()
                if not self._stock:
                    return
                data = bytes(self._stock[:65536])
                del self._stock[:65536]
            try:
                _write_all(self._fd, data)
            except OSError:
                return  # nobody reads any more; the files have everything


def _write_all(fd: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:  # somebody made our stdout non-blocking
            select.select([], [fd], [])
