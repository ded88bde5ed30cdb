"""Work in parallel within bounds: so many threads, and so many bytes in flight. Knows nothing of what the work is.

Whoever hands in work waits while the bounds are reached, so a stream of a million files never piles up. The threads do
not keep the program alive: whoever is interrupted leaves at once, and the next run goes on from what is there.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Callable, Optional, Tuple

WORKERS = 24
IN_FLIGHT = 96 << 20
PARTING = 10.0
"""Seconds in which what is under way may end after an error."""

_Job = Optional[Tuple[int, Callable[[], None]]]


class TransferPool:
    """Threads that do what they are handed, until an error is final for all."""

    def __init__(self, failed: Callable[[Exception], bool], workers: int = WORKERS, in_flight: int = IN_FLIGHT) -> None:
        """`failed` is told of every error, in the thread where it happened, and says whether it is final."""
        self._failed, self._in_flight = failed, in_flight
        self._queue: SimpleQueue[_Job] = SimpleQueue()
        self._free = threading.Condition()
        self._bytes = self._jobs = 0
        self._workers, self._most = workers, 4 * workers
        self._threads = 0
        self._short_of_bytes = False
        self.final: BaseException | None = None

    def hand(self, cost: int, work: Callable[[], None]) -> None:
        """Has `work` done as soon as its bytes fit; raises the final error, if there was one."""
        with self._free:
            if not self._fits(cost):
                self._short_of_bytes = self._jobs < self._most
                self._free.wait_for(lambda: self.final or self._fits(cost))
            if self.final:
                raise self.final
            self._bytes += cost
            self._jobs += 1
            if self._threads < min(self._workers, self._jobs):
                self._threads += 1
                threading.Thread(target=self._run, name=f"transfer-{self._threads}", daemon=True).start()
        self._queue.put((cost, work))

    def finish(self) -> None:
        """Waits for all of it; raises the final error, if there was one."""
        with self._free:
            self._free.wait_for(lambda: self.final or not self._jobs)
        if self.final:
            raise self.final
        self._dismiss()

    def stop(self, error: BaseException) -> None:
        """No more work. After an error what is under way may end; who is interrupted does not wait."""
        self.end(error)
        if isinstance(error, Exception):
            with self._free:
                self._free.wait_for(lambda: not self._jobs, PARTING)
        self._dismiss()

    def end(self, error: BaseException) -> None:
        """Makes an error the final one."""
        with self._free:
            self.final = self.final or error
            self._free.notify_all()

    def _fits(self, cost: int) -> bool:
        return self._jobs < self._most and (not self._bytes or self._bytes + cost <= self._in_flight)

    def _dismiss(self) -> None:
        for _ in range(self._threads):
            self._queue.put(None)

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            cost, work = job
            try:
                if not self.final:
                    work()
            except Exception as error:
                if self._failed(error):
                    self.end(error)
            finally:
                del job, work  # with the bytes they hold
                with self._free:
                    self._bytes -= cost
                    self._jobs -= 1
                    # Not for every small file: whoever hands in work is woken when half of it is done.
                    if self._short_of_bytes or self._jobs <= self._most // 2:
                        self._free.notify_all()
