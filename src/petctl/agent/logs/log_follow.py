"""Reading the workers' log files while they grow: `LogFollower`, for `--stream`, `petctl run` and `petctl logs -f`.

    follower = LogFollower(log_dir, accept=lambda name: name.rank == 0)
    for chunk in follower.follow(ended=job_is_over):
        ...                                            chunk.data: whole lines, as many as there are

It works on big blocks and cuts only at the last newline, so a million lines cost a few hundred operations. It never
changes a file, starts no thread, and knows nothing of jobs: the caller says when everything has been written.
"""

from __future__ import annotations

import os
import time
from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set

from petctl.agent.logs.inotify import Watcher
from petctl.agent.logs.log_files import LogName, dropped_marker, list_logs, parse_file, parse_round

BLOCK = 1 << 20
LINE_LIMIT = 16 << 20  # a longer line is delivered in pieces
PARTIAL_AFTER = 1.0  # seconds after which the beginning of an unfinished line is delivered (prompts, progress bars)


class Chunk(NamedTuple):
    """A piece of one log file: whole lines, except where `data` does not end with a newline."""

    name: LogName
    data: bytes


class _Source:
    """One log file and how far it has been read."""

    def __init__(self, name: LogName, path: str, position: int = 0) -> None:
        self.name, self.path, self.position = name, path, position
        self.rest = b""  # the beginning of an unfinished line
        self.rest_since = 0.0
        self.fd = -1

    def read(self) -> bytes:
        """The next block of data; empty at the end. A hole is answered with the line that stands for it."""
        if self.fd < 0:
            try:
                self.fd = os.open(self.path, os.O_RDONLY)
            except OSError:
                return b""
        status = os.fstat(self.fd)
        if status.st_size <= self.position:
            if status.st_size < self.position:  # cut by its writer, or where no holes can be made
                self.position = status.st_size
            return b""
        length = BLOCK
        if status.st_blocks * 512 < status.st_size:
            start, length = self._around_hole(status.st_size)
            if start > self.position:
                dropped, self.position = start - self.position, start
                return dropped_marker(dropped)
        data = os.pread(self.fd, length, self.position)
        self.position += len(data)
        return data

    def _around_hole(self, size: int) -> tuple[int, int]:
        """Where the next data begins, and how much can be read there before the next hole."""
        try:
            start = os.lseek(self.fd, self.position, os.SEEK_DATA)
        except OSError:  # ENXIO: nothing but a hole up to the end
            start = size
        try:
            end = os.lseek(self.fd, start, os.SEEK_HOLE)
        except OSError:
            end = size
        return start, max(1, min(BLOCK, end - start))

    def take_rest(self) -> Chunk:
        data, self.rest = self.rest, b""
        return Chunk(self.name, data)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class LogFollower:
    """Delivers what is in the log files of a directory, and what is still being written to them.

    `accept` chooses files by their name; `begin` says at which offset of a file to start (for `--tail`); a change in
    one of the directories `watch` also ends a `wait` (where the caller learns that the job is over); the beginning of
    an unfinished line is delivered after `partial_after` seconds; `in_turn`: the files of one round are delivered to
    their ends before those of the next.
    """

    def __init__(
        self,
        log_dir: str,
        accept: Callable[[LogName], bool] = lambda name: True,
        begin: Callable[[LogName, str], int] = lambda name, path: 0,
        watch: Iterable[str] = (),
        partial_after: float = PARTIAL_AFTER,
        in_turn: bool = False,
    ) -> None:
        self._log_dir = os.path.abspath(log_dir)
        self._partial_after, self._in_turn = partial_after, in_turn
        self._newest = 0  # the round that is delivered, where they come in turn
        self._accept, self._begin = accept, begin
        self._sources: Dict[LogName, _Source] = {}
        self._dirty: Set[LogName] = set()
        self._open: List[_Source] = []  # least recently read first
        self._watcher = Watcher()
        self._watching = False
        for directory in watch:
            self._watcher.watch(directory)
        self._discover()

    def __enter__(self) -> LogFollower:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def follow(self, ended: Callable[[], bool]) -> Iterator[Chunk]:
        """Everything, as it comes, until `ended()` is true and all that was written before has been delivered.

        `ended` is asked whenever nothing is to be read: after a change, after `wake`, and at least twice a second.
        """
        while True:
            yield from self.read()
            over = ended()
            if over:
                self._discover()
                self._dirty.update(self._sources)
                yield from self.read(final=True)
                return
            self.wait(0.5)

    def read(self, final: bool = False) -> Iterator[Chunk]:
        """What there is now, without waiting, a block of each file in turn; `final`: unfinished lines too."""
        while self._dirty:
            for name in sorted(self._dirty):
                source = self._sources[name]
                if self._in_turn:
                    yield from self._finish_before(name.round)
                block = self._read_some(source)
                if not block:
                    self._dirty.discard(name)
                    continue
                data = _whole_lines(source, block)
                if data:
                    yield Chunk(name, data)
        now = time.monotonic()
        for source in self._sources.values():
            if source.rest and (final or now - source.rest_since >= self._partial_after):
                yield source.take_rest()

    def wait(self, seconds: Optional[float] = None) -> None:
        """Until there may be more to read, somebody called `wake`, or the time is over."""
        if any(source.rest for source in self._sources.values()):
            seconds = self._partial_after if seconds is None else min(seconds, self._partial_after)
        if not self._watching:
            seconds = 0.1 if seconds is None else min(seconds, 0.1)  # the directory is not there yet
        changes = self._watcher.wait(seconds)
        if changes.anything or not self._watching:
            self._discover()
            newest = max((name.round for name in self._sources), default=0)
            self._dirty.update(name for name in self._sources if name.round >= newest - 1)
        for directory, name in changes.names:
            self._changed(directory, name)

    def position(self, name: LogName) -> int:
        """How much of a file has been delivered, the chunk included that was yielded last."""
        source = self._sources[name]
        return source.position - len(source.rest)

    def wake(self) -> None:
        """Ends the current or the next `wait`; safe from other threads and signal handlers."""
        self._watcher.wake()

    def close(self) -> None:
        """Gives its descriptors back."""
        for source in self._sources.values():
            source.close()
        self._watcher.close()

    def _finish_before(self, number: int) -> Iterator[Chunk]:
        """What is left of earlier rounds, unfinished lines too."""
        if self._newest >= number:
            return
        self._newest = number
        for earlier in sorted(self._sources):
            if earlier.round < number:
                source = self._sources[earlier]
                while block := self._read_some(source):
                    data = _whole_lines(source, block)
                    if data:
                        yield Chunk(earlier, data)
                if source.rest:
                    yield source.take_rest()

    def _changed(self, directory: str, name: str) -> None:
        number = parse_round(os.path.basename(directory))
        parsed = parse_file(name)
        if number is not None and parsed is not None:
            known = LogName(number, *parsed)
            if known not in self._sources:
                self._add(known, os.path.join(directory, name))
            if known in self._sources:
                self._dirty.add(known)
        elif directory == self._log_dir and parse_round(name) is not None:
            self._discover()

    def _discover(self) -> None:
        """Finds what exists. Directories are watched before they are listed: nothing can appear unseen in between."""
        if not self._watching:
            self._watching = self._watcher.watch(self._log_dir)
        if not self._watching:
            return
        for entry in os.listdir(self._log_dir):
            if parse_round(entry) is not None:
                self._watcher.watch(os.path.join(self._log_dir, entry))
        for name, path in list_logs(self._log_dir):
            if name not in self._sources:
                self._add(name, path)

    def _add(self, name: LogName, path: str) -> None:
        if self._accept(name):
            self._sources[name] = _Source(name, path, self._begin(name, path))
            self._dirty.add(name)

    def _read_some(self, source: _Source) -> bytes:
        """Reads with a bounded number of open files: a long job has more of them than a process may open."""
        if source in self._open:
            self._open.remove(source)
        elif len(self._open) >= 128:
            self._open.pop(0).close()
        self._open.append(source)
        return source.read()


def _whole_lines(source: _Source, block: bytes) -> bytes:
    """What can be delivered of the unfinished line so far and the new block; the rest waits for its newline."""
    end = block.rfind(b"\n") + 1
    if not end and len(source.rest) + len(block) < LINE_LIMIT:
        if not source.rest:
            source.rest_since = time.monotonic()
        source.rest += block
        return b""
    data, source.rest = source.rest + (block[:end] or block), block[end:] if end else b""
    source.rest_since = time.monotonic()
    return data


def tail_offset(path: str, lines: int) -> int:
    """The offset at which the last `lines` lines of a file begin."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return 0
    try:
        position = end = os.fstat(fd).st_size
        wanted = lines
        if wanted <= 0:
            return end
        while position > 0:
            start = max(0, position - BLOCK)
            block = os.pread(fd, position - start, start)
            at = len(block)
            if position == end and block.endswith(b"\n"):
                at -= 1
            while True:
                at = block.rfind(b"\n", 0, at)
                if at < 0:
                    break
                wanted -= 1
                if wanted <= 0:
                    return start + at + 1
            position = start
        return 0
    finally:
        os.close(fd)
