"""Reading a local job from outside: its status when it changes, its events, its workers' lines.

The files in the job directory are the truth and readers only read: they can come and go at any time, be slow or many,
and neither the supervisor nor a worker ever notices. Waiting is done with inotify; a reader also looks again now and
then by itself, because a job that was killed with everything in it writes nothing any more.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from petctl.agent.logs.inotify import Watcher
from petctl.agent.logs.log_files import LogName, list_logs
from petctl.agent.logs.log_follow import LogFollower, tail_offset
from petctl.clusters.base import LogFilter, LogLine
from petctl.clusters.local.job_directory import JobDirectory
from petctl.clusters.local.job_status import newest_status
from petctl.clusters.local.record import find_record
from petctl.clusters.own_paths import own_paths
from petctl.errors import PetctlError
from petctl.job.status import JobStatus

LOOK_ANYWAY = 0.5  # seconds after which a silent job is looked at again


def watch_status(directory: JobDirectory, seen: JobStatus | None, timeout: float) -> JobStatus:
    """A status other than `seen`, or the newest after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    watcher = Watcher()
    try:
        watcher.watch(str(directory.path))  # before the first look: a change in between is not missed
        while True:
            status = newest_status(directory)
            left = deadline - time.monotonic()
            if status != seen or left <= 0:
                return status
            watcher.wait(min(left, LOOK_ANYWAY))
    finally:
        watcher.close()


def read_events(directory: JobDirectory, follow: bool) -> Iterator[dict[str, Any]]:
    """The job's events, oldest first; with `follow` as they come, until it has ended."""
    watcher = Watcher()
    position, rest = 0, b""
    try:
        watcher.watch(str(directory.path))
        while True:
            over = not follow or newest_status(directory).finished is not None
            try:
                with open(directory.events, "rb") as file:
                    file.seek(position)
                    data = file.read()
            except FileNotFoundError:
                data = b""
            position += len(data)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                try:
                    yield json.loads(line)
                except ValueError:
                    continue  # torn by a crash
            if over:
                return
            watcher.wait(LOOK_ANYWAY)
    finally:
        watcher.close()


def read_logs(directory: JobDirectory, wanted: LogFilter, follow: bool) -> Iterator[LogLine]:
    """What the workers wrote, line by line; with `follow` until the job has ended and everything is out."""
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
        if follow:
            threading.Thread(target=_tell_end, args=(directory, over, follower.wake), daemon=True).start()
        else:
            over.set()
        try:
            for name, data in follower.follow(over.is_set):
                yield from lines(name, data)
        finally:
            over.set()
    try:
        for name, data in _from_store(directory, accept, wanted.tail):
            yield from lines(name, data)
    except PetctlError:
        if not follow:  # whoever followed the job has seen it to its end: a store that is away must not spoil that
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
        for event in _past_events(directory)
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


def _past_events(directory: JobDirectory) -> list[dict[str, Any]]:
    from petctl.controller.journals.records import (
        read_events as past_events,  # for logs; whoever wants a status needs none
    )

    return past_events(directory.events)


def _newest_round(directory: JobDirectory) -> int:
    """Of those that have written anything, here or elsewhere."""
    here = max((name.round for name, _ in list_logs(str(directory.logs))), default=0)
    ran = (event["round"] for event in _past_events(directory) if event["kind"] == "running")
    return max(here, max(ran, default=0))


class _NodeOf:
    """Which node a log file is from; a round is looked up once it is known."""

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory
        self._rounds: dict[int, dict[str, list[int]]] = {}

    def __call__(self, name: LogName) -> str:
        if name.round not in self._rounds:
            # The events, not the status: a round is written down there before its first worker can write a line.
            for event in _past_events(self._directory):
                if event["kind"] == "running":
                    self._rounds[event["round"]] = event.get("members", {})
        for node, (first, count) in self._rounds.get(name.round, {}).items():
            if first <= name.rank < first + count:
                return node
        return ""


def _tell_end(directory: JobDirectory, over: threading.Event, wake: Callable[[], None]) -> None:
    status: JobStatus | None = None
    while (status is None or status.finished is None) and not over.is_set():
        status = watch_status(directory, status, LOOK_ANYWAY)
    if not over.is_set():
        over.set()
        wake()


def _size(path: str) -> int:
    with open(path, "rb") as file:
        return file.seek(0, 2)
