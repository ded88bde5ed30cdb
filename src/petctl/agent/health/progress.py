"""What the local workers say of their progress: the newest of each, and how fast they are.

It comes on two ways: as messages over the worker's socket (`petctl.elastic.report`), and as lines that any program in
any language may append to the file `$PETCTL_PROGRESS`, one file per worker, next to its logs:

    step=12 loss=0.31 samples=4096

Only the newest line counts, so only the end of a file is read, a few times per second at most, however much is written.
Whatever a worker says is foreign data: what is not a number is left out. What progress means for the round (stalls,
stragglers) is decided by the coordinator.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import deque
from typing import Callable, Deque, List, Mapping, NamedTuple, Optional, Sequence

from petctl.agent.logs.log_files import read_end
from petctl.agent.node import native
from petctl.rendezvous.core.messages import METRIC_NAME, METRICS_LIMIT, NOT_FINITE, Metrics, Progress

VARIABLE = "PETCTL_PROGRESS"
_PAUSE = 0.2  # seconds between two looks at files that change
_BLIND_PAUSE = 1.0  # ... where the system does not tell that they do
_WINDOW = 10.0  # seconds over which a pace is measured, with at least _FEWEST reports
_FEWEST = 8
_MOST = 256
_LINE = 4096  # bytes of the end of a file that are looked at
_LARGEST = 2**53


class _Moment(NamedTuple):
    time: float
    step: int
    samples: float


class _Look(NamedTuple):
    """A file that was written anew may be as large as before."""

    size: int
    written: int


class _Rank:
    """One local worker."""

    def __init__(self, started: float) -> None:
        self.started = started
        self.moments: Deque[_Moment] = deque(maxlen=_MOST)
        self.reported = False
        self.step = -1
        self.busy = 0.0
        self.metrics: Metrics = {}
        self.time = 0.0

    def take(self, values: Metrics, moment: float, now: float) -> None:
        """A report: what it does not repeat stays as it was."""
        self.reported, self.time = True, moment
        step, busy = values.pop("step", None), values.pop("busy", None)
        if isinstance(busy, (int, float)) and busy > 0:
            self.busy = float(busy)
        self.metrics = dict(list({**self.metrics, **values}.items())[: METRICS_LIMIT - 1])  # one more may be derived
        if isinstance(step, (int, float)) and 0 <= step < _LARGEST:
            if step < self.step:
                self.moments.clear()  # it went back: the time in between tells nothing
            self.step = int(step)
            samples = values.get("samples")
            self.moments.append(_Moment(now, self.step, samples if isinstance(samples, (int, float)) else -1))
            while len(self.moments) > _FEWEST and self.moments[0].time < now - _WINDOW:
                self.moments.popleft()

    @property
    def seconds(self) -> float:
        """How long the window is."""
        return self.moments[-1].time - self.moments[0].time if self.moments else 0.0

    @property
    def pace(self) -> float:
        """Steps per second."""
        return (self.moments[-1].step - self.moments[0].step) / self.seconds if self.seconds > 0 else 0.0

    @property
    def gap(self) -> float:
        """Seconds between two reports; the first one's tells how long everything takes that comes before it."""
        if len(self.moments) == 1:
            return self.moments[0].time - self.started
        return self.seconds / (len(self.moments) - 1) if self.moments else 0.0

    def shown(self) -> Metrics:
        """Its metrics, with the rate of samples where their number is reported."""
        if self.seconds > 0 and min(self.moments[0].samples, self.moments[-1].samples) >= 0:
            rate = (self.moments[-1].samples - self.moments[0].samples) / self.seconds
            return {**self.metrics, **_numbers({"samples_per_second": float(f"{rate:.4g}")})}
        return self.metrics


class ProgressBook:
    """The progress of one node's workers in the round that runs. Lives in the agent's loop and never waits."""

    def __init__(self, on_change: Callable[[Progress], None]) -> None:
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._ranks: List[_Rank] = []
        self._paths: Sequence[str] = ()
        self._seen: List[_Look] = []
        self._heard = 0
        self._inotify = -1
        self._timer: Optional[asyncio.TimerHandle] = None

    def begin(self, procs: int, paths: Sequence[str]) -> None:
        """A round starts with so many local ranks; `paths` are the files of the first ones."""
        self.end()
        self._ranks = [_Rank(self._loop.time()) for _ in range(procs)]
        self._paths, self._heard = paths, 0
        self._seen = [_create(path) for path in paths]
        self._inotify = native.inotify_open()
        blind = self._inotify < 0
        for path in paths:
            blind = blind or native.inotify_watch(self._inotify, path, native.IN_MODIFY) < 0
        if blind:
            self._timer = self._loop.call_later(_BLIND_PAUSE, self._look, _BLIND_PAUSE)
        else:
            self._loop.add_reader(self._inotify, self._changed)

    def end(self) -> None:
        """The round is over: nothing is read or taken any more."""
        self._ranks, self._paths, self._seen = [], (), []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._inotify >= 0:
            self._loop.remove_reader(self._inotify)
            os.close(self._inotify)
            self._inotify = -1

    def take(self, local_rank: int, message: object) -> None:
        """A worker's {"progress": ...} message: {"step": N, "time": T, "metrics": {...}}."""
        if not isinstance(message, Mapping) or not 0 <= local_rank < len(self._ranks):
            return
        metrics = message.get("metrics")
        values = _numbers({**(metrics if isinstance(metrics, Mapping) else {}), "step": message.get("step")})
        moment = _numbers({"time": message.get("time")}).get("time")
        self._note(local_rank, values, time.time() if moment is None or isinstance(moment, str) else float(moment))

    def read(self) -> None:
        """Looks at every file now: a worker that has ended writes no more."""
        for local_rank, path in enumerate(self._paths):
            look = _look_at(path)
            if look == self._seen[local_rank] or look.size <= 0:
                continue
            self._seen[local_rank] = look
            values = parse_end(read_end(path, _LINE))
            if values:
                self._note(local_rank, values, time.time())

    def _note(self, local_rank: int, values: Metrics, moment: float) -> None:
        self._heard += 1
        self._ranks[local_rank].take(values, moment, self._loop.time())
        self._on_change(self._summary())

    def _summary(self) -> Progress:
        ranks = self._ranks
        first = next(rank for rank in ranks if rank.reported)
        return Progress(
            heard=self._heard,
            steps=tuple(rank.step for rank in ranks),
            paces=tuple(rank.pace for rank in ranks),
            gaps=tuple(rank.gap for rank in ranks),
            busy=tuple(rank.busy for rank in ranks),
            metrics=first.shown(),
            time=first.time,
        )

    def _changed(self) -> None:
        """Some file grew: look at once, and then not again for a moment, whatever else is written meanwhile."""
        os.read(self._inotify, 65536)
        self._loop.remove_reader(self._inotify)
        self.read()
        self._timer = self._loop.call_later(_PAUSE, self._listen)

    def _listen(self) -> None:
        self._timer = None
        self._loop.add_reader(self._inotify, self._changed)

    def _look(self, pause: float) -> None:
        self.read()
        self._timer = self._loop.call_later(pause, self._look, pause)


def parse_end(data: bytes) -> Metrics:
    """The numbers of the last whole line."""
    lines = data[: data.rfind(b"\n") + 1].split(b"\n")
    line = next((line for line in reversed(lines) if b"=" in line), b"").decode("utf-8", "replace")
    words = (word.partition("=") for word in line.split())
    return _numbers({name: _number(value) for name, _, value in words})


def _numbers(values: Mapping[object, object]) -> Metrics:
    """What of it are numbers under proper names."""
    found: Metrics = {}
    for name, value in values.items():
        if not isinstance(name, str) or not METRIC_NAME.fullmatch(name):
            continue
        if isinstance(value, bool):
            value = int(value)
        if isinstance(value, float) and not math.isfinite(value):
            value = str(value)
        if isinstance(value, str) and value not in NOT_FINITE:
            continue
        if isinstance(value, (int, float, str)) and not (isinstance(value, int) and abs(value) >= _LARGEST):
            found[name] = value
    return found


def _number(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text[:64])
        except ValueError:
            continue
    return None


def _create(path: str) -> _Look:
    """Makes the file that a worker may append to, and looks at it."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644))
    except OSError:
        pass  # a full disk costs the progress, not the worker
    return _look_at(path)


def _look_at(path: str) -> _Look:
    try:
        found = os.stat(path)
    except OSError:
        return _Look(-1, 0)
    return _Look(found.st_size, found.st_mtime_ns)
