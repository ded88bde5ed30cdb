"""Process 1 of a coordinator's container: starts the coordinator, and starts it anew whenever it dies.

    parent  (process 1: reaps what others leave, passes SIGTERM on)
      `-- coordinator

A coordinator that is killed is back in a moment, with a higher epoch; the nodes find it at the same address and go on.
The container ends with the coordinator's own code when that is final: the job is over, the coordinator was asked to
stop, or another try would end in the same way.

It must not import asyncio, talk to the network or read the job: it does so little that little can go wrong.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Callable, Optional, Tuple

from petctl.agent.node import native
from petctl.agent.workers import processes
from petctl.controller.seat import DEPOSED, OVER
from petctl.controller.state_dir import Memory
from petctl.errors import InternalError, UsageError

FINAL = (OVER, DEPOSED, UsageError.code)
GAVE_UP = 1
SHORT_LIFE = 1.0  # seconds of listening; a coordinator that dies sooner may die of something that does not go away
SHORT_LIVES = 10  # in a row: then the container ends, and whoever made it may try elsewhere
PAUSES = (0.0, 0.0, 0.2, 0.5, 1.0, 2.0)  # seconds before the next, by short lives in a row
STOP_PATIENCE = 5.0  # seconds to end after SIGTERM
_SIGNALS = (signal.SIGTERM, signal.SIGINT)

Run = Callable[[int, int], int]  # (number of this start, descriptor to write to when it listens) -> exit code


def keep_alive(run: Run, state: Path, replacement: int) -> int:
    """Runs the coordinator in a child, as often as it takes; the container's exit code."""
    try:
        memory = Memory(state)
        start = memory.next_start(replacement)
    except OSError as error:
        raise UsageError(f"cannot write to {state}: {error.strerror}; give another --state") from None
    return _Parent(run, memory, replacement, start).live()


class _Parent:
    def __init__(self, run: Run, memory: Memory, replacement: int, start: int) -> None:
        self._run, self._memory, self._replacement, self._start = run, memory, replacement, start
        self._child = 0
        self._asked = 0  # the signal to stop that came first
        self._kill_at: Optional[float] = None
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        native.set_child_subreaper(True)  # also where another process is number 1
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in _SIGNALS:
            signal.signal(number, lambda number, frame: self._stop(number))

    def live(self) -> int:
        """Until there is nothing left to be kept alive."""
        short_lives = 0
        while True:
            code, seconds = self._one_life()
            if code in FINAL:
                return code
            if self._asked:
                return 128 + self._asked
            short_lives = short_lives + 1 if seconds < SHORT_LIFE else 0
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            if short_lives >= SHORT_LIVES:
                _say(f"the coordinator {how}, {short_lives} times in a row soon after its start: giving up")
                return GAVE_UP
            _say(f"the coordinator {how}; restarting it")
            self._pause(PAUSES[min(short_lives, len(PAUSES) - 1)])
            if self._asked:
                return 128 + self._asked
            self._start = self._next_start()

    def _next_start(self) -> int:
        try:
            return max(self._memory.next_start(self._replacement), self._start + 1)
        except OSError:  # a full disk must not end the job; this process has counted along
            return self._start + 1

    def _stop(self, number: int) -> None:
        self._asked = self._asked or number
        self._kill_at = self._kill_at or time.monotonic() + STOP_PATIENCE
        if self._child:
            processes.signal_each([self._child], signal.SIGTERM)

    def _one_life(self) -> Tuple[int, float]:
        """The coordinator's exit code, or the negative number of the signal that killed it; how long it listened."""
        ready_read, ready_write = os.pipe()
        bind = native.die_with_parent()
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # until it is known whom to pass them on to
        child = os.fork()
        if child == 0:
            os.close(ready_read)
            self._become(bind, ready_write)
        self._child = child
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        if self._asked:  # before there was a child
            self._stop(self._asked)
        os.close(ready_write)
        try:
            return self._wait(ready_read)
        finally:
            self._child = 0
            os.close(ready_read)

    def _become(self, bind: Optional[Callable[[], None]], ready: int) -> None:
        code = InternalError.code
        try:
            signal.set_wakeup_fd(-1)
            for number in (*_SIGNALS, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            if bind is not None:
                bind()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            code = self._run(self._start, ready)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)

    def _wait(self, ready: int) -> Tuple[int, float]:
        """Reaps until the child has ended."""
        sources, listens = [self._wake_read, ready], 0.0
        while True:
            # Reaping comes first: the child may have ended before anybody looked.
            status = self._reap()
            if status is not None:
                code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
                return code, time.monotonic() - listens if listens else 0.0
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                processes.signal_each([self._child], signal.SIGKILL)
            found, _, _ = select.select(sources, [], [], None if self._kill_at is None else 0.1)
            if ready in found:
                listens = time.monotonic() if os.read(ready, 1) else listens
                sources.remove(ready)
            if self._wake_read in found:
                os.read(self._wake_read, 4096)

    def _reap(self) -> Optional[int]:
        """Takes leave of all who have ended; the child's status, if it is among them."""
        found = None
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return found
                if pid == self._child:
                    found = status
        except ChildProcessError:
            return found

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._asked and time.monotonic() < end:
            found, _, _ = select.select([self._wake_read], [], [], max(0.0, end - time.monotonic()))
            if found:
                os.read(self._wake_read, 4096)
            self._reap()


def _say(sentence: str) -> None:
    try:
        print(f"petctl-agent: {sentence}", file=sys.stderr, flush=True)
    except OSError:
        pass  # nobody reads it
