"""Reading a local job from outside: its status when it changes, its events, its workers' lines.

The files in the job directory are the truth and readers only read: they can come and go at any time, be slow or many,
and neither the supervisor nor a worker ever notices. Waiting is done with inotify; a reader also looks again now and
then by itself, because a job that was killed with everything in it writes nothing any more.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from petctl.agent.logs.inotify import Watcher
from petctl.agent.logs.log_files import LogName, list_logs
from petctl.agent.logs.log_follow import LogFollower, tail_offset
from petctl.clusters.base import LogFilter, LogLine
from petctl.clusters.local.job_directory import JobDirectory
from petctl.clusters.local.record import find_record
from petctl.clusters.printed import Item, Printed, own_paths
from petctl.errors import PetctlError
from petctl.job.events import read_events

LOOK_ANYWAY = 0.5  # seconds after which a silent job is looked at again


def stamp(directory: JobDirectory) -> list[tuple[int, ...]]:
    """Differs as soon as a file of the job was replaced, or a new one is there."""
    return [_stamp(directory.path), _stamp(directory.status)]


def wait_for_change(directory: JobDirectory, seen: list[tuple[int, ...]], timeout: float) -> None:
    """Until the job's stamp is another one than `seen`, or it is to be looked at anyway."""
    watcher = Watcher()
    try:
        watcher.watch(str(directory.path))  # before the look: a change in between is not missed
        if stamp(directory) == seen:
            watcher.wait(min(timeout, LOOK_ANYWAY))
    finally:
        watcher.close()


class EventFile(Printed):
    """The job's events, as its coordinator has written them down."""

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory

    def so_far(self, then_follow: bool = False) -> Iterator[Item]:
        return self.follow(lambda: True)

    def follow(self, over: Callable[[], bool]) -> Iterator[Item]:
        watcher = Watcher()
        position, rest = 0, b""
        try:
            watcher.watch(str(self._directory.path))
            while True:
                ended, data = over(), b""
                with suppress(FileNotFoundError), open(self._directory.events, "rb") as file:
                    file.seek(position)
                    data = file.read()
                position += len(data)
                *lines, rest = (rest + data).split(b"\n")
                yield from (("", line) for line in lines)
                if ended:
                    return
                watcher.wait(LOOK_ANYWAY)
        finally:
            watcher.close()


def read_logs(directory: JobDirectory, wanted: LogFilter, is_over: Callable[[], bool] | None) -> Iterator[LogLine]:
    """What the workers wrote, line by line; with `is_over` until the job has ended and everything is out."""
    nodes, record = _NodeOf(directory), find_record(directory)
    shown = own_paths(record.code if record else {}, str(directory.unpacked))
    # The end of what the workers wrote is in the newest round; those before it have ends of their own.
    least = 0 if wanted.tail is None or wanted.round is not None else _newest_round(directory)

    def accept(name: LogName) -> bool:
        return (
            (wanted.rank is None or name.rank == wanted.rank)
            and (name.round >= least if wanted.round is None else name.round == wanted.round)
            and (wanted.node is None or nodes(name) == wanted.node)
        )

    def begin(name: LogName, path: str) -> int:
        return 0 if wanted.tail is None else tail_offset(path, wanted.tail) if wanted.tail else _size(path)

    def lines(name: LogName, data: bytes) -> Iterator[LogLine]:
        round_, rank, stream = name
        node, data = nodes(name), shown(data) if stream == "err" else data
        if wanted.blocks:
            yield LogLine(round_, rank, stream, data, node)
            return
        *whole, last = data.split(b"\n")
        for line in whole:
            yield LogLine(round_, rank, stream, line + b"\n", node)
        if last:
            yield LogLine(round_, rank, stream, last, node)

    with LogFollower(str(directory.logs), accept, begin) as follower:
        over = threading.Event()
        if is_over is None:
            over.set()
        else:
            threading.Thread(target=_tell_end, args=(directory, is_over, over, follower.wake), daemon=True).start()
        try:
            for name, data in follower.follow(over.is_set):
                yield from lines(name, data)
        finally:
            over.set()
    try:
        for name, data in _from_store(directory, accept, wanted.tail):
            yield from lines(name, data)
    except PetctlError:
        if is_over is None:  # whoever followed the job has seen it to its end: a store that is away must not spoil that
            raise


def _from_store(
    directory: JobDirectory, accept: Callable[[LogName], bool], tail: int | None
) -> Iterator[tuple[LogName, bytes]]:
    """The logs of ranks that have none here: their node was elsewhere. The store is asked only if there are such."""
    record = find_record(directory)
    if record is None or "" not in record.task.results:
        return
    here = {(name.round, name.rank) for name, _ in list_logs(str(directory.logs))}
    ran = {
        LogName(event["round"], rank, "out")
        for event in read_events(directory.events)
        if event["kind"] == "running"
        for first, count in event.get("members", {}).values()
        for rank in range(first, first + count)
    }
    missing = {(name.round, name.rank) for name in ran if accept(name)} - here
    if missing:
        from petctl.clusters.archived_logs import StoredLogs

        stored = StoredLogs(record, directory.home)
        for name, segments in stored.list(lambda name: (name.round, name.rank) in missing and accept(name)).items():
            for data in stored.read(segments, tail):
                yield name, data


def _newest_round(directory: JobDirectory) -> int:
    """Of those that have written anything, here or elsewhere."""
    here = max((name.round for name, _ in list_logs(str(directory.logs))), default=0)
    ran = (event["round"] for event in read_events(directory.events) if event["kind"] == "running")
    return max(here, max(ran, default=0))


class _NodeOf:
    """Which node a log file is from; a round is looked up once it is known."""

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory
        self._rounds: dict[int, dict[str, list[int]]] = {}

    def __call__(self, name: LogName) -> str:
        if name.round not in self._rounds:
            # The events, not the status: a round is written down there before its first worker can write a line.
            for event in read_events(self._directory.events):
                if event["kind"] == "running":
                    self._rounds[event["round"]] = event.get("members", {})
        for node, (first, count) in self._rounds.get(name.round, {}).items():
            if first <= name.rank < first + count:
                return node
        return ""


def _tell_end(
    directory: JobDirectory, is_over: Callable[[], bool], end: threading.Event, wake: Callable[[], None]
) -> None:
    watcher = Watcher()
    try:
        watcher.watch(str(directory.path))
        while not end.is_set() and not is_over():
            watcher.wait(LOOK_ANYWAY)
    finally:
        watcher.close()
    if not end.is_set():
        end.set()
        wake()


def _size(path: str) -> int:
    with open(path, "rb") as file:
        return file.seek(0, 2)


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size
