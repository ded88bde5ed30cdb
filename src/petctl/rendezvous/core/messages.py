"""The two things that are ever said between a node and the coordinator.

A node sends a `Report`: everything about itself, whole, each time. It sends one when it connects, one whenever
something changes, and one with every heartbeat. The coordinator answers with an `Order`: everything it wants of that
one node, whole, each time. Nothing is a delta, so a lost, repeated or reordered message is healed by the next one, and
a new coordinator learns all there is to know from one report of each node.

Over one connection, which loses and reorders nothing, the drivers leave out what has not changed since the message
before: a field that is null has its default again.

A `Header` travels in both directions: it is what must survive the coordinator (epoch, round, failures spent, wanted
size). Nodes keep the newest header they have seen and send it back; the highest (epoch, seq) wins.

This file knows no sockets and no clock. `decode_report` and `decode_order` are the only doors for foreign data and
raise `ProtocolError`; past them every value has its declared type.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Tuple, Type, TypeVar, Union

from petctl.errors import ProtocolError

Metrics = Dict[str, Union[int, float, str]]  # a string only where JSON has no number
NOT_FINITE = ("nan", "inf", "-inf")
METRICS_LIMIT = 32
METRIC_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./@-]{0,63}")

# What a node's workers are doing, as it reports it.
IDLE = "idle"  # none running; not prepared for anything
STOPPING = "stopping"  # being stopped for a newer round, or because the node leaves
PREPARED = "prepared"  # none running; waits for the go of (epoch, round)
RUNNING = "running"
DONE = "done"  # every local worker ended with exit code 0
FAILED = "failed"  # at least one local worker failed; `failure` says which
FENCED = "fenced"  # stopped without a newer round: no coordinator for `fence_after`, or told to stand by
STATES = (IDLE, STOPPING, PREPARED, RUNNING, DONE, FAILED, FENCED)

# What the coordinator wants of a node.
WAIT = "wait"  # nothing: go on with what you do
STANDBY = "standby"  # you have no part in the round that runs: no workers, please
PREPARE = "prepare"  # stop your workers, get ready for `round`
RUN = "run"  # start the workers of `round` at `place`
RELEASE = "release"  # stop your workers and leave: you are not needed any more
CLOSE = "close"  # the job is over
ORDERS = (WAIT, STANDBY, PREPARE, RUN, RELEASE, CLOSE)

# How a job can end.
SUCCEEDED = "succeeded"
ENDED_FAILED = "failed"
CANCELLED = "cancelled"

UNSAVED = "unsaved"  # what a remark is about: files that nothing brings to the user

# Why a node is gone that was free to go.
LEFT, OVER = "it left", "the job has ended"
NOT_MISSED = (LEFT, OVER)


@dataclass(frozen=True)
class Header:
    """What must survive the coordinator. `leader` makes an epoch belong to exactly one of them."""

    epoch: int = 0
    leader: str = ""
    seq: int = 0
    round: int = 0  # the newest that was opened ...
    ran: int = 0  # ... and the newest that was committed
    spent: int = 0
    wanted: int = 0

    @property
    def age(self) -> Tuple[int, int]:
        return (self.epoch, self.seq)


@dataclass(frozen=True)
class Failure:
    """The first worker of a node that failed in a round: the candidate root cause."""

    node: str
    rank: int
    local_rank: int
    code: int  # exit code as a shell would say it: 128 + signal for signals
    signal: str = ""  # "SIGKILL", or empty
    message: str = ""  # one line
    traceback: str = ""  # last lines of the error, bounded
    time: float = 0.0  # wall clock of the node, for people only
    hung: bool = False  # it did not end: it made no step any more, and `traceback` are its stacks
    task: str = ""  # which one of a role it was: "worker 1"
    cause: str = ""  # its name in causes.ini, if it is a known one
    lasting: bool = False  # the node could not even start it, and would not the next time: a program is missing there

    def sentence(self) -> str:
        if self.lasting:
            return f"node {self.node} could not start its workers: {self.message}"
        how = f"was killed by {self.signal}" if self.signal else f"exited with code {self.code}"
        how = "hangs" if self.hung else how
        who = f"{self.task} (rank {self.rank})" if self.task else f"rank {self.rank}"
        return f"{who} on node {self.node} {how}" + (f": {self.message}" if self.message else "")


@dataclass(frozen=True)
class Outcome:
    """How the job ended. Recorded with the backend before anyone is told."""

    state: str
    code: int
    sentence: str
    failure: Optional[Failure] = None


@dataclass(frozen=True)
class Place:
    """A node's place in a round; the same for a given (epoch, round), and constant in size but for `offers`."""

    rank: int  # of the node: GROUP_RANK
    nodes: int
    first_rank: int  # global rank of its first worker
    world_size: int
    master_addr: str
    master_port: int
    offers: Tuple[str, ...] = ()  # of all members in rank order, where the job's workers have to know each other
    procs: int = 0  # its workers in this round; 0: as many as it has said


@dataclass(frozen=True)
class Progress:
    """What the workers of a node have reported in its round so far; the tuples have one place per local rank."""

    heard: int  # reports of any of them: while this grows, somebody is at work
    steps: Tuple[int, ...]  # -1: that rank has reported none
    paces: Tuple[float, ...]  # steps per second by the clock; 0: not known yet
    gaps: Tuple[float, ...]  # seconds between two reports of that rank; 0: not known yet
    busy: Tuple[float, ...]  # seconds of own work in a step, where the script reports them; 0: it does not
    metrics: Metrics = dataclasses.field(default_factory=dict)  # of the first local rank that reports
    time: float = 0.0  # of its newest report; wall clock of the node, for people only


@dataclass(frozen=True)
class Stall:
    """No rank makes steps any more, although they did."""

    rank: int  # the one that is furthest behind: it answers for the failure
    sentence: str


@dataclass(frozen=True)
class Report:
    """All that a node knows about itself."""

    node: str
    incarnation: str  # new for every agent process, and sorts after its predecessor's: a restarted node is a new member
    number: int  # grows with every report of an incarnation; older ones are ignored
    procs: int
    address: str
    header: Header  # the newest it has seen
    state: str = IDLE
    epoch: int = 0  # with `round`: what `state` refers to
    round: int = 0
    place: Optional[Place] = None  # its place in the last round that it ran ...
    place_epoch: int = 0  # ... and which one that was
    place_round: int = 0
    port: int = 0  # reserved for the workers' own rendezvous, should it become rank 0 of `round`
    ended: bool = False  # at least one local worker has ended well
    failure: Optional[Failure] = None
    leaving: bool = False
    beat: bool = False  # answer me, so that I know you live
    probe: int = 0  # the newest probe it was asked to echo
    note: str = ""  # what it is doing, for people: "unpacking code"
    warming: bool = False  # its workers would still have to wait for imports
    elastic: bool = False  # a worker of it has said that it can wait, parked, for its place
    progress: Optional[Progress] = None  # of its workers in `round`
    offer: str = ""  # what the other members' agents should know of it in `round`; nothing is decided by it
    sending: bool = False  # its part is over, and it sends what its workers have made: an ending job waits for it
    serving: bool = False  # its workers that end by themselves have ended well; the others run to the job's end


@dataclass(frozen=True)
class Order:
    """All that the coordinator wants of one node."""

    header: Header
    kind: str = WAIT
    round: int = 0
    reserve: bool = False  # with PREPARE: also reserve a port, you may become rank 0
    planned: bool = False  # with PREPARE: nothing is broken, give the workers their whole grace
    place: Optional[Place] = None
    outcome: Optional[Outcome] = None
    probe: int = 0
    sentence: str = ""
    early: bool = False  # with STANDBY: workers of this job can wait, parked, for their place; start yours already
    stall: Optional[Stall] = None  # with RUN: write down what the workers are doing; the one it names has failed


_T = TypeVar("_T")
_NESTED: Dict[str, Any] = {
    "header": Header,
    "failure": Failure,
    "place": Place,
    "outcome": Outcome,
    "progress": Progress,
    "stall": Stall,
}
_CHECKS: Dict[str, Any] = {"int": int, "str": str, "bool": bool, "float": (int, float)}
_WHOLE = 2**53  # what JSON's readers agree on
_TEXT_LIMIT = 16_384
_RANKS_LIMIT = 4096  # local ranks of a node
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # names become parts of paths
_FIELDS: Dict[Any, Any] = {}


def encode(message: Any, before: Any = None) -> Dict[str, Any]:
    """A message as plain JSON types; without fields at their default, or that are as they were in the one before."""
    out: Dict[str, Any] = {}
    for name, _, default in _fields(type(message)):
        value = getattr(message, name)
        known = default if before is None else getattr(before, name)
        if value is known or value == known:
            continue
        out[name] = encode(value) if name in _NESTED and value is not None else value
    return out


def changes(message: Mapping[str, Any], before: Mapping[str, Any]) -> Dict[str, Any]:
    """What is new in an encoded message; fields that are not in it any more are null."""
    gone = {name: None for name in before if name not in message}
    return {**gone, **{name: value for name, value in message.items() if name not in before or before[name] != value}}


def decode_report(data: object, before: Optional[Report] = None) -> Report:
    """A report from foreign data, or ProtocolError; what it leaves out is as it was `before`."""
    report = _decode(Report, data, before)
    if report.state not in STATES:
        raise ProtocolError(f"a report with the unknown state {report.state[:40]!r}")
    if not _NAME.fullmatch(report.node) or not _NAME.fullmatch(report.incarnation):
        raise ProtocolError("a report whose node or incarnation is not a name")
    if report.procs < 1 or not 0 <= report.port < 65536:
        raise ProtocolError("a report without processes, or with an impossible port")
    told = report.progress
    if told is not None and {len(told.steps), len(told.paces), len(told.gaps), len(told.busy)} != {report.procs}:
        raise ProtocolError("a report whose progress is not that of its processes")
    return report


def decode_order(data: object) -> Order:
    """An order from foreign data, or ProtocolError."""
    order = _decode(Order, data)
    if order.kind not in ORDERS:
        raise ProtocolError(f"an order of unknown kind {order.kind[:40]!r}")
    if (order.kind == RUN and order.place is None) or (order.kind == CLOSE and order.outcome is None):
        raise ProtocolError(f"an order of kind {order.kind!r} without its place or outcome")
    return order


def decode_outcome(data: object) -> Outcome:
    """An outcome read back from where it was recorded, or ProtocolError."""
    return _decode(Outcome, data)


def _fields(kind: Any) -> Any:
    if kind not in _FIELDS:
        _FIELDS[kind] = [(f.name, str(f.type), _default(f)) for f in dataclasses.fields(kind)]
    return _FIELDS[kind]


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return ... if field.default is dataclasses.MISSING else field.default


def _decode(kind: Type[_T], data: object, before: Optional[_T] = None) -> _T:
    if not isinstance(data, dict):
        raise ProtocolError(f"a {kind.__name__.lower()} must be an object, not {type(data).__name__}")
    values: Dict[str, Any] = dict(before.__dict__) if before is not None else {}
    for name, annotation, default in _fields(kind):
        value = data.get(name)
        if value is None:
            if name in data:
                values.pop(name, None)
            if default is ... and name not in values:
                raise ProtocolError(f"a {kind.__name__.lower()} without {name!r}")
        elif type(value) is int and annotation == "int" and -_WHOLE <= value <= _WHOLE:  # the most frequent case
            values[name] = value
        elif name in _NESTED:
            values[name] = _decode(_NESTED[name], value)
        else:
            values[name] = _checked(annotation, value, kind, name)
    return kind(**values)


def _checked(annotation: str, value: Any, kind: Any, name: str) -> Any:
    """The value, if it is what the field is declared to hold."""
    if annotation == "str" and type(value) is str and len(value) <= _TEXT_LIMIT:
        return value
    where = f"{kind.__name__.lower()}.{name}"
    if annotation.startswith("Tuple"):
        if not isinstance(value, (list, tuple)) or len(value) > _RANKS_LIMIT:
            raise ProtocolError(f"{where} must be a list of at most {_RANKS_LIMIT} numbers")
        return tuple(_checked(annotation[len("Tuple[") : -len(", ...]")], part, kind, name) for part in value)
    if annotation == "Metrics":
        return _checked_metrics(value, kind, name)
    if not isinstance(value, _CHECKS[annotation]) or (annotation != "bool" and isinstance(value, bool)):
        raise ProtocolError(f"{where} must be {annotation}")
    if isinstance(value, int) and not -_WHOLE <= value <= _WHOLE:
        raise ProtocolError(f"{where} is out of range")
    if annotation == "str" and len(value) > _TEXT_LIMIT:
        raise ProtocolError(f"{where} is too long")
    return value


def _checked_metrics(value: Any, kind: Any, name: str) -> Metrics:
    where = f"{kind.__name__.lower()}.{name}"
    if not isinstance(value, dict) or len(value) > METRICS_LIMIT:
        raise ProtocolError(f"{where} must be an object of at most {METRICS_LIMIT} numbers")
    for metric, number in value.items():
        if not isinstance(metric, str) or not METRIC_NAME.fullmatch(metric):
            raise ProtocolError(f"{where} contains something that is not a metric name")
        if isinstance(number, str) and number not in NOT_FINITE:
            raise ProtocolError(f"{where} contains something that is not a number")
        if not isinstance(number, str):
            _checked("float", number, kind, name)
    return dict(value)
