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
from typing import List, Optional, Set, Tuple, Union

from petctl.elastic import place, saved, sharded
from petctl.elastic.state import Snapshot, State, ledger_of
from petctl.errors import UsageError

CHECKPOINT_DIR = "PETCTL_CHECKPOINT_DIR"
_EVERY = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)\Z")
_LAST_PATIENCE = 600.0  # seconds that a process which is about to exit waits for a slow disk
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def checkpoint(
    state: State, every: Union[int, str], keep: int = 3, directory: Optional[str] = None
) -> Optional[Checkpoints]:
    """From now on the State is written down every so many commits (200) or so often ("30s", "5m").

    The last `keep` stay. The directory is the job's own (PETCTL_CHECKPOINT_DIR) unless another is given; without either
    nothing is written. A State without progress that elastic.run is about to train goes on from the newest one there.
    """
    commits, seconds = _interval(every)
    if keep < 1:
        raise UsageError(f"elastic.checkpoint: keep={keep} keeps nothing; the least is 1")
    path = directory or os.environ.get(CHECKPOINT_DIR, "")
    if not path:
        _say("no checkpoints are written: there is no directory for them. Give directory=..., or run it under petctl")
        return None
    checkpoints = Checkpoints(state, Path(path).absolute(), commits, seconds, keep)
    ledger_of(state).witnesses.append(checkpoints)
    return checkpoints


class Checkpoints:
    """The checkpoints of one State; a witness of its commits."""

    def __init__(self, state: State, directory: Path, commits: int, seconds: float, keep: int) -> None:
        self.directory = directory
        self._state, self._commits, self._seconds = state, commits, seconds
        self._writer = Writer(directory, keep)
        self._last = time.monotonic()

    def beginning(self, state: State) -> None:
        """Goes on from the newest checkpoint; whoever does not see the directory gets the State from the others."""
        newest = self._newest()
        if newest is not None and not any(copy.sharded for copy in newest[1].copies.values()):
            ledger_of(state).adopt(state, newest[1])  # with shards there is no group yet to load them with

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
                newest = mark, saved.read(self.directory, mark, checked=True)
        if newest is None:
            return False
        ledger_of(self._state).adopt(self._state, newest[1])
        return True

    def _newest(self) -> Optional[Tuple[saved.Mark, Snapshot]]:
        """The newest checkpoint that is whole."""
        if place.rank() == 0:
            saved.sweep(self.directory, _now())
        tried: Set[saved.Mark] = set()
        while True:
            untried = [mark for mark in saved.marks(self.directory) if mark not in tried]  # a writer may be at work
            if not untried:
                return None
            tried.add(untried[0])
            try:
                return untried[0], saved.read(self.directory, untried[0])
            except saved.Damaged as error:
                _say(f"the checkpoint {untried[0]} is passed over: {error}")

    def flush(self, timeout: Optional[float] = None) -> bool:
        """Waits until what was due is on disk; False: not in time."""
        return self._writer.flush(timeout)

    def _is_time(self) -> bool:
        return time.monotonic() >= self._last + self._seconds

    def _save(self, state: State) -> None:
        self._last = time.monotonic()
        names, mark = sharded.names_in(state), saved.Mark(*_now(), ledger_of(state).commits)
        if names and self._seconds:
            raise UsageError(
                "elastic.checkpoint: the ranks' clocks differ, and sharded parts are written by all ranks together; "
                f"give every= a number of commits, not a time, for {', '.join(names)}"
            )
        if names:
            self._writer.write(mark, ledger_of(state).snapshot(state), state, names)
        elif place.rank() == 0:
            self._writer.offer(state, mark)


class Writer:
    """One thread that writes the newest snapshot it was offered; those it had no time for are dropped."""

    def __init__(self, directory: Path, keep: int) -> None:
        self._directory, self._keep = directory, keep
        self._changed = threading.Condition()
        self._pending: Optional[Tuple[saved.Mark, Snapshot, contextlib.ExitStack]] = None
        self._busy = False
        self._newest: Optional[saved.Mark] = None
        self._thread: Optional[threading.Thread] = None
        self._complained = ""
        self._pid = os.getpid()

    def offer(self, state: State, mark: saved.Mark) -> None:
        """Takes the State's last commit; never waits for the disk."""
        if mark == self._newest:
            return
        self._newest = mark
        hold = contextlib.ExitStack()
        snapshot = hold.enter_context(ledger_of(state).hold(state))
        with self._changed:
            if self._pending is not None:
                self._pending[2].close()
            self._pending = (mark, snapshot, hold)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="petctl-checkpoint", daemon=True)
                self._thread.start()
                atexit.register(self.flush, _LAST_PATIENCE)
            self._changed.notify_all()

    def write(self, mark: saved.Mark, snapshot: Snapshot, state: State, names: List[str]) -> None:
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
                (mark, snapshot, hold), self._pending, self._busy = self._pending, None, True
            with hold:
                self._write(mark, snapshot)
            del snapshot, hold

    def _write(self, mark: saved.Mark, snapshot: Snapshot) -> None:
        try:
            saved.write(self._directory, mark, snapshot)
            self._tidy(mark)
        except Exception as error:  # training is worth more than any one checkpoint
            self._newest = None  # so that the same commit may be offered again
            self._complain(mark, error)

    def _tidy(self, mark: saved.Mark) -> None:
        self._complained = ""
        if place.rank() == 0:
            saved.prune(self._directory, self._keep)
            saved.sweep(self._directory, (mark.epoch, mark.round - 1))

    def _complain(self, mark: saved.Mark, error: BaseException) -> None:
        if str(error) != self._complained:
            self._complained = str(error)
            _say(f"the checkpoint {mark} was not written: {error}. Training goes on, the next one is tried again")


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


def _now() -> Tuple[int, int]:
    """(epoch, round) of this worker; torchrun's restarts count as rounds."""
    epoch = int(os.environ.get("PETCTL_EPOCH") or 0)
    return epoch, place.round_number() or int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0)


def _say(sentence: str) -> None:
    print(f"petctl.elastic: {sentence}", file=sys.stderr, flush=True)
