"""The files of output that a Batch AI user looks for: stdout.txt, stderr-3.txt, ..., filled while the job runs.

    logs/round-0001/rank-3.out   --LogFollower, in a thread-->   DIRECTORY/stdout-3.txt, or all ranks into stdout.txt

The workers' own logs stay the truth. Here every line of them is added once, also after the agent was killed and started
again: before an addition it is written down what is about to be added and where the file ended (`Ledger`). Several
nodes may add to one file; they take turns by a lock on it. Files are only ever appended to.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from typing import Callable, Dict, Iterator, Mapping, NamedTuple, Optional

from petctl.agent.logs.log_files import LogName, log_file
from petctl.agent.logs.log_follow import PARTIAL_AFTER, Chunk, LogFollower
from petctl.files import hold, replace_json

_STREAMS = {"out": "stdout", "err": "stderr"}
_NEVER = float("inf")
AGAIN = 1.0  # seconds until the next attempt, where a place cannot be written to


class Adding(NamedTuple):
    """An addition that may be half done."""

    log: str
    to: int  # how much of the log is delivered then
    file: str
    size: int  # of that file, before


class Ledger:
    """How far each log has been delivered, and whose logs are ours. It outlives the agent."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.done: Dict[str, int] = {}  # log -> bytes
        self.names: Dict[str, Dict[str, str]] = {}  # round -> rank -> what stands between "stdout" and ".txt"
        self.adding: Optional[Adding] = None
        try:
            with open(path, encoding="utf-8") as file:
                data = json.load(file)
        except (OSError, ValueError):
            return  # the first life of this node
        self.done, self.names = data["done"], data["names"]
        self.adding = Adding(*data["adding"]) if data["adding"] else None

    def write(self) -> None:
        """Replaces it. Not synced: it is of use only to the next agent on this machine."""
        replace_json(
            self._path, {"done": self.done, "names": self.names, "adding": self.adding}, draft=f"{self._path}.new"
        )


class StdOutErr:
    """Keeps those files of one node's ranks. `tell`: says, from another thread, why it cannot."""

    def __init__(self, log_dir: str, directory: str, ledger: str, tell: Callable[[str], None]) -> None:
        self._log_dir, self._directory, self._tell = log_dir, directory, tell
        self._ledger = Ledger(ledger)
        last, self._ledger.adding = self._ledger.adding, None
        if last is not None:
            done = self._ledger.done.get(last.log, 0)
            self._ledger.done[last.log] = _settled(log_dir, directory, last, done)
        self._mutex = threading.Lock()
        self._ending = threading.Event()
        self._given_up = False
        self._follower: Optional[LogFollower] = None
        self._thread = threading.Thread(target=self._work, name="petctl-stdouterr", daemon=True)
        if self._ledger.names:  # there was an agent before this one
            self._start()

    def own(self, number: int, names: Mapping[int, str]) -> None:
        """From now on these ranks of that round are ours."""
        with self._mutex:
            self._ledger.names[str(number)] = {str(rank): name for rank, name in names.items()}
            self._ledger.write()
        with contextlib.suppress(OSError):  # told when there is something to write
            for file in {f"{stream}{name}.txt" for name in names.values() for stream in _STREAMS.values()}:
                with _opened(os.path.join(self._directory, file)):
                    pass  # whoever looks for it finds it, also while it is empty
        if self._follower is None:
            self._start()

    def finish(self) -> None:
        """Returns when everything that the workers wrote is in its file."""
        self._ending.set()
        if self._follower is not None:
            self._follower.wake()
            self._thread.join()

    def give_up(self) -> None:
        """The node ends now."""
        self._given_up = True
        self._ending.set()

    def _start(self) -> None:
        # A line that another rank could break in two is delivered when it is whole.
        merged = any(not name for names in self._ledger.names.values() for name in names.values())
        patience = _NEVER if merged else PARTIAL_AFTER
        self._follower = LogFollower(self._log_dir, self._is_ours, self._begin, partial_after=patience, in_turn=True)
        self._thread.start()

    def _is_ours(self, name: LogName) -> bool:
        return str(name.rank) in self._ledger.names.get(str(name.round), {})

    def _begin(self, name: LogName, path: str) -> int:
        return self._ledger.done.get(_key(name), 0)

    def _work(self) -> None:
        assert self._follower is not None
        with self._follower as follower:
            for chunk in follower.follow(self._ending.is_set):
                self._deliver(chunk, follower.position(chunk.name))

    def _deliver(self, chunk: Chunk, position: int) -> None:
        """Again and again while the place cannot be written to; what is left at the end is left out, and said."""
        told = False
        while not self._given_up:
            try:
                self._add(chunk, position)
                return
            except OSError as error:
                if not told:
                    self._tell(f"cannot write to {self._directory}: {error.strerror}; the job's own logs are complete")
                told = True
            if self._ending.wait(AGAIN):
                return

    def _add(self, chunk: Chunk, position: int) -> None:
        key, name = _key(chunk.name), self._ledger.names[str(chunk.name.round)][str(chunk.name.rank)]
        file = f"{_STREAMS[chunk.name.stream]}{name}.txt"
        data = chunk.data if name or chunk.data.endswith(b"\n") else chunk.data + b"\n"
        with _locked(os.path.join(self._directory, file)) as fd:
            if _begins_line(self._log_dir, chunk.name, self._ledger.done.get(key, 0)) and not _ends_line(fd):
                os.write(fd, b"\n")  # whoever wrote there before was cut off in the middle of a line
            with self._mutex:
                self._ledger.adding = Adding(key, position, file, os.fstat(fd).st_size)
                self._ledger.write()
            while data:
                data = data[os.write(fd, data) :]
        with self._mutex:
            self._ledger.done[key], self._ledger.adding = position, None


def _settled(log_dir: str, directory: str, last: Adding, done: int) -> int:
    """How much of a log is delivered, given the addition that was under way when its agent died.

    Nobody else could write between the note and the addition: what is found at its place is ours, unless another node
    has added something else there meanwhile.
    """
    number, rank, stream = last.log.split("/")
    try:
        with open(log_file(log_dir, int(number), int(rank), stream), "rb") as log:
            log.seek(done)
            meant = log.read(last.to - done)
        with open(os.path.join(directory, last.file), "rb") as file:
            file.seek(last.size)
            there = file.read(len(meant))
    except OSError:
        return done
    return done + len(there) if meant.startswith(there) else done


def _begins_line(log_dir: str, name: LogName, position: int) -> bool:
    """Does a line of that log begin at this place?"""
    if position == 0:
        return True
    with open(log_file(log_dir, *name), "rb") as log:
        log.seek(position - 1)
        return log.read(1) == b"\n"


def _ends_line(fd: int) -> bool:
    """Would what is added to that file be a line of its own?"""
    size = os.fstat(fd).st_size
    return size == 0 or os.pread(fd, 1, size - 1) == b"\n"


def _key(name: LogName) -> str:
    return f"{name.round}/{name.rank}/{name.stream}"


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    """The file, to be appended to."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[int]:
    """The same, by nobody else at the moment."""
    with _opened(path) as fd:
        with contextlib.suppress(OSError):  # a file system that knows no locks
            hold(fd)
        yield fd
