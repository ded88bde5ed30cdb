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
from petctl.storage.core.checksums import MD5, Known, Sum
from petctl.storage.core.parts import PART
from petctl.storage.stores.bucket import Bucket
from petctl.storage.stores.endpoint import Endpoint, PartSink, Sink, StreamSink
from petctl.storage.stores.store_errors import NoSuchBucket
from petctl.storage.transfer.plan import End, Pair, already_there, check_apart, pairs
from petctl.storage.transfer.small_files import Quick
from petctl.storage.transfer.transfer_pool import IN_FLIGHT, TransferPool

SHOWN_FAILURES = 10
_FINAL = (Refused, StoreUnreachable, NoRoom, NoSuchBucket)
_IN_MEMORY_AT_ONCE = 1 << 18
_STREAMS = 8
"""Of one large file at a time: more cost servers more than they bring."""
_LONGEST_RUN = 64 << 20
"""Bytes of neighbouring parts that one stream asks for."""


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
    def __init__(self, source: Endpoint, target: Endpoint, tally: Tally, checksum: bool, dry_run: bool) -> None:
        self._source, self._target, self._tally = source, target, tally
        self._checksum, self._dry_run = checksum, dry_run
        self._crew = TransferPool(self._failed)
        self._quick = Quick(source, target, self._arrived, self._failed, self._small)

    def run(self, source: End, target: End) -> None:
        tally = self._tally
        try:
            for pair in pairs(source, target):
                with tally.lock:
                    tally.found += 1
                    tally.found_bytes += pair.source.size
                if pair.source.size > PART:
                    self._quick.settle()  # nobody looks at its answers while a large file is handed in
                    self._large(pair)
                elif self._dry_run or not self._quick.take(pair):
                    self._small(pair)
            tally.all_found = True
            self._quick.settle()
            self._crew.finish()
        except BaseException as error:
            self._crew.stop(error)
            raise
        finally:
            self._quick.close()
        if tally.failed:
            more = tally.failed - len(tally.failures)
            shown = "".join(f"\n  {line}" for line in tally.failures) + (f"\n  and {more} more" if more else "")
            raise StoreError(
                f"{tally.failed} of {tally.found} files failed; run the same command again to retry them:{shown}"
            )

    def _small(self, pair: Pair) -> None:
        self._crew.hand(pair.source.size, partial(self._move, pair))

    def _move(self, pair: Pair) -> None:
        if not self._skipped(pair):
            self._target.put(pair.target, self._source.whole(pair.source), pair.source)
            self._arrived(pair)

    def _skipped(self, pair: Pair) -> bool:
        reason = already_there(pair, self._source, self._target, self._checksum)
        if reason:
            if pair.source.size > PART and not self._dry_run:
                self._target.tidy(pair.target)
            with self._tally.lock:
                self._tally.skipped += 1
                self._tally.skipped_bytes += pair.source.size
            self._tally.tell(pair.relative, f"skipped: {reason}")
        elif self._dry_run:
            self._arrived(pair)
        return bool(reason) or self._dry_run

    def _large(self, pair: Pair) -> None:
        """Hands in the parts of one large file, from the thread that plans: its parts keep all workers busy."""
        try:
            if self._skipped(pair):
                return
            identity = f"{pair.source.path} {pair.source.size} {pair.source.tag or pair.source.modified}"
            expected = self._source.known(pair.source)
            sink = self._target.sink(pair.target, pair.source, identity)
            if sink is None:
                self._crew.hand(2 * PART * 8, lambda: self._streamed(pair))
                return
            large = _Large(pair, sink, expected, self)
        except Exception as error:
            if self._failed(error):
                self._crew.end(error)
            return
        for work, cost in large.work():
            self._crew.hand(cost, work)

    def _streamed(self, pair: Pair) -> None:
        assert isinstance(self._target, Bucket)
        slices = (
            self._source.slice(pair.source, offset, min(PART, pair.source.size - offset)).read()
            for offset in range(0, pair.source.size, PART)
        )
        self._target.put_stream(pair.target, slices)
        self._source.close(pair.source)
        self._source.check_unchanged(pair.source)
        self._arrived(pair)

    def _arrived(self, pair: Pair, by_parts: bool = False) -> None:
        with self._tally.lock:
            self._tally.files += 1
            self._tally.bytes += 0 if by_parts else pair.source.size  # those of parts are counted as they come
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

    def __init__(self, pair: Pair, sink: Sink, expected: Known, owner: _Transfer) -> None:
        self._pair, self._sink, self._expected, self._owner = pair, sink, expected, owner
        self._source: Endpoint = owner._source
        self._kinds = sink.kinds.and_also(expected.kinds)
        self._lengths = [min(sink.part, pair.source.size - at) for at in range(0, pair.source.size, sink.part)]
        self._sums = [Sum()] * len(self._lengths)
        self._left = 0
        self._broken = False
        self._lock = threading.Lock()

    def work(self) -> list[tuple[Callable[[], None], int]]:
        """What there is to do, and the memory that each piece of it takes."""
        work: list[tuple[Callable[[], None], int]] = []
        if isinstance(self._sink, StreamSink):
            runs = self._missing_runs()
            work = [(partial(self._guarded, self._stream, run), IN_FLIGHT // _STREAMS) for run in runs]
        else:
            held = 0 if self._source.location.local else PART
            for number, length in enumerate(self._lengths):
                cost = max(min(length, held), _IN_MEMORY_AT_ONCE)
                work.append((partial(self._guarded, self._send, range(number, number + 1)), cost))
        if not work:  # all of it was there; only its name is missing
            work = [(partial(self._guarded, self._stream, range(0)), 0)]
        self._left = len(work)
        return work

    def _missing_runs(self) -> list[range]:
        """Neighbouring parts that have not arrived, as many together as leave something for every stream."""
        most = max(1, min(_LONGEST_RUN, self._pair.source.size // (2 * _STREAMS)) // self._sink.part)
        runs: list[range] = []
        for number in range(len(self._lengths)):
            there = self._sink.there.get(number)
            if there is not None and self._sink.trusted and self._sufficient(there):
                self._note(number, there, sent=False)
            elif runs and runs[-1].stop == number and len(runs[-1]) < most:
                runs[-1] = range(runs[-1].start, number + 1)
            else:
                runs.append(range(number, number + 1))
        return runs

    def _sufficient(self, known: Sum) -> bool:
        return bool(known.md5 or not self._kinds.md5) and (known.crc32 is not None or not self._kinds.crc32)

    def _guarded(self, move: Callable[[range], None], numbers: range) -> None:
        """Some parts; the last of them to end finishes the file."""
        try:
            if not self._broken:
                move(numbers)
        except BaseException:
            self._broken = True
            raise
        finally:
            with self._lock:
                self._left -= 1
                last = not self._left
            if last:
                self._end()

    def _stream(self, numbers: range) -> None:
        if not numbers:
            return
        assert isinstance(self._sink, StreamSink)
        length = sum(self._lengths[number] for number in numbers)
        pieces = self._source.stream(self._pair.source, numbers.start * self._sink.part, length)
        for number, known in zip(numbers, self._sink.receive(numbers.start, pieces, self._kinds), strict=True):
            self._note(number, known, sent=True)

    def _send(self, numbers: range) -> None:
        (number,) = numbers
        entry, sink = self._pair.source, self._sink
        assert isinstance(sink, PartSink)
        there = sink.there.get(number, Sum())
        if there.md5 and sink.trusted and not self._source.location.local and self._sufficient(there):
            self._note(number, there, sent=False)
            return
        body = self._source.slice(entry, number * sink.part, self._lengths[number])
        known = body.sums(self._kinds.and_also(MD5) if there.md5 else self._kinds)
        same = bool(there.md5) and there.md5 == known.md5
        if not same:
            sink.send(number, body, known)
        self._note(number, known, sent=not same)

    def _note(self, number: int, known: Sum, sent: bool) -> None:
        self._sums[number] = known
        tally = self._owner._tally
        with tally.lock:
            if sent:
                tally.bytes += self._lengths[number]
            else:
                tally.skipped_bytes += self._lengths[number]

    def _end(self) -> None:
        entry = self._pair.source
        self._source.close(entry)
        if self._broken:
            self._sink.leave()
            return
        try:
            self._source.check_unchanged(entry)
            if self._expected.contradicts(self._sums, self._lengths):
                self._sink.discard()
                raise Damaged(
                    f"{entry.path}: the received data does not match its checksum; run the same command again"
                )
            self._sink.finish(self._sums)
        finally:
            self._sink.leave()
        self._owner._arrived(self._pair, by_parts=True)
