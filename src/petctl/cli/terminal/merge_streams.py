"""Several blocking iterators -> batches in one thread.

Each source is read in a thread of its own; whoever calls `batches` gets everything that has gathered since the last
batch, so a flood becomes few large batches and a single item is not held back. It is bounded: a source whose items
nobody takes waits.

It knows nothing of jobs or terminals.
"""

from __future__ import annotations

import queue
import threading
from typing import Generic, Iterable, Iterator, TypeVar

Item = TypeVar("Item")

MOST_WAITING = 32  # an item can be a megabyte of lines
PATIENCE = 0.5  # seconds; also between two looks at the status
MOST_AT_ONCE = 32


class _Ended:
    """A source has ended, by itself or by an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error


class Funnel(Generic[Item]):
    """Leave it with `close`; sources that block for ever are daemon threads and end with the process."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Item | _Ended] = queue.SimpleQueue()
        self._room = threading.Event()
        self._closed = False
        self._sources = 0

    def add(self, source: Iterable[Item]) -> None:
        """Begins to read a source."""
        self._sources += 1
        threading.Thread(target=self._read, args=(source,), daemon=True).start()

    def put(self, item: Item) -> None:
        """Adds one item from outside; safe in a signal handler too."""
        self._queue.put(item)

    def batches(self) -> Iterator[list[Item]]:
        """Batches until all sources have ended, an empty one after half a second without news. Raises a source's error.

        It never waits without an end: a Ctrl-C that comes just as the wait begins is seen only after it.
        """
        while self._sources:
            items: list[Item] = []
            ended = self._gather(items)
            yield items
            if ended is not None:
                self._sources -= 1
                if ended.error is not None:
                    raise ended.error

    def close(self) -> None:
        """Lets waiting sources go."""
        self._closed = True
        self._room.set()

    def _gather(self, items: list[Item]) -> _Ended | None:
        try:
            item = self._queue.get(timeout=PATIENCE)
            while True:
                if isinstance(item, _Ended):
                    return item
                items.append(item)
                if len(items) >= MOST_AT_ONCE:
                    return None
                item = self._queue.get_nowait()
        except queue.Empty:
            return None
        finally:
            self._room.set()

    def _read(self, source: Iterable[Item]) -> None:
        put, waiting = self._queue.put, self._queue.qsize
        try:
            for item in source:
                put(item)
                if waiting() > MOST_WAITING:
                    self._wait_for_room()
                if self._closed:
                    return
        except Exception as error:
            put(_Ended(error))
        else:
            put(_Ended())

    def _wait_for_room(self) -> None:
        self._room.clear()
        # Looked at again after clear(): a batch taken in between has set the event for nothing.
        if self._queue.qsize() > MOST_WAITING and not self._closed:
            self._room.wait()
