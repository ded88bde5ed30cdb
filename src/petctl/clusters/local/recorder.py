"""What the supervisor writes down for everybody else: events.jsonl, and status.json made from it and the machine's
facts.

Events are the history: they are appended at once and folded into rounds, restarts and seconds lost, by the same
function whether they happen now or are read back by a replaced supervisor. The status is only a picture of the
moment: it is replaced atomically, not more often than readers can look, and the last one is always written.

It must not decide anything, and it never blocks on a reader.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from petctl.clusters.local.jobdir import JobDirectory, read_json, write_json

log = logging.getLogger("petctl.supervisor")

INTERVAL = 0.05  # seconds between two pictures
EFFORT = 20  # with very many nodes a picture takes longer: spend at most a twentieth of the time on them


class History:
    """Everything about a job that is a matter of what has happened so far."""

    def __init__(self) -> None:
        self.rounds: List[Dict[str, Any]] = []
        self.restarts: Dict[str, int] = {}
        self.started: Optional[float] = None  # it got its slots; the time limit counts from here
        self.broken: Optional[float] = None  # since when no round runs, after one did
        self._reasons: Dict[int, str] = {}

    def take(self, event: Dict[str, Any]) -> None:
        """Adds one event; those that say nothing about history pass by."""
        kind, now = event.get("kind"), float(event.get("time", 0.0))
        if kind == "started" and self.started is None:
            self.started = now
        elif kind == "node" and event.get("restart"):
            name = str(event.get("node"))
            self.restarts[name] = self.restarts.get(name, 0) + 1
        elif kind == "round":
            self._reasons[int(event["round"])] = str(event.get("reason", ""))
            if self.rounds and self.broken is None:
                self.broken = now
        elif kind == "running":
            number = int(event["round"])
            lost = now - self.broken if self.broken is not None else 0.0
            self.rounds.append(
                {
                    "number": number,
                    "reason": self._reasons.get(number, ""),
                    "nodes": list(event.get("nodes", ())),
                    "members": event.get("members", {}),
                    "world_size": event.get("world_size", 0),
                    "started": now,
                    "seconds_lost": round(lost, 3),
                }
            )
            self.broken = None


def read_events(path: Path) -> List[Dict[str, Any]]:
    """All events so far; a line that a crash has torn is left out."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    events = []
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "kind" in event:
            events.append(event)
    return events


def append_event(path: Path, kind: str, sentence: str, **data: Any) -> Dict[str, Any]:
    """Adds one line, whole, whoever else is writing; returns it as a reader will see it."""
    event = {"time": round(time.time(), 6), "kind": kind, "sentence": sentence, **data}
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        os.write(descriptor, (b"\n" if torn else b"") + json.dumps(event, separators=(",", ":")).encode() + b"\n")
    finally:
        os.close(descriptor)
    return event


def first_status(record: Dict[str, Any]) -> Dict[str, Any]:
    """The status of a job that nobody has looked at yet; every later picture has the same fields."""
    plan = record["plan"]
    size = plan["config"]
    return {
        "id": record["id"],
        "name": record["name"],
        "cluster": record["cluster"],
        "state": "pending",
        "since": record["submitted"],
        "sentence": "pending: its supervisor is starting",
        "size": {"min": size["min_nodes"], "wanted": size["wanted"], "max": size["max_nodes"]},
        "round": 0,
        "epoch": 0,
        "spent": 0,
        "restarts": size["restarts"],
        "nodes": [],
        "rounds": [],
        "world_size": 0,
        "exit_code": None,
        "error": None,
        "command": record["command"],
        "cwd": record["cwd"],
        "code": f"the submitter's directory {record['cwd']} as it is: no snapshot is taken, later edits are seen",
        "directory": record["directory"],
        "submitted": record["submitted"],
        "started": None,
        "finished": None,
    }


def close_status(status: Dict[str, Any], outcome: Dict[str, Any], finished: float) -> Dict[str, Any]:
    """The final picture: what was, with how it ended."""
    failure = outcome.get("failure")
    return {
        **status,
        "state": outcome["state"],
        "since": finished,
        "sentence": outcome["sentence"],
        "exit_code": outcome["code"],
        "error": failure,
        "nodes": [{**node, "state": "gone", "pid": 0} for node in status["nodes"]],
        "finished": finished,
    }


class Recorder:
    """The supervisor's pen. `picture` is asked for the newest status fields whenever one is to be written."""

    def __init__(self, directory: JobDirectory, record: Dict[str, Any]) -> None:
        self.directory = directory
        self.history = History()
        for event in read_events(directory.events):
            self.history.take(event)
        self.status = read_json(directory.status) or first_status(record)
        self.picture: Callable[[], Dict[str, Any]] = dict
        self._timer: Optional[asyncio.TimerHandle] = None
        self._next = 0.0
        self._written: Optional[Dict[str, Any]] = None
        self._last: Optional[Dict[str, Any]] = None

    def event(self, kind: str, sentence: str, **data: Any) -> None:
        """Writes an event down, at once, and then the status that follows from it."""
        try:
            self.history.take(append_event(self.directory.events, kind, sentence, **data))
        except OSError as error:  # a full disk costs the record, not the job
            log.error("cannot write down an event (%s): %s", error, sentence)
        self.touch()

    def touch(self) -> None:
        """Something may have changed: a new picture is due, soon."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._next), self._due)

    def _due(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.write()
        now = loop.time()
        self._next = now + max(INTERVAL, EFFORT * (now - began))

    def write(self) -> None:
        """Replaces status.json, if the picture has changed."""
        status = {**self.status, **self.picture(), "rounds": self.history.rounds, "started": self.history.started}
        if status["state"] != self.status["state"]:
            status["since"] = time.time()
        self.status = status
        self._save()

    def freeze(self) -> None:
        """Keeps the picture of this moment for the end: when the last node has gone, there is nothing left to see."""
        self.write()
        self._last = self.status

    def finish(self, outcome: Dict[str, Any], finished: float) -> None:
        """The last picture; nothing is written after it."""
        if self._timer is not None:
            self._timer.cancel()
        self.status = close_status(self._last or self.status, outcome, finished)
        self._save()

    def _save(self) -> None:
        if self.status == self._written:
            return
        try:
            write_json(self.directory.status, self.status)
        except OSError as error:
            log.error("cannot write the status down: %s", error)
            return
        self._written = {**self.status, "rounds": list(self.status["rounds"])}
