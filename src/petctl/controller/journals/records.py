"""What is kept about a job: the history that follows from its events, and the fields of its status.

The history (rounds, restarts, seconds lost) is a fold over the events, by the same function whether they happen now or
are read back by a replaced supervisor or a reader. Cheap to import: commands of the user read these too.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any, Dict, Iterable, List, Optional

from petctl.job.fields import decode, encode
from petctl.job.record import JobRecord
from petctl.job.status import ErrorStatus, JobStatus, RoleStatus, RoundStatus, SizeStatus
from petctl.rendezvous.core.messages import NOT_MISSED, Outcome
from petctl.text import counted

ROUNDS = 100  # of a job's rounds the status tells the last so many; the events tell all
UNSAVED_TOLD = 3  # remarks on unsaved files that the status tells; the events tell all
KEPT_ROUNDS = 50
"""Rounds that nodes keep for the next coordinator ..."""
KEPT_BYTES = 200_000
"""... as long as they are shorter than this."""


class History:
    """Everything about a job that is a matter of what has happened so far."""

    def __init__(self) -> None:
        self.rounds: List[RoundStatus] = []  # the last ones
        self.ran = 0  # how many there were
        self.round = 0  # the highest that was ever opened
        self.spent = 0  # failures charged so far
        self.members: List[str] = []  # of the newest round that ran
        self.restarts: Dict[str, int] = {}
        self.last_failure: Optional[ErrorStatus] = None
        self.started: Optional[float] = None  # it got its slots; the time limit counts from here
        self.broken: Optional[float] = None  # since when no round runs, after one did
        self._lost: List[float] = [0, 0.0]  # nodes, and seconds without a round
        self._lost_before: List[float] = [0, 0.0]  # the same, as an earlier coordinator has counted it
        self._adopted: Dict[str, Any] = {}  # the newest history of an earlier coordinator that a node has told
        self._adopted_failure: Optional[ErrorStatus] = None  # ... as that told it
        self._reasons: Dict[int, str] = {}
        self._given_up: Dict[int, float] = {}  # by round: when its predecessor was, until it is known to train

    @property
    def nodes_lost(self) -> int:
        """Nodes that were lost without having left."""
        return int(self._lost_before[0] + self._lost[0])

    @property
    def seconds_lost(self) -> float:
        """Seconds in which no round ran, after one did."""
        return round(self._lost_before[1] + self._lost[1], 3)

    def take(self, event: Dict[str, Any]) -> None:
        """Adds one event; those that say nothing about history pass by."""
        kind, now = event.get("kind"), float(event.get("time", 0.0))
        self.spent = int(event.get("spent", self.spent))
        if kind == "started" and self.started is None:
            self.started = now
        elif kind == "requeued":
            self.started = None
        elif kind == "node" and event.get("restart"):
            name = str(event.get("node"))
            self.restarts[name] = self.restarts.get(name, 0) + 1
        elif kind == "lost" and event.get("why") not in NOT_MISSED:
            self._lost[0] += 1
        elif kind == "failure":
            self.last_failure = _failure(event.get("failure"))
        elif kind == "round":
            self.round = max(self.round, int(event["round"]))
            self._reasons[int(event["round"])] = str(event.get("reason", ""))
            if self.rounds and self.broken is None:
                self.broken = now
        elif kind == "running":
            number = int(event["round"])
            lost = now - self.broken if self.broken is not None else 0.0
            self._given_up = {number: self.broken} if self.broken is not None else {}
            self._runs(number, event, self._reasons.get(number, ""), lost)
        elif kind == "training" and event.get("round") in self._given_up:
            lost = round(now - self._given_up.pop(event["round"]), 3)
            self._lost[1] += lost - self.rounds[-1].seconds_lost
            self.rounds[-1] = replace(self.rounds[-1], seconds_lost=lost)
        elif kind == "history":
            self._adopt(event)
        elif kind == "continued" and "members" in event:
            number = int(event["round"])
            if all(past.number != number for past in self.rounds):  # its beginning is known only to others
                self._runs(number, event, str(event["sentence"]), 0.0)
            self.broken, self._given_up = None, {}

    def next_status(self, before: JobStatus, told: JobStatus) -> JobStatus:
        """The status after another one: what a controller tells, with all that has happened so far."""
        return replace(
            told,
            since=time.time() if told.state != before.state else told.since,
            rounds=list(self.rounds),
            started=self.started,
            rounds_run=self.ran,
            last_failure=self.last_failure,
            nodes_lost=self.nodes_lost,
            seconds_lost=self.seconds_lost,
        )

    def _adopt(self, event: Dict[str, Any]) -> None:
        """Takes in what an earlier coordinator knew, as a node has kept it; a newer history may follow an older one.

        Since that node lost its coordinator no round is known to run: if none goes on, the next one has cost the time
        from there.
        """
        own, past = list(self.rounds), _rounds(event["rounds"])
        known = {entry.number: entry for entry in past}
        newest = max(known, default=0)
        later = sum(entry.number > newest for entry in own)
        # Several nodes may tell the same, and one may tell less than is known already: totals never go down.
        self.ran = max(self.ran, int(event.get("ran") or len(known)) + later)
        merged = {**{entry.number: entry for entry in own}, **known}
        self.rounds[:] = [merged[number] for number in sorted(merged)][-ROUNDS:]
        self.round = max(self.round, newest)
        self.started = event.get("started") or self.started
        told = [event.get("nodes_lost"), event.get("seconds_lost")]
        self._lost_before = [max(old, new or 0) for old, new in zip(self._lost_before, told)]
        if self.last_failure is None or self.last_failure is self._adopted_failure:
            self._adopted_failure = self.last_failure = _failure(event.get("last_failure")) or self.last_failure
        if past and self.broken == self._adopted.get("since") and (self._adopted or not own):
            self.broken = float(event["since"])
        self._adopted = event

    def kept(self) -> Dict[str, Any]:
        """What nodes keep for a coordinator that replaces this one and knows nothing: the last rounds, above all."""
        rounds: List[Dict[str, Any]] = encode(self.rounds[-KEPT_ROUNDS:])
        while len(rounds) > 1 and len(json.dumps(rounds)) > KEPT_BYTES:
            rounds = rounds[len(rounds) // 2 :]
        totals = {"ran": self.ran, "nodes_lost": self.nodes_lost, "seconds_lost": self.seconds_lost}
        return {"rounds": rounds, "started": self.started, "last_failure": encode(self.last_failure), **totals}

    def _runs(self, number: int, event: Dict[str, Any], reason: str, lost: float) -> None:
        self.ran += 1
        self._lost[1] += round(lost, 3)
        del self.rounds[: -ROUNDS + 1]
        members = event.get("members") or dict.fromkeys(event.get("nodes", ()), (0, 0))
        started, size = float(event.get("time", 0.0)), int(event.get("world_size", 0))
        lost = round(lost, 3)
        past = RoundStatus.of(number, reason, members, world_size=size, started=started, seconds_lost=lost)
        self.rounds.append(past)
        self.round = max(self.round, number)
        self.members = list(members)
        self.broken = None


def first_status(record: JobRecord) -> JobStatus:
    """The status of a job that nobody has looked at yet."""
    config = record.config
    return JobStatus(
        id=record.id,
        name=record.name,
        cluster=record.cluster,
        state="pending",
        since=record.submitted,
        sentence="pending: its supervisor is starting",
        size=SizeStatus(config.min_nodes, config.wanted, config.max_nodes),
        submitted=record.submitted,
        command=record.command,
        roles=[RoleStatus(role.name, role.count) for role in record.task.roles],
        cwd=record.cwd,
        code=_code(record),
        folders=_folders(record),
        directory=record.directory,
        results=results_place(record),
        restarts=config.restarts,
    )


def results_place(record: JobRecord) -> str:
    """Where results go, in a few words; empty: into the job's directory."""
    places, everything = record.results.outputs, record.results.logs.rpartition("/")[0]
    own = [place for name, place in places.items() if not everything or not place.startswith(f"{everything}/")]
    return ", ".join([everything, *own] if everything else own)


def _code(record: JobRecord) -> str:
    code = record.code
    if not code and record.task.layout.work:
        base = record.directory or "their node's state"
        return f"none is included: workers run in their own directory, {base}/{record.task.layout.work}"
    if not code:
        return f"the submitter's directory {record.cwd} as it is: no snapshot, workers see later edits"
    return f"snapshot {code['id'][:12]} of {code['source']}, {counted(code['files'], 'file')}"


def _folders(record: JobRecord) -> List[str]:
    return [
        f"{folder['name']}: {folder['location']} ({folder['mode']}{', as it is here' if 'in_place' in folder else ''})"
        for folder in record.folders
    ]


def close_status(status: JobStatus, outcome: Outcome, finished: float) -> JobStatus:
    """The final picture: what was, with how it ended."""
    return replace(
        status,
        state=outcome.state,
        since=finished,
        sentence=outcome.sentence,
        exit_code=outcome.code,
        error=ErrorStatus(**vars(outcome.failure)) if outcome.failure is not None else None,
        nodes=[replace(node, state="gone", pid=0) for node in status.nodes],
        finished=finished,
    )


def _failure(told: object) -> Optional[ErrorStatus]:
    """As an event or another coordinator's history tells it; None where it tells none."""
    try:
        return decode(ErrorStatus, told) if told else None
    except ValueError:
        return None


def _rounds(told: Iterable[object]) -> List[RoundStatus]:
    """As another coordinator's history tells them; what is no round is left out."""
    found = []
    for entry in told:
        try:
            found.append(decode(RoundStatus, entry))
        except ValueError:
            continue
    return found
