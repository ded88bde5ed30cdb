"""The live stream of `--stream`: the local workers' lines, each with its rank, on the agent's own stdout.

    [3]: text           for people
    [3.1] text          for programs (`--tagged`): rank 3, round 1, from stdout
    [3.1!] text         ... from stderr; `parse_tagged` gets it back

The files are the truth; this is a convenience for whoever watches. So it runs in threads of its own that share nothing
with the control connection, and when its reader is slow it leaves lines out and says how many: it never falls behind.
"""

from __future__ import annotations

import os
import re
import threading
import time
from contextlib import contextmanager
from typing import Callable, Iterator, Optional, Union

from petctl.agent.logs.async_writer import Outlet
from petctl.agent.logs.log_files import LogName
from petctl.agent.logs.log_follow import Chunk, LogFollower

BEHIND_LIMIT = 8 << 20  # bytes read but not yet taken by the reader
_PATIENCE = 10.0  # seconds for the last lines to be written to a file
_TAGGED = re.compile(rb"\[(\d{1,18})\.(\d{1,18})(!?)\] (.*)\Z", re.DOTALL)


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


class LineTagger:
    """Puts `[rank.round] ` before every line, `[rank.round!] ` before those of stderr; gives out whole lines only."""

    def prefix(self, chunk: Chunk) -> bytes:
        """The chunk as it is shown; what is unfinished after a moment becomes a line of its own."""
        label = b"[%d.%d%s] " % (chunk.name.rank, chunk.name.round, b"!" if chunk.name.stream == "err" else b"")
        data = chunk.data[:-1] if chunk.data.endswith(b"\n") else chunk.data
        return label + data.replace(b"\n", b"\n" + label) + b"\n"


def parse_tagged(line: bytes) -> Optional[Chunk]:
    """The inverse of `LineTagger`, for one line with or without its end; None for a line that no worker wrote."""
    match = _TAGGED.match(line)
    if match is None:
        return None
    rank, number, stderr, data = match.groups()
    return Chunk(LogName(int(number), int(rank), "err" if stderr else "out"), data)


class StreamForwarder:
    """Follows the log files in one thread, and has what it finds written to `fd` by another."""

    def __init__(self, log_dir: str, accept: Callable[[LogName], bool], fd: int = 1, tagged: bool = False) -> None:
        self._follower = LogFollower(log_dir, accept)
        self._prefixer: Union[LinePrefixer, LineTagger] = LineTagger() if tagged else LinePrefixer()
        self._outlet = Outlet(fd, BEHIND_LIMIT, _missed, "petctl-stream-write")
        self._ending = False
        self._reader = threading.Thread(target=self._read, name="petctl-stream-read", daemon=True)

    def start(self) -> None:
        """Begins to forward."""
        self._reader.start()
        self._outlet.start()

    def finish(self, patience: float) -> None:
        """Delivers what is left, unless the reader takes longer than `patience`."""
        deadline = time.monotonic() + patience
        self._ending = True
        self._follower.wake()
        self._reader.join(max(0.0, deadline - time.monotonic()))
        self._outlet.wait(max(0.0, deadline - time.monotonic()))

    def _read(self) -> None:
        try:
            for chunk in self._follower.follow(lambda: self._ending):
                data = self._prefixer.prefix(chunk)
                self._outlet.offer(data, data.count(b"\n"))
        finally:
            self._outlet.end()
            self._follower.close()


@contextmanager
def forwarded(log_dir: str, target: Union[str, os.PathLike[str]]) -> Iterator[None]:
    """Has the lines of log files appended to another file, tagged, during the body; all of them, when it has ended."""
    with open(target, "ab") as file:
        forwarder = StreamForwarder(log_dir, lambda name: True, file.fileno(), tagged=True)
        forwarder.start()
        try:
            yield
        finally:
            forwarder.finish(_PATIENCE)


def _missed(count: int) -> bytes:
    return b"[petctl: %d lines dropped, the reader is slow]\n" % count
