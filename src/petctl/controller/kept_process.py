"""Keeps one process of a job running where the platform does no more than start programs: `petctl-agent.pyz keep`.

    NAME.out, NAME.err   what the process has printed, and its keeper
    NAME.starts          how often it was started, by whichever keeper: no number for --replacement comes twice
    NAME.lock            held as long as it is kept, with the keeper's process id; empty once it need not be
    NAME.wanted          says that it is started again after it has left
    changes.lock         held by who changes what is wanted, and by a keeper that is about to end: none ends unseen

It does so little that little can go wrong, and dies with nothing of its child left.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable, Dict, List, Optional

from petctl.agent.node import native
from petctl.agent.node.options import read_words
from petctl.errors import UsageError
from petctl.files import is_locked, locked, release, replace, take_lock
from petctl.retry import Backoff

USAGE = """\
Usage: petctl-agent keep NAME [--until FILE] [--detach] -- WORDS

Runs `petctl-agent WORDS --replacement N` in this directory, with N = 0 and then the next number whenever it has ended:
at once, and after growing pauses where it ends soon after its start. What it prints is appended to NAME.out, NAME.err.

It ends when that has ended with code 0, or with code 90 (as --leave-code) while there is no file NAME.wanted; after
SIGTERM or SIGINT, which it passes on; and at once where NAME is kept already.

Options:
  --until FILE         do not start it (again) where there is this file
  --detach             return once it is kept, by a process that goes on after its terminal or connection

Exit code: 0, or 128 and the number of the signal.
"""

LEFT = 90
"""Exit code of a node that has left, for --leave-code."""
CHANGES = "changes.lock"
LONG_LIFE = 10.0  # seconds; a process that ends sooner may do so again
PAUSES = (0.1, 30.0)  # seconds before the next start, from and to


def main(words: List[str]) -> int:
    """`petctl-agent keep`."""
    if "--help" in words or "-h" in words:
        print(USAGE, end="")
        return 0
    if "--" not in words[1:-1]:
        raise UsageError("keep needs NAME -- WORDS; see petctl-agent keep --help")
    cut = words.index("--")
    given = read_words("keep", words[1:cut], ("--until", "--detach"), ("--detach",))
    keeper = _Keeper(words[0], words[cut + 1 :], given.get("--until", ""))
    return _detached(keeper) if "--detach" in given else keeper.live()


def kept_here(directory: Path) -> Dict[str, int]:
    """The process ids of keepers on this machine that keep something in a directory, by the names of that."""
    read = {path: _read(path) for path in directory.glob("*.lock")}
    return {path.stem: int(pid) for path, pid in read.items() if pid and is_locked(path)}


def want(directory: Path, name: str, runs: bool) -> bool:
    """Has a node started again after it has left; whether its keeper must be started. `runs`: whether the platform says
    that there is one, be it that it has not begun. The caller holds CHANGES."""
    mark = directory / f"{name}.wanted"
    known = mark.exists()
    mark.touch()
    return not (runs and (known or _read(directory / f"{name}.lock")))


class _Keeper:
    def __init__(self, name: str, words: List[str], until: str) -> None:
        self._name, self._argv = name, [sys.executable, sys.argv[0], *words]
        self._over = Path(until) if until else None
        self._child: Optional[subprocess.Popen[bytes]] = None
        self._told = 0  # the signal that came last
        self._starts = 0
        self._pause = Backoff(*PAUSES)

    def live(self, begun: Callable[[], object] = lambda: None) -> int:
        """Until there is nothing left to be kept. `begun` is told once this one, or another, keeps it."""
        lock = take_lock(f"{self._name}.lock")
        if lock is None:
            begun()
            return 0
        os.truncate(lock, 0)
        os.write(lock, b"%d" % os.getpid())
        self._listen()
        begun()
        while not self._told and not (self._over and self._over.exists()):
            began = time.monotonic()
            code = self._one_life()
            if code == 0:
                break
            if code == LEFT and self._gives_up(lock):
                return 0
            if time.monotonic() - began >= LONG_LIFE:
                self._pause.restart()
            end = time.monotonic() + self._pause.pause()
            while not self._told and time.monotonic() < end:
                self._wait(end - time.monotonic())
        _release(lock)
        return 128 + self._told if self._told else 0

    def _listen(self) -> None:
        """Prints where the child will, and hears of its end and of signals."""
        for descriptor, kind in ((1, "out"), (2, "err")):
            path = f"{self._name}.{kind}"
            os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666), descriptor)
        self._wake, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: self._tell(number))

    def _tell(self, number: int) -> None:
        self._told = number
        if self._child is not None:
            self._child.send_signal(number)

    def _one_life(self) -> int:
        argv = [*self._argv, "--replacement", str(self._next_number())]
        try:
            self._child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, preexec_fn=native.die_with_parent())
        except OSError as error:
            _say(f"{self._name} cannot be started: {error}")
            return 1
        if self._told:  # before there was a child
            self._tell(self._told)
        while self._child.poll() is None:
            self._wait(None)
        code = self._child.returncode
        if code not in (0, LEFT):
            _say(f"{self._name} has ended with code {code}")
        return code

    def _next_number(self) -> int:
        with suppress(ValueError):
            self._starts = max(self._starts, int(_read(Path(f"{self._name}.starts")) or 0))
        number, self._starts = self._starts, self._starts + 1
        with suppress(OSError):  # a full disk must not end the job; this process has counted along
            replace(f"{self._name}.starts", str(self._starts), durable=True)
        return number

    def _gives_up(self, lock: int) -> bool:
        """Whether it need not come back; then nobody who changes that takes it for kept any more."""
        with locked(CHANGES):
            wanted = Path(f"{self._name}.wanted").exists()
            if not wanted:
                _release(lock)
            return not wanted

    def _wait(self, seconds: Optional[float]) -> None:
        """Until a signal has come, or so long."""
        if select.select([self._wake], [], [], seconds)[0]:
            os.read(self._wake, 4096)


def _detached(keeper: _Keeper) -> int:
    """Has it live in a session of its own, and returns when it does."""
    read, write = os.pipe()
    if os.fork():
        os.close(write)
        return 0 if os.read(read, 1) else 1
    code = 1
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):  # whoever waits for their end has not to wait for ours
            os.dup2(nothing, descriptor)
        code = keeper.live(lambda: os.write(write, b"."))
    finally:
        os._exit(code)


def _release(lock: int) -> None:
    os.truncate(lock, 0)
    release(lock)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""


def _say(sentence: str) -> None:
    with suppress(OSError):  # a full disk
        print(f"petctl-agent: {sentence}", file=sys.stderr, flush=True)
