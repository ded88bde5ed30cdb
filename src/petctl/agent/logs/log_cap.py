"""Keeps log files within their limit while somebody else writes them.

Of a job's rounds the logs of the first and of the last 100 are kept: restarts over weeks must not fill the disk.

A worker writes its files itself, so nobody can rotate them. A file that outgrew its limit loses its middle instead: the
disk space is given back, the offsets stay, and readers (`log_follow.py`) skip the hole and say so.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from typing import List, Optional

from petctl.agent.logs.log_files import SEGMENT, dropped_marker, parse_round, round_directory
from petctl.agent.node import native

_EVERY = 2.0  # seconds between two looks
_HEAD = 1 << 20  # of a cut file the first part stays: it says how the run began
_BLOCK = 4096
KEPT_ROUNDS = 100
_FEW = 8  # segments; a smaller limit is kept by the block


class LogCap:
    """Looks at the sizes of the current round's files now and then, in the agent's loop."""

    def __init__(self) -> None:
        self._paths: List[str] = []
        self._cap = 0
        self._timer: Optional[asyncio.TimerHandle] = None

    def watch(self, paths: List[str], cap: int) -> None:
        """These files from now on, instead of those before."""
        self._paths, self._cap = paths, cap
        if self._timer is None and cap > 0:
            self._timer = asyncio.get_running_loop().call_later(_EVERY, self._look)

    def begin(self, log_dir: str, number: int) -> None:
        """A round begins: logs of rounds long before it go. Every round before it is over, on every node."""
        if number > KEPT_ROUNDS + 1:
            asyncio.get_running_loop().run_in_executor(None, prune, log_dir, number)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        for path in self._paths:
            try:
                big = os.stat(path).st_blocks * 512 > self._cap
            except OSError:
                continue
            if big:  # cutting may take the disk a while, and heartbeats must not wait for it
                loop.run_in_executor(None, punch, path, self._cap)
        self._timer = loop.call_later(_EVERY, self._look)


def prune(log_dir: str, number: int) -> None:
    """Removes the logs of rounds before the last KEPT_ROUNDS up to this one, but for the first round's."""
    try:
        found = [parse_round(name) for name in os.listdir(log_dir)]
    except OSError:
        return
    for past in found:
        if past is not None and 1 < past <= number - KEPT_ROUNDS:
            shutil.rmtree(round_directory(log_dir, past), ignore_errors=True)


def punch(path: str, cap: int) -> int:
    """Cuts the middle out of a file that takes more than `cap` bytes on disk; says how many bytes were dropped.

    The first MiB and the newest half of `cap` stay. Where the file system cannot make holes, everything after the first
    MiB goes instead: the limit holds, and the writer, which appends, goes on undisturbed.
    """
    try:
        status = os.stat(path)
        if status.st_blocks * 512 <= cap:
            return 0
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    except OSError:
        return 0
    try:
        # Whole segments, so that what a store has of the file is whole too, or absent.
        block = SEGMENT if cap >= _FEW * SEGMENT else _BLOCK
        head = _aligned(min(_HEAD, cap // 4), block)
        length = _aligned(status.st_size - cap // 2, block) - head
        if length <= 0:
            return 0
        if native.punch_hole(fd, head, length):
            return length
        dropped = status.st_size - head
        os.ftruncate(fd, head)
        os.write(fd, dropped_marker(dropped))
        return dropped
    except OSError:
        return 0  # tried again at the next look
    finally:
        os.close(fd)


def _aligned(offset: int, block: int) -> int:
    return max(0, offset) // block * block
