"""Logs that are in a job's store and not here: those of nodes that joined from elsewhere and are gone.

A log lies there in segments (`agent/data/uploader.py`); those that are missing in between were dropped to stay within
`log_cap`. Only reads; which logs are wanted is the caller's decision.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from petctl.agent.data.uploader import STORE
from petctl.agent.logs.log_files import SEGMENT, LogName, dropped_marker, parse_segment
from petctl.clusters.base import LogFilter, LogLine
from petctl.job.record import JobRecord
from petctl.storage.core.files import Depot, Entry, direct
from petctl.storage.core.grants import Grants
from petctl.submission.store_grants import grant_of, keys_of


class StoredLogs:
    """The logs of one job in its store; nothing is asked before they are listed."""

    def __init__(self, record: JobRecord, home: Path) -> None:
        pinned = record.grants[STORE]
        grant = grant_of(pinned, keys_of(home), False, f"{pinned['below']}/logs")
        self._depot = Depot(direct(Grants({STORE: grant})))

    def list(self, accept: Callable[[LogName], bool]) -> dict[LogName, dict[int, Entry]]:
        """Segments by log and number, in the order of rounds and ranks."""
        found: dict[LogName, dict[int, Entry]] = {}
        for entry in self._depot.entries(STORE):
            parsed = parse_segment(entry.path)
            if parsed is not None and accept(parsed[0]):
                found.setdefault(parsed[0], {})[parsed[1]] = entry
        return dict(sorted(found.items()))

    def read(self, segments: Mapping[int, Entry], tail: int | None = None) -> Iterator[bytes]:
        """Whole lines, as many as a segment has; with `tail` only so many of the last ones."""
        numbers = sorted(segments)
        with tempfile.TemporaryDirectory() as folder:
            if tail is not None:
                yield _last_lines((self._fetch(segments[n], folder) for n in reversed(numbers)), tail)
                return
            rest, expected = b"", 0
            for number in numbers:
                if number > expected:
                    yield rest + dropped_marker((number - expected) * SEGMENT)
                    rest = b""
                data = rest + self._fetch(segments[number], folder)
                end = data.rfind(b"\n") + 1
                if data[:end]:
                    yield data[:end]
                rest, expected = data[end:], number + 1
            if rest:
                yield rest

    def _fetch(self, entry: Entry, folder: str) -> bytes:
        target = Path(folder, "segment")
        self._depot.fetch(STORE, entry, str(target))
        return target.read_bytes()


def stored_lines(record: JobRecord, home: Path, wanted: LogFilter) -> Iterator[LogLine]:
    """The wanted lines of all workers, as the store has them; whose node wrote them, it does not know."""

    def accept(name: LogName) -> bool:
        return wanted.rank in (None, name.rank) and wanted.round in (None, name.round)

    stored = StoredLogs(record, home)
    for name, segments in stored.list(accept).items():
        for block in stored.read(segments, wanted.tail):
            for text in [block] if wanted.blocks else block.splitlines(keepends=True):
                yield LogLine(name.round, name.rank, name.stream, text)


def _last_lines(backwards: Iterator[bytes], count: int) -> bytes:
    data = b""
    if count:
        for piece in backwards:
            data = piece + data
            if data.removesuffix(b"\n").count(b"\n") >= count:
                break
    return b"".join(data.splitlines(keepends=True)[-count:]) if count else b""
