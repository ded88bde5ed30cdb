"""The two things that are ever said between a node and the coordinator.

A node sends a `Report`: everything about itself, whole, each time. It sends one when it connects, one whenever
something changes, and one with every heartbeat. The coordinator answers with an `Order`: everything it wants of that
one node, whole, each time. Nothing is a delta, so a lost, repeated or reordered message is healed by the next one, and
a new coordinator learns all there is to know from one report of each node.

A `Header` travels in both directions: it is what must survive the coordinator (epoch, round, failures spent, wanted
size). Nodes keep the newest header they have seen and send it back; the highest (epoch, seq) wins.

This file knows no sockets and no clock. `decode_report` and `decode_order` are the only doors for foreign data and
raise `ProtocolError`; past them every value has its declared type.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Tuple, Type, TypeVar

from petctl.errors import ProtocolError

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

    def sentence(self) -> str:
        how = f"was killed by {self.signal}" if self.signal else f"exited with code {self.code}"
        return f"rank {self.rank} on node {self.node} {how}" + (f": {self.message}" if self.message else "")


@dataclass(frozen=True)
class Outcome:
    """How the job ended. Recorded with the backend before anyone is told."""

    state: str
    code: int
    sentence: str
    failure: Optional[Failure] = None


@dataclass(frozen=True)
class Place:
    """A node's place in a round; the same for a given (epoch, round), and constant in size."""

    rank: int  # of the node: GROUP_RANK
    nodes: int
    first_rank: int  # global rank of its first worker
    world_size: int
    master_addr: str
    master_port: int


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


_T = TypeVar("_T")
_NESTED: Dict[str, Any] = {"header": Header, "failure": Failure, "place": Place, "outcome": Outcome}
_CHECKS: Dict[str, Any] = {"int": int, "str": str, "bool": bool, "float": (int, float)}
_TEXT_LIMIT = 16_384
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # names become parts of paths
_FIELDS: Dict[Any, Any] = {}


def encode(message: Any) -> Dict[str, Any]:
    """A message as plain JSON types; fields at their default are left out."""
    out: Dict[str, Any] = {}
    for name, _, default in _fields(type(message)):
        value = getattr(message, name)
        if value is None or value == default:
            continue
        out[name] = encode(value) if name in _NESTED else value
    return out


def decode_report(data: object) -> Report:
    """A report from foreign data, or ProtocolError."""
    report = _decode(Report, data)
    if report.state not in STATES:
        raise ProtocolError(f"a report with the unknown state {report.state[:40]!r}")
    if not _NAME.fullmatch(report.node) or not _NAME.fullmatch(report.incarnation):
        raise ProtocolError("a report whose node or incarnation is no name")
    if report.procs < 1 or not 0 <= report.port < 65536:
        raise ProtocolError("a report without processes, or with an impossible port")
    return report


def decode_order(data: object) -> Order:
    """An order from foreign data, or ProtocolError."""
    order = _decode(Order, data)
    if order.kind not in ORDERS:
        raise ProtocolError(f"an order of the unknown kind {order.kind[:40]!r}")
    if (order.kind == RUN and order.place is None) or (order.kind == CLOSE and order.outcome is None):
        raise ProtocolError(f"an order of kind {order.kind!r} without its place or outcome")
    return order


def decode_outcome(data: object) -> Outcome:
    """An outcome read back from where it was recorded, or ProtocolError."""
    return _decode(Outcome, data)


def _fields(kind: Any) -> Any:
    if kind not in _FIELDS:
        _FIELDS[kind] = [
            (f.name, str(f.type), f.default if f.default is not dataclasses.MISSING else ...)
            for f in dataclasses.fields(kind)
        ]
    return _FIELDS[kind]


def _decode(kind: Type[_T], data: object) -> _T:
    if not isinstance(data, Mapping):
        raise ProtocolError(f"a {kind.__name__.lower()} must be an object, not {type(data).__name__}")
    values: Dict[str, Any] = {}
    for name, annotation, default in _fields(kind):
        if name not in data or data[name] is None:
            if default is ...:
                raise ProtocolError(f"a {kind.__name__.lower()} without {name!r}")
            continue
        value = data[name]
        if name in _NESTED:
            value = _decode(_NESTED[name], value)
        else:
            expected = _CHECKS[annotation]
            if not isinstance(value, expected) or (annotation != "bool" and isinstance(value, bool)):
                raise ProtocolError(f"{kind.__name__.lower()}.{name} must be {annotation}")
            if annotation == "int" and not -(2**53) <= value <= 2**53:
                raise ProtocolError(f"{kind.__name__.lower()}.{name} is out of range")
            if annotation == "str" and len(value) > _TEXT_LIMIT:
                raise ProtocolError(f"{kind.__name__.lower()}.{name} is too long")
        values[name] = value
    return kind(**values)
