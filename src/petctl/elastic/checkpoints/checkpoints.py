"""Checkpoints of a State while it trains: when one is due, who writes it, and what a cold start goes on from.

    elastic.checkpoint(state, every=200)         after every 200 commits
    elastic.checkpoint(state, every="5m")        ... or minutes

Rank 0 writes, from the copy that a commit made, in one background thread: training never waits for the disk. If that is
slower than the commits, the newest that waits is written and the others are not. Before the round ends as planned the
last commit is written too, and a worker that is to be ended waits for it. What a checkpoint is on disk is `saved.py`;
parts that no rank has whole are `sharded.py`, and those all ranks write, while training waits.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Set, Tuple, Union

from petctl.elastic import place
from petctl.elastic.checkpoints import pickles, saved, sharded
from petctl.elastic.snapshots.commits import Commits, Mark, Snapshot
from petctl.elastic.state import State, ledger_of
from petctl.errors import UsageError

CHECKPOINT_DIR = "PETCTL_CHECKPOINT_DIR"
_EVERY = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)\Z")
_LAST_PATIENCE = 600.0  # seconds that a process which is about to exit waits for a slow disk
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_calls_of: Dict[Path, List[int]] = {}  # the calls of elastic.run that have written, or may write, to a directory


def checkpoint(
    state: State,
    every: Union[int, str],
    keep: int = 3,
    directory: Optional[str] = None,
    allow_pickle: bool = False,
) -> Optional[Checkpoints]:
    """From now on the State is written down every so many commits (200) or so often ("30s", "5m").

    The last `keep` stay. The directory is the job's own (PETCTL_CHECKPOINT_DIR) unless another is given; without either
    nothing is written. A State that is older than the newest one there goes on from that. Parts are tensors and plain
    values; to load objects of other classes could run code, and needs allow_pickle=True.
    """
    commits, seconds = _interval(every)
    if keep < 1:
        raise UsageError(f"elastic.checkpoint: keep={keep} keeps nothing; the minimum is 1")
    path = directory or os.environ.get(CHECKPOINT_DIR, "")
    if not path:
        _say("no checkpoints are written: no directory is set. Give directory=..., or run under petctl")
        return None
    checkpoints = Checkpoints(state, Path(path).absolute(), (commits, seconds), keep, allow_pickle)
    ledger_of(state).witnesses.append(checkpoints)
    return checkpoints


class Checkpoints:
    """The checkpoints of one State; a witness of its commits."""

    def __init__(
        self, state: State, directory: Path, every: Tuple[int, float], keep: int, allow_pickle: bool = False
    ) -> None:
        self.directory = self._root = directory
        self._keep = keep
        self._state, (self._commits, self._seconds) = state, every
        self._allow_pickle = self._checked = allow_pickle
        self._damaged: Set[Mark] = set()
        self._writer = Writer(directory, keep)
        self._last = time.monotonic()

    def entering(self, state: State, call: int) -> None:
        """Gives each call of elastic.run that writes to the same directory a place of its own there."""
        calls = _calls_of.setdefault(self._root, [])
        if call not in calls:
            calls.append(call)
        number = calls.index(call) + 1
        directory = self._root / f"run-{number}" if number > 1 else self._root
        if directory != self.directory:
            self.flush()  # a later call's checkpoint must not be there before the end of this one
            self.directory, self._writer, self._damaged = directory, Writer(directory, self._keep), set()
            ledger = ledger_of(state)
            ledger.base = max(ledger.base, saved.base(directory))

    def entered(self, state: State) -> None:
        """Shuts out workers that an older coordinator still leads: their checkpoints are of another training."""
        if place.rank() == 0:
            with contextlib.suppress(OSError):  # whoever writes a checkpoint there says why it cannot
                saved.claim(self.directory, self._now()[0], ledger_of(state).base)

    def ended(self, state: State) -> None:
        """Has the last commit of the call written; sharded parts cannot be: there is no group any more."""
        newest = ledger_of(state).history.newest
        if newest is not None and newest.mark == ledger_of(state).mark and not sharded.names_in(state):
            self._save(state)

    def beginning(self, state: State) -> None:
        """Goes on from the newest checkpoint; whoever does not see the directory gets the State from the others."""
        ledger = ledger_of(state)
        self._sweep()
        while True:
            mark = self.saved(state)
            if mark is None:
                break
            self.load_saved(state, mark)
        if not ledger.commits:
            ledger.base = saved.base(self.directory)  # what is there is of no use, and must not look newer

    def saved(self, state: State) -> Optional[Mark]:
        """The newest checkpoint that is newer than the State; none with shards, which are loaded by all ranks."""
        newest = next((mark for mark in saved.marks(self.directory) if mark not in self._damaged), None)
        if newest is None or newest <= ledger_of(state).mark or saved.is_sharded(self.directory, newest):
            return None
        return newest

    def load_saved(self, state: State, mark: Mark) -> None:
        """Gives the State the values of that checkpoint, or says why not and offers it no more."""
        snapshot = self._read(mark)
        if snapshot is not None:
            ledger_of(state).adopt(state, snapshot)

    def committed(self, state: State) -> None:
        """Has the commit written, if one is due."""
        due = ledger_of(state).commits % self._commits == 0 if self._commits else self._is_time()
        if due:
            self._save(state)

    def parking(self, state: State, final: bool) -> None:
        """The round is about to end: its last commit is written now, before this process is ended, if it is."""
        self._save(state)
        if final:
            self.flush()

    def load(self) -> bool:
        """Gives the State the values of the newest whole checkpoint; False: there is none.

        Needed only for sharded parts, whenever they were made anew; then all ranks call it together. Where there is no
        checkpoint yet they write the first one: without it nobody could go on after a loss.
        """
        names, first = sharded.names_in(self._state), place.rank() == 0
        newest = self._newest() if first or not names else None
        if names:
            mark = sharded.load(self.directory, newest and newest[0], self._state, names)
            if mark is None:
                self._save(self._state)
            elif newest is None:
                newest = mark, saved.read(self.directory, mark, checked=True, allow_pickle=self._allow_pickle)
        if newest is None:
            return False
        ledger_of(self._state).adopt(self._state, newest[1])
        return True

    def _newest(self) -> Optional[Tuple[Mark, Snapshot]]:
        """The newest checkpoint that is whole."""
        self._sweep()
        while True:
            mark = next((mark for mark in saved.marks(self.directory) if mark not in self._damaged), None)
            if mark is None:
                return None
            snapshot = self._read(mark)
            if snapshot is not None:
                return mark, snapshot

    def _read(self, mark: Mark) -> Optional[Snapshot]:
        try:
            return saved.read(self.directory, mark, allow_pickle=self._allow_pickle)
        except saved.Damaged as error:
            self._damaged.add(mark)
            _say(f"skipping the checkpoint {mark}: {error}")
            return None

    def _sweep(self) -> None:
        if place.rank() == 0:
            saved.sweep(self.directory, self._now())

    def _now(self) -> Tuple[int, int]:
        epoch, round_number = place.epoch_and_round()
        return ledger_of(self._state).base + epoch, round_number

    def flush(self, timeout: Optional[float] = None) -> bool:
        """Waits until what was due is on disk; False: not in time."""
        return self._writer.flush(timeout)

    def _is_time(self) -> bool:
        return time.monotonic() >= self._last + self._seconds

    def _save(self, state: State) -> None:
        self._last = time.monotonic()
        names, ledger = sharded.names_in(state), ledger_of(state)
        mark = ledger.mark if ledger.commits else Mark(*self._now(), 0)
        if names and self._seconds:
            raise UsageError(
                "elastic.checkpoint: the ranks' clocks differ, and sharded parts are written by all ranks together; "
                f"give every= a number of commits, not a time, for {', '.join(names)}"
            )
        if not self._checked and (names or place.rank() == 0):
            self._checked = True
            _check_readable(ledger.snapshot(state), names)
        if names:
            self._writer.write(mark, ledger.snapshot(state), state, names)
        elif place.rank() == 0:
            self._writer.offer(state, mark)


class _Pending(NamedTuple):
    """What is to be written next."""

    mark: Mark
    snapshot: Snapshot
    history: Commits
    hold: contextlib.ExitStack


class Writer:
    """One thread that writes the newest snapshot it was offered; those it had no time for are dropped."""

    def __init__(self, directory: Path, keep: int) -> None:
        self._directory, self._keep = directory, keep
        self._changed = threading.Condition()
        self._pending: Optional[_Pending] = None
        self._busy = False
        self._newest: Optional[Mark] = None
        self._thread: Optional[threading.Thread] = None
        self._complained = ""
        self._pid = os.getpid()

    def offer(self, state: State, mark: Mark) -> None:
        """Takes the State's last commit; never waits for the disk."""
        if mark == self._newest:
            return
        self._newest = mark
        hold = contextlib.ExitStack()
        ledger = ledger_of(state)
        snapshot = hold.enter_context(ledger.history.hold(ledger.snapshot(state)))
        with self._changed:
            if self._pending is not None:
                self._pending.hold.close()
            self._pending = _Pending(mark, snapshot, ledger.history, hold)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="petctl-checkpoint", daemon=True)
                self._thread.start()
                atexit.register(self.flush, _LAST_PATIENCE)
            self._changed.notify_all()

    def write(self, mark: Mark, snapshot: Snapshot, state: State, names: List[str]) -> None:
        """Writes now, together with all other ranks."""
        try:
            sharded.save(self._directory, mark, snapshot, state, names)
            self._tidy(mark)
        except BaseException as error:  # torch's CheckpointException is no Exception
            if not isinstance(error, OSError) and type(error).__name__ != "CheckpointException":
                raise
            self._complain(mark, error)

    def flush(self, timeout: Optional[float] = None) -> bool:
        """Waits until nothing is left to write; False: not in time."""
        if os.getpid() != self._pid:
            return True  # a forked child: the thread that writes is its parent's
        with self._changed:
            return self._changed.wait_for(lambda: self._pending is None and not self._busy, timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._pending is not None)
                assert self._pending is not None
                pending, self._pending, self._busy = self._pending, None, True
            with pending.hold:
                self._write(pending)
            del pending

    def _write(self, pending: _Pending) -> None:
        mark = pending.mark
        try:
            if pending.history.settle(pending.snapshot):  # else it was cut off, and never became a commit
                saved.write(self._directory, mark, pending.snapshot)
                self._tidy(mark)
        except Exception as error:  # training is worth more than any one checkpoint
            self._newest = None  # so that the same commit may be offered again
            self._complain(mark, error)

    def _tidy(self, mark: Mark) -> None:
        self._complained = ""
        if place.rank() == 0:
            saved.prune(self._directory, self._keep, mark)
            saved.sweep(self._directory, (mark.epoch, mark.round - 1))

    def _complain(self, mark: Mark, error: BaseException) -> None:
        if str(error) != self._complained:
            self._complained = str(error)
            _say(f"the checkpoint {mark} was not written: {error}. Training continues; the next one will be tried")


def _interval(every: Union[int, str]) -> Tuple[int, float]:
    """Commits and seconds between two checkpoints; one of them is 0."""
    if isinstance(every, int) and every > 0:
        return every, 0.0
    match = _EVERY.match(every) if isinstance(every, str) else None
    if match is None:
        raise UsageError(
            f'elastic.checkpoint: every={every!r}; give a number of commits (every=200) or a time (every="5m")'
        )
    return 0, float(match.group(1)) * _SECONDS[match.group(2)]


def _check_readable(snapshot: Snapshot, sharded_names: List[str]) -> None:
    """A checkpoint that could not be loaded is refused when the first one is due, not when it is needed."""
    for name, copy in snapshot.copies.items():
        try:
            if name not in sharded_names and copy.skeleton:
                pickles.check(copy.skeleton)
        except pickles.Untrusted as error:
            raise UsageError(
                f"elastic.checkpoint: part {name!r} has more than plain values: {error}. Loading it could run code; "
                "give elastic.checkpoint(..., allow_pickle=True) if you trust whoever can write to the directory"
            ) from None


def _say(sentence: str) -> None:
    print(f"petctl.elastic: {sentence}", file=sys.stderr, flush=True)
