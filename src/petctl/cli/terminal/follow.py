"""Follows a running job on the terminal: its workers' lines, its events, its status line, and Ctrl-C.

It never decides how a job ends. Ctrl-C asks for a cancel and goes on following; a second one kills; a third one leaves.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, Iterable, Iterator, Mapping, Sequence, TypeVar, Union

from petctl.cli.terminal.text import duration, elapsed, progress_words
from petctl.console.screen import Screen

if TYPE_CHECKING:
    from petctl.jobs import JobHandle, LogLine, Status


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


ORDINARY_START = 2.0  # seconds in line that are not worth a word


class Follower:
    """One job on one screen, from now to its end."""

    def __init__(self, handle: JobHandle, screen: Screen) -> None:
        self._handle, self._screen = handle, screen
        self._funnel: Funnel[Union[LogLine, str]] = Funnel()
        self._interrupts = 0
        self._began, self._waits_for = time.monotonic(), ""
        self._attend_at = 0.0  # when to do next what nobody else does for the job
        self._cancelling = threading.Lock()  # the kill is asked for behind the cancel, never beside it

    def follow(self, pressed: Sequence[object] = ()) -> Status:
        """Writes until the job has ended and every line is out; gives its final status.

        `pressed`: one for each Ctrl-C that was held back until now (`held_interrupts`).
        """
        previous = signal.signal(signal.SIGINT, self._interrupt)
        try:
            for _ in pressed:  # looked at only now: from here on, none is added
                self._interrupt()
            self._funnel.add(self._handle.logs(follow=True, blocks=True))
            self._funnel.add(self._sentences())
            waiting = True
            for batch in self._funnel.batches():
                self._write(batch)
                if time.monotonic() >= self._attend_at:
                    self._attend_at = time.monotonic() + self._handle.attend()
                if self._screen.live:
                    self._screen.status(status_line(self._handle.status()))
                elif waiting:
                    waiting = self._tell_waiting(batch)
            return self._handle.wait()
        finally:
            self._funnel.close()
            self._screen.close()
            signal.signal(signal.SIGINT, previous)

    def _tell_waiting(self, batch: list[Union[LogLine, str]]) -> bool:
        """Where there is no status line: says what a job in line waits for. Whether it still waits."""
        if batch:  # a job that speaks has begun
            return False
        status = self._handle.status()
        if status.state != "queued":
            return False
        if status.sentence not in ("", self._waits_for) and time.monotonic() - self._began >= ORDINARY_START:
            self._waits_for = status.sentence
            self._screen.say(status.sentence)
        return True

    def _sentences(self) -> Iterator[str]:
        for event in self._handle.events(follow=True):
            if is_news(event):
                yield str(event["sentence"])

    def _write(self, batch: list[Union[LogLine, str]]) -> None:
        for spoken, items in groupby(batch, key=_is_sentence):
            if not spoken:
                self._screen.lines(items)  # type: ignore[arg-type]
                continue
            for sentence in items:
                self._screen.say(str(sentence))

    def _interrupt(self, *signal_and_frame: object) -> None:
        """Acts in a thread of its own: it must work also while a stalled reader blocks the main thread's write."""
        self._interrupts += 1
        if self._interrupts > 2:
            raise KeyboardInterrupt
        threading.Thread(target=self._cancel, args=(self._interrupts > 1,), daemon=True).start()

    def _cancel(self, kill: bool) -> None:
        self._funnel.put("killing" if kill else "cancelling; press Ctrl-C again to kill")
        try:
            with self._cancelling:
                self._handle.cancel(kill=kill)
        except Exception as error:  # the user must hear of any: the job may go on
            self._funnel.put(f"cannot cancel the job: {error}")


@contextmanager
def held_interrupts() -> Iterator[list[object]]:
    """Ctrl-C is noted and acted on later: in the middle of a submission nobody could say what it has left behind."""
    pressed: list[object] = []
    previous = signal.signal(signal.SIGINT, lambda *press: pressed.append(press))
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, previous)


def is_news(event: Mapping[str, Any]) -> bool:
    """Whether a person who follows wants to read it: not the ordinary start, nor what the next sentence says again."""
    kind = event.get("kind")
    ordinary = kind == "node" and event.get("restart") is False
    first = kind == "round" and event.get("round") == 1
    return kind not in ("started", "failure", "closing", "progress", "training", "stall") and not ordinary and not first


def copy_lines(lines: Iterator[LogLine], screen: Screen) -> None:
    """Writes lines until there are no more; Ctrl-C just ends it."""
    funnel: Funnel[LogLine] = Funnel()
    funnel.add(lines)
    try:
        for batch in funnel.batches():
            screen.lines(batch)
    finally:
        funnel.close()


def status_line(status: Status) -> str:
    """The one line that tells where a job stands."""
    running = sum(node.state == "running" for node in status.nodes)
    parts = [
        status.id,
        status.state,
        f"{running}/{status.size.wanted} nodes",
        f"round {status.round}" if status.round else "",
        duration(elapsed(status)),
        progress_words(status.progress) if status.progress is not None else "",
        status.sentence,
    ]
    return "  ".join(part for part in parts if part)


def _is_sentence(item: object) -> bool:
    return isinstance(item, str)
