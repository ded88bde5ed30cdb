"""What a script tells of its progress, and the deadlines that it sets itself.

    elastic.report(step=12, loss=loss, samples=seen)     as often as one likes
    with elastic.expires(after=30): ...                  the process ends when the block takes longer

Reports reach `petctl status`, the live view and the stall detection. They cost a few microseconds: the newest is kept
and a thread sends it on, a few times per second at most; the last one is always sent. Under plain python or torchrun
nobody listens, which is said once. Nothing here may delay or end a step, a deadline that was overrun excepted.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import sys
import threading
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from petctl.elastic.channel import connect

PROGRESS_FILE = "PETCTL_PROGRESS"
_PAUSE = 0.2  # seconds between two messages
_LAST_WAIT = 2.0  # seconds at the end of the process for a report that is on its way
_STDERR = 2

_reporter: Optional[_Reporter] = None


def report(step: Optional[int] = None, **metrics: Any) -> None:
    """Tells how far this rank is, with any metrics (numbers, or tensors with one element).

    `samples`: how many were trained on so far; shown per second. `busy`: seconds of this step in which this rank did
    not wait for the others; with it stragglers are found also among ranks that step together. Without arguments it says
    only that the rank is alive, which keeps a long evaluation from being taken for a hang.
    """
    global _reporter
    if _reporter is None or _reporter.pid != os.getpid():
        _reporter = _Reporter()
    _reporter.take(step, metrics)


class _Reporter:
    """Keeps the newest report until it has been sent."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._changed = threading.Condition()
        self._step: Optional[int] = None
        self._metrics: Dict[str, Any] = {}
        self._time = 0.0  # of the newest report; 0: it has been sent, or is being sent
        self._sending = False
        self._listened_to = connect() is not None or bool(os.environ.get(PROGRESS_FILE))
        if self._listened_to:
            threading.Thread(target=self._run, name="petctl-progress", daemon=True).start()
            atexit.register(self._last)
        else:
            print("petctl.elastic: reports go nowhere here; run under petctl", file=sys.stderr, flush=True)

    def take(self, step: Optional[int], metrics: Dict[str, Any]) -> None:
        if not self._listened_to:
            return
        # A loss that keeps its graph would keep the whole step's memory.
        own = {name: value.detach() if hasattr(value, "detach") else value for name, value in metrics.items()}
        with self._changed:
            self._step = self._step if step is None else step
            self._metrics.update(own)
            self._time = time.time()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._time > 0)
                newest, self._sending = self._take_newest(), True
            body = _body(*newest)  # a metric on a GPU is waited for here, and not where the training would wait too
            channel = connect()
            if channel is not None:
                channel.send("progress", **body)
            else:
                _append(body)
            with self._changed:
                self._sending = False
                self._changed.notify_all()
            time.sleep(_PAUSE)  # a limit on messages; nobody waits for it

    def _take_newest(self) -> Tuple[Optional[int], float, Dict[str, Any]]:
        moment, self._time = self._time, 0.0
        return self._step, moment, dict(self._metrics)

    def _last(self) -> None:
        """What was not sent when the process ends goes to the file: the agent reads that one after the end."""
        if os.getpid() == self.pid:
            with self._changed:
                self._changed.wait_for(lambda: not self._sending, _LAST_WAIT)
                if self._time > 0:
                    _append(_body(*self._take_newest()))


def _body(step: Optional[int], moment: float, metrics: Dict[str, Any]) -> Dict[str, Any]:
    """A report as it is sent."""
    numbers = {name: _number(value) for name, value in metrics.items()}
    return {"step": step, "time": moment, "metrics": {n: v for n, v in numbers.items() if v is not None}}


def _number(value: Any) -> Any:
    """A metric as JSON has it; None for what is no number."""
    if isinstance(value, (int, float)):
        return value
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def _append(body: Dict[str, Any]) -> None:
    """The same report as a line of the progress file."""
    path = os.environ.get(PROGRESS_FILE)
    if not path:
        return
    step = {} if body["step"] is None else {"step": body["step"]}
    words = [f"{name}={value}" for name, value in {**step, **body["metrics"]}.items()]
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, (" ".join(words) + "\n").encode())
        finally:
            os.close(descriptor)
    except OSError:
        pass  # a full disk costs the report, not the training


_deadlines: List[float] = []
_arming = threading.Lock()


@contextlib.contextmanager
def expires(after: float) -> Iterator[None]:
    """Ends the process, with the stacks of all threads on stderr, when the block takes longer than `after` seconds.

    Blocks may be nested and may run in several threads: the earliest deadline counts. It works also while a C function
    holds the interpreter lock. It uses faulthandler's one timer, so the script cannot use that beside it.
    """
    deadline = time.monotonic() + after
    with _arming:
        _deadlines.append(deadline)
        _arm()
    try:
        yield
    finally:
        with _arming:
            _deadlines.remove(deadline)
            _arm()


def _arm() -> None:
    if _deadlines:
        left = max(0.001, min(_deadlines) - time.monotonic())
        faulthandler.dump_traceback_later(left, file=_STDERR, exit=True)
    else:
        faulthandler.cancel_dump_traceback_later()
