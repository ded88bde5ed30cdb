"""What the coordinator and the nodes of a job print, and what it means: events and a status, and the workers' lines.

A coordinator prints its events as JSON, one in a line, and last its status; a node prints its workers' lines, tagged
with rank and round (`petctl.agent.logs.stream`). So any platform that keeps what its processes print has logs.
"""

from __future__ import annotations

import os
import re
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from petctl.clusters.backend import COORDINATOR, Inspection
from petctl.clusters.base import LogFilter, LogLine
from petctl.errors import InternalError
from petctl.job.events import append_event, new_event, parse_event
from petctl.job.record import JobRecord
from petctl.job.status import JobStatus, NodeStatus

if TYPE_CHECKING:
    from petctl.rendezvous.core.messages import Outcome

FINAL = "final"  # kind of what a coordinator prints last
Item = tuple[str, bytes]  # node, line


class Printed(ABC):
    """What the processes of one role have printed, for one reader."""

    @abstractmethod
    def so_far(self, then_follow: bool = False) -> Iterator[Item]:
        """Every line that is there, process after process; `then_follow`: `follow` is to go on behind them."""

    @abstractmethod
    def follow(self, over: Callable[[], bool]) -> Iterator[Item]:
        """Every further line, as it comes, until the job is over and all is read."""


class LogFiles(Printed):
    """What processes have printed into files, one each; `files` tells which there are by now, by their nodes."""

    def __init__(self, files: Callable[[], Mapping[str, Path]]) -> None:
        self._files = files
        self._read: dict[str, int] = {}  # node -> bytes

    def so_far(self, then_follow: bool = False) -> Iterator[Item]:
        for node, path in self._files().items():
            yield from self._new_lines(node, path)

    def follow(self, over: Callable[[], bool]) -> Iterator[Item]:
        from petctl.retry import Backoff  # costs more than all the rest here, and few follow

        pause = Backoff(0.02, 0.5)
        while True:
            last, before = over(), dict(self._read)  # asked first: what is read after that is complete
            yield from self.so_far()
            if last:
                return
            if self._read != before:
                pause.restart()
            time.sleep(pause.pause())

    def _new_lines(self, node: str, path: Path) -> Iterator[Item]:
        with suppress(FileNotFoundError), path.open("rb") as file:
            file.seek(self._read.get(node, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    return  # its writer is in the middle of it
                self._read[node] = self._read.get(node, 0) + len(line)
                yield node, line


def output_files(directory: Path, role: str) -> LogFiles:
    """What a job's processes have printed into `coordinator.out`, or a file for each node, there."""
    names = f"{role}.out" if role == COORDINATOR else "[0-9]*.out"
    return LogFiles(lambda: {path.stem: path for path in sorted(directory.glob(names))})


class CoordinatedHere(Inspection):
    """A job whose coordinator is a thread of this process. Its status follows from the events that it tells, which are
    printed into a file too; `changed` guards all that is known, and wakes who waits for news."""

    asks = True

    def __init__(self, record: JobRecord) -> None:
        from petctl.controller.journals.records import History, first_status

        self.record, self.job_id, self.directory = record, record.id, Path(record.directory)
        self.history, self.changed = History(), threading.Condition()
        self._status, self._version = first_status(record), 0

    @abstractmethod
    def scale(self, wanted: int) -> str:
        """The coordinator's call of this name, as the next two."""

    @abstractmethod
    def cancel(self, kill: bool) -> str: ...

    def watch(self, seen: int, within: float) -> dict[str, Any]:
        self.changed.wait_for(lambda: self.over or self._version != seen, within)
        return {"version": self._version, "status": self._status.pack()}

    def ask(self, call: str, patience: float = 30.0, **params: Any) -> Any:
        calls: dict[str, Callable[..., Any]] = {"watch": self.watch, "scale": self.scale, "cancel": self.cancel}
        with self.changed:
            return calls[call](**params)

    @property
    def over(self) -> bool:
        return self._status.final

    def status(self) -> JobStatus:
        return self._status

    def tell(self, kind: str, sentence: str, **data: Any) -> None:
        """Something has happened. `wanted`: so many nodes are; `members`: the nodes that run, as node -> [first rank,
        number of ranks]."""

        with self.changed:
            event, past, now = new_event(kind, sentence, **data), self.history, self._status
            past.take(event)
            with suppress(OSError):  # a full disk must not keep a job from its end
                append_event(self.directory / f"{COORDINATOR}.out", event)
            known = {"started": "starting", "round": "recovering" if past.ran else "starting", "failure": "recovering"}
            told = replace(now, state=known.get(kind, now.state), sentence=sentence, epoch=1)
            told = replace(told, size=replace(now.size, wanted=data.get("wanted", now.size.wanted)))
            if "members" in data:
                ranks = {name: list(range(first, first + count)) for name, (first, count) in data["members"].items()}
                nodes = [NodeStatus(name, "running", rank=rank, ranks=ranks[name]) for rank, name in enumerate(ranks)]
                told = replace(told, state="running", nodes=nodes, world_size=sum(map(len, ranks.values())))
            self._show(past.next_status(now, replace(told, round=past.round, spent=past.spent)))

    def end(self, outcome: Outcome) -> None:
        """Nothing more will happen."""
        from petctl.controller.journals.records import close_status

        self.tell("closing", f"{outcome.state}: {outcome.sentence}")
        self._show(close_status(self._status, outcome, time.time()))

    def _show(self, status: JobStatus) -> None:
        with self.changed:
            self._status, self._version, self.asks = status, self._version + 1, not status.final
            self.changed.notify_all()


def worker_lines(items: Iterable[Item], wanted: LogFilter) -> Iterator[LogLine]:
    """The workers' lines among what nodes print, as far as they are wanted.

    With `tail` it waits for the end: the last lines of each worker are those of the newest round, unless another one is
    named.
    """
    from petctl.agent.logs.stream import parse_tagged

    last: dict[tuple[int, str], deque[LogLine]] = {}
    newest = 0
    for node, text in items:
        chunk = parse_tagged(text)
        if chunk is None:
            continue
        line = LogLine(chunk.name.round, chunk.name.rank, chunk.name.stream, chunk.data, node)
        if wanted.tail is not None and wanted.round is None and line.round != newest:
            if line.round < newest:
                continue
            newest = line.round
            last.clear()
        if any(
            wish is not None and wish != value
            for wish, value in ((wanted.rank, line.rank), (wanted.node, node), (wanted.round, line.round))
        ):
            continue
        if wanted.tail is None:
            yield line
        else:
            last.setdefault((line.rank, line.stream), deque(maxlen=wanted.tail)).append(line)
    for lines in last.values():
        yield from lines


def event_lines(items: Iterable[Item]) -> Iterator[dict[str, Any]]:
    """The events among what a coordinator prints; its last status is none."""
    for _, text in items:
        event = parse_event(text)
        if event is not None and event["kind"] != FINAL:
            yield event


def printed_status(lines: Iterable[bytes]) -> JobStatus | None:
    """The status among the last lines of a coordinator that has ended."""
    for event in filter(None, map(parse_event, lines)):
        if event["kind"] == FINAL and isinstance(event.get("status"), dict):
            with suppress(InternalError):
                return JobStatus.from_dict(event["status"])
    return None


def final_status(record: JobRecord, message: Mapping[str, Any], printed: JobStatus | None = None) -> JobStatus:
    """The status of a job that has ended: the coordinator's termination message tells how, and what it printed last
    the rest."""
    # Commands that read a local job come here too, and need none of these.
    from petctl.controller.journals.records import close_status, first_status
    from petctl.rendezvous.core.messages import decode_outcome

    outcome, finished = decode_outcome(message["outcome"]), float(message.get("finished") or 0.0)
    if printed is not None and printed.state == outcome.state:
        return replace(close_status(printed, outcome, finished), error=printed.error)
    known = {key: message[key] for key in ("size", "spent", "round", "started") if message.get(key) is not None}
    return close_status(JobStatus.from_dict({**first_status(record).pack(), **known}), outcome, finished)


def own_paths(code: Mapping[str, Any], copy: str) -> Callable[[bytes], bytes]:
    """What a worker wrote, with the user's paths. `copy`: where the nodes of this machine have the snapshot.

    Only what names a line of code is changed ('File "PATH", line 3', 'PATH:3: UserWarning'): what else a script says of
    its paths is true as it stands.
    """
    if not code:
        return lambda text: text
    own = os.fsencode(f"{code['own']}/" if code.get("own") else "")
    elsewhere = rb'[^"\n]*/code/' + re.escape(code["id"][:16].encode())
    copies = b"|".join([*(re.escape(os.fsencode(path)) for path in {copy, os.path.realpath(copy)}), elsewhere])
    pattern = re.compile(rb'(?m)(\bFile "|^)(?:' + copies + rb')/(?=[^"\n]+(?:", line \d|:\d+: ))')
    mark = b"/code/"

    def changed(text: bytes) -> bytes:
        if mark not in text:
            return text
        return pattern.sub(lambda match: match.group(1) + own, text)

    return changed
