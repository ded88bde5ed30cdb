"""Fills a shared volume once: of all nodes, of whatever jobs, that want the same in it, one does it, the others wait.

    VOLUME/.petctl/prefetch-KEY.0      the first attempt: a counter that rises while it goes on, or how it ended
    VOLUME/.petctl/prefetch-KEY.1      the next one, made when the first had failed or had stopped counting

KEY stands for the step. A file of the next number is made by one alone, which network file systems promise more widely
than locks. An attempt that does not count for PATIENCE seconds, by the clock of whoever watches it, has gone with its
pod or machine. One that was only slow, and finds a later one, gives way; for that while the step may run twice, so it
must not mind. Nobody tells of a change in a network file system: the others look again with every beat.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from typing import Callable, Iterator, List, Optional, Tuple

from petctl.agent.workers import processes
from petctl.errors import UsageError

USAGE = "Usage: petctl-agent fill DIRECTORY LINE\n\nRuns the shell line once for all who share the directory.\n"
BEAT = 2.0
PATIENCE = 60.0
DONE, FAILED = "done", "failed"
_TAKEN_OVER = 1 << 10  # no exit code


def main(words: List[str]) -> int:
    """`petctl-agent fill DIRECTORY LINE`: the exit code of the step, 0 where somebody has done it."""
    if len(words) != 2 or "--help" in words:
        print(USAGE, end="")
        return 0 if "--help" in words else UsageError.code
    directory, line = words
    try:
        return fill(directory, line)
    except OSError as error:
        print(f"cannot fill {directory}: {error.strerror or error}", file=sys.stderr)
        return 1


def fill(directory: str, line: str, beat: float = BEAT, patience: float = PATIENCE) -> int:
    """Comes back when the volume is filled, or the step has failed here."""
    attempts = _Attempts(directory, line)
    seen: Tuple[int, str] = (-1, "")
    since = time.monotonic()
    waiting = threading.Event()
    while True:
        number, state = attempts.latest()
        if state == DONE:
            return 0
        if (number, state) != seen:
            if seen[0] != number and number >= 0 and state != FAILED:
                print(f"waiting: another node is filling {directory} (attempt {number})", flush=True)
            seen, since = (number, state), time.monotonic()
        if number < 0 or state == FAILED or time.monotonic() - since >= patience:
            if attempts.take(number + 1):
                code = attempts.run(number + 1, line, beat)
                if code != _TAKEN_OVER:
                    return code
            continue
        waiting.wait(beat)


class _Attempts:
    """The files that tell of one step in one volume."""

    def __init__(self, directory: str, line: str) -> None:
        self._directory = directory
        self._place = os.path.join(directory, ".petctl")
        self._count = 0
        self._name = f"prefetch-{hashlib.sha256(line.encode()).hexdigest()[:16]}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._place)
            os.chmod(self._place, stat.S_IMODE(os.stat(directory).st_mode))  # whoever may write there may write here

    def latest(self) -> Tuple[int, str]:
        """The number of the last attempt, and what it says; -1 before the first."""
        # A listing is fresh also where a network file system remembers which single names there were not.
        endings = [name[len(self._name) + 1 :] for name in os.listdir(self._place) if name.startswith(self._name)]
        number = max([int(ending) for ending in endings if ending.isdigit()], default=-1)
        return (number, self._read(number)) if number >= 0 else (-1, "")

    def take(self, number: int) -> bool:
        """Begins an attempt; False where another was faster."""
        try:
            os.close(os.open(self._path(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            return False
        return True

    def run(self, number: int, line: str, beat: float) -> int:
        """The exit code of the step; _TAKEN_OVER where a later attempt has begun meanwhile."""
        env = {**os.environ, "PETCTL_VOLUME": self._directory}
        written = threading.Thread(target=os.sync, daemon=True)  # it must be there before anybody relies on it

        def ended(seconds: float) -> bool:
            with contextlib.suppress(subprocess.TimeoutExpired):
                step.wait(seconds)
            return step.returncode is not None

        def synced(seconds: float) -> bool:
            written.join(seconds)
            return not written.is_alive()

        with _stopping() as stop:
            step = stop.step = subprocess.Popen(["/bin/sh", "-c", line], env=env)
            try:
                mine = self._count_until(ended, number, beat, stop)
                if mine:
                    written.start()
                    mine = self._count_until(synced, number, beat, stop)
            except BaseException:
                _end(step)
                self._write(number, FAILED)  # nobody needs to wait for its silence
                raise
        if not mine:
            print("another node has taken over: this one missed its heartbeat", flush=True)
            _end(step)
            return _TAKEN_OVER
        code = step.returncode
        self._write(number, FAILED if code else DONE)
        return code if code >= 0 else 128 - code

    def _count_until(self, over: Callable[[float], bool], number: int, beat: float, stop: _Stop) -> bool:
        """Shows that the attempt goes on, until it is over; False where a later one has begun."""
        while not stop.asked:
            self._write(number, str(self._count))
            self._count += 1
            ended = over(beat)
            if self.latest()[0] > number:
                return False
            if ended and not stop.asked:
                return True
        raise SystemExit(128 + signal.SIGTERM)

    def _path(self, number: int) -> str:
        return os.path.join(self._place, f"{self._name}.{number}")

    def _read(self, number: int) -> str:
        with open(self._path(number), encoding="utf-8") as file:
            return file.read().strip()

    def _write(self, number: int, text: str) -> None:
        with open(self._path(number), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


class _Stop:
    """Whether this process was asked to stop; its step is ended at once, so that nobody waits for that."""

    def __init__(self) -> None:
        self.asked = False
        self.step: Optional[subprocess.Popen[bytes]] = None

    def ask(self, number: int, frame: object) -> None:
        self.asked = True
        if self.step is not None:
            _kill(self.step)


@contextlib.contextmanager
def _stopping() -> Iterator[_Stop]:
    """SIGTERM is a wish while the body runs. Raised as an exception it could come when the step has just been made."""
    stop = _Stop()
    before = signal.signal(signal.SIGTERM, stop.ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)


def _kill(step: subprocess.Popen[bytes]) -> None:
    """Kills the step with all that descends from it."""
    if step.returncode is None:
        processes.signal_each({step.pid} | processes.descendants(step.pid, processes.table()), signal.SIGKILL)


def _end(step: subprocess.Popen[bytes]) -> None:
    _kill(step)
    step.wait()
