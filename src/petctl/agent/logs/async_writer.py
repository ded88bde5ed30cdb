"""Bytes for a reader who may be slow, or never read: handed over at once, written by a thread, bounded in between.

Whoever offers something never waits. What does not fit is left out, counted, and said as soon as there is room. It does
not know what the bytes mean.
"""

from __future__ import annotations

import os
import select
import threading
from typing import Callable


class Outlet:
    """Writes to `fd`. `missed` makes the bytes that stand for a number of items which were left out."""

    def __init__(self, fd: int, limit: int, missed: Callable[[int], bytes], name: str) -> None:
        self._fd, self._limit, self._missed = fd, limit, missed
        self._stock = bytearray()
        self._dropped = 0
        self._ended = False
        self._changed = threading.Condition()
        self._writer = threading.Thread(target=self._write, name=name, daemon=True)

    def start(self) -> None:
        """Begins to write."""
        self._writer.start()

    def offer(self, data: bytes, items: int = 1, always: bool = False) -> None:
        """Hands over bytes that hold so many items; `always`: also where they do not fit."""
        with self._changed:
            if not always and self._stock and len(self._stock) + len(data) > self._limit:
                self._dropped += items
                return
            self._mark_dropped()
            self._stock += data
            self._changed.notify()

    def end(self) -> None:
        """Nothing more is offered."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def wait(self, seconds: float) -> None:
        """Until everything is written, or the time is over."""
        self._writer.join(seconds)

    def _mark_dropped(self) -> None:
        if self._dropped:
            self._stock += self._missed(self._dropped)
            self._dropped = 0

    def _write(self) -> None:
        while True:
            with self._changed:
                while not self._stock and not self._ended:
                    self._changed.wait()
                if not self._stock:
                    self._mark_dropped()
                if not self._stock:
                    return
                data = bytes(self._stock[:65536])
                del self._stock[:65536]
            try:
                _write_all(self._fd, data)
            except OSError:
                return  # nobody reads any more


def _write_all(fd: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:  # somebody made our stdout non-blocking
            select.select([], [fd], [])
