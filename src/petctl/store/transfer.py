"""Moves what `plan` says: small files whole, large ones by parts, in parallel, verified before they become visible.

A run that was killed is taken up by the next: complete files are skipped (`plan.already_there`), and of large files the
parts that have arrived (`Sink.there`). An error with one file does not stop the others; an error that all would meet
(wrong key, full disk, no network) stops everything at once.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import partial
from typing import Callable

from petctl.errors import Damaged, NoRoom, PetctlError, Refused, StoreError, StoreUnreachable
from petctl.store.bucket import Bucket
from petctl.store.crew import Crew
from petctl.store.failures import NoSuchBucket
from petctl.store.parts import PART, whole_checksum
from petctl.store.place import Entry, Place, Sink
from petctl.store.plan import End, Pair, already_there, check_apart, pairs

SHOWN_FAILURES = 10
_FINAL = (Refused, StoreUnreachable, NoRoom, NoSuchBucket)
_IN_MEMORY_AT_ONCE = 1 << 16


@dataclass
class Tally:
    """How far a transfer is; read by whoever shows it. `note` is told of each file with what became of it."""

    files: int = 0
    bytes: int = 0
    skipped: int = 0
    skipped_bytes: int = 0
    found: int = 0
    found_bytes: int = 0
    all_found: bool = False
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    failed: int = 0
    note: Callable[[str, str], None] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def tell(self, path: str, what: str) -> None:
        """One file's fate."""
        if self.note is not None:
            self.note(path, what)


def transfer(source: End, target: End, tally: Tally, *, checksum: bool = False, dry_run: bool = False) -> None:
    """Copies a file or everything in a folder; raises StoreError with the names when files failed."""
    check_apart(source, target)
    _Transfer(source.place, target.place, tally, checksum, dry_run).run(source, target)


class _Transfer:
    def __init__(self, source: Place, target: Place, tally: Tally, checksum: bool, dry_run: bool) -> None:
        self._source, self._target, self._tally = source, target, tally
        self._checksum, self._dry_run = checksum, dry_run
        self._crew = Crew(self._failed)

    def run(self, source: End, target: End) -> None:
        tally = self._tally
        try:
            for pair in pairs(source, target):
                with tally.lock:
                    tally.found += 1
                    tally.found_bytes += pair.source.size
                if pair.source.size <= PART:
                    self._crew.hand(pair.source.size, partial(self._guarded, pair, self._small))
                else:
                    self._large(pair)
            tally.all_found = True
            self._crew.finish()
        except BaseException as error:
            self._crew.stop(error)
            raise
        if tally.failed:
            more = tally.failed - len(tally.failures)
            shown = "".join(f"\n  {line}" for line in tally.failures) + (f"\n  and {more} more" if more else "")
            raise StoreError(
                f"{tally.failed} of {tally.found} files failed; run the same command again for these:{shown}"
            )

    def _guarded(self, pair: Pair, work: Callable[[Pair], None]) -> None:
        if not self._skipped(pair):
            work(pair)

    def _skipped(self, pair: Pair) -> bool:
        reason = already_there(pair, self._source, self._target, self._checksum)
        if reason:
            with self._tally.lock:
                self._tally.skipped += 1
                self._tally.skipped_bytes += pair.source.size
            self._tally.tell(pair.relative, f"skipped: {reason}")
        elif self._dry_run:
            self._arrived(pair, pair.source.size)
        return bool(reason) or self._dry_run

    def _small(self, pair: Pair) -> None:
        self._target.put(pair.target, self._source.whole(pair.source), pair.source)
        self._source.check_unchanged(pair.source)
        self._arrived(pair, pair.source.size)

    def _large(self, pair: Pair) -> None:
        """Hands in the parts of one large file, from the thread that plans: its parts keep all workers busy."""
        try:
            if self._skipped(pair):
                return
            identity = f"{pair.source.path} {pair.source.size} {pair.source.tag or pair.source.modified}"
            sink = self._target.sink(pair.target, pair.source, identity)
            if sink is None:
                self._crew.hand(2 * PART * 8, lambda: self._streamed(pair))
                return
            large = _Large(pair, sink, self)
        except Exception as error:
            if self._failed(error):
                self._crew.end(error)
            return
        for number in range(large.count):
            cost = _IN_MEMORY_AT_ONCE if self._source.location.local else min(large.length(number), PART)
            self._crew.hand(cost, partial(large.move, number))

    def _streamed(self, pair: Pair) -> None:
        assert isinstance(self._target, Bucket)
        slices = (
            self._source.slice(pair.source, offset, min(PART, pair.source.size - offset)).read()
            for offset in range(0, pair.source.size, PART)
        )
        self._target.put_stream(pair.target, slices)
        self._source.close(pair.source)
        self._source.check_unchanged(pair.source)
        self._arrived(pair, pair.source.size)

    def _arrived(self, pair: Pair, count: int) -> None:
        with self._tally.lock:
            self._tally.files += 1
            self._tally.bytes += count
        self._tally.tell(pair.relative, "would be copied" if self._dry_run else "copied")

    def _failed(self, error: Exception) -> bool:
        """Counts an error of one file; true when it would meet all of them."""
        if not isinstance(error, PetctlError) or isinstance(error, _FINAL):
            return True
        with self._tally.lock:
            self._tally.failed += 1
            if len(self._tally.failures) < SHOWN_FAILURES:
                self._tally.failures.append(str(error))
        return False


class _Large:
    """One large file: its parts, which of them have arrived, and what is left to do when all have."""

    def __init__(self, pair: Pair, sink: Sink, owner: _Transfer) -> None:
        self._pair, self._sink, self._owner = pair, sink, owner
        self._source: Place = owner._source
        self.count = -(-pair.source.size // sink.part)
        self._md5s: list[bytes] = [b""] * self.count
        self._left = self.count
        self._broken = False
        self._lock = threading.Lock()

    def length(self, number: int) -> int:
        """Bytes of one part."""
        return min(self._sink.part, self._pair.source.size - number * self._sink.part)

    def move(self, number: int) -> None:
        """One part; the last of them to end finishes the file."""
        try:
            if not self._broken:
                self._move(number)
        except BaseException:
            self._broken = True
            raise
        finally:
            with self._lock:
                self._left -= 1
                last = not self._left
            if last:
                self._end()

    def _move(self, number: int) -> None:
        entry, sink = self._pair.source, self._sink
        known = sink.there.get(number, b"")
        if known and sink.trusted and not self._source.location.local:
            self._note(number, known, sent=False)
            return
        body = self._source.slice(entry, number * sink.part, self.length(number))
        md5 = body.md5()
        if md5 != known:
            sink.send(number, body, md5)
        self._note(number, md5, sent=md5 != known)

    def _note(self, number: int, md5: bytes, sent: bool) -> None:
        self._md5s[number] = md5
        tally = self._owner._tally
        with tally.lock:
            if sent:
                tally.bytes += self.length(number)
            else:
                tally.skipped_bytes += self.length(number)

    def _end(self) -> None:
        entry = self._pair.source
        self._source.close(entry)
        if self._broken:
            self._sink.leave()
            return
        try:
            self._check(entry)
            self._sink.finish(self._md5s)
        finally:
            self._sink.leave()
        self._owner._arrived(self._pair, 0)

    def _check(self, entry: Entry) -> None:
        self._source.check_unchanged(entry)
        if self._source.location.local:
            return
        expected, found = self._source.checksum(entry), whole_checksum(self._md5s)
        if "-" in expected and expected != found:
            raise Damaged(f"{entry.path}: what arrived does not fit its checksum {expected}")
