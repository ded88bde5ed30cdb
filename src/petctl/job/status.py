"""Where a job stands: one model for those who look after it and those who look at it, whatever the cluster.

    pending -> queued -> starting -> running <-> recovering -> succeeded | failed | cancelled | lost

`pack` and `from_dict` are its form in files and on the wire, where what thousands of nodes have in common is said once:

    rounds[].blocks    {"0": [0, 8], "1": [8, 8], ...}   ->  [["0:1023", 0, 8]]
    nodes[].ranks      [8, 9, ..., 15]                    ->  "8:15"; fields at their default are left out
    progress.ranks     one object per rank                ->  a column per field, equal neighbours as [value, count]

A colon cannot be part of a node's name. 10,000 nodes of 8 ranks and 100 rounds fit in one frame.

`to_dict` is what users get. Only the whole is frozen: to freeze each part costs milliseconds at every start of a
supervisor. A newer status is another one all the same (`dataclasses.replace`), parts included.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from petctl.errors import InternalError
from petctl.job.fields import decode, encode

FINAL = frozenset({"succeeded", "failed", "cancelled", "lost"})


@dataclass
class SizeStatus:
    """How many nodes: the bounds, and what is wanted now."""

    min: int
    wanted: int
    max: int


@dataclass
class NodeStatus:
    """One node."""

    name: str
    state: str
    address: str = ""
    rank: Optional[int] = None  # of the node in the running round
    ranks: List[int] = field(default_factory=list)  # of its workers
    restarts: int = 0
    pid: int = 0  # of its top process, where that means something
    sentence: str = ""


@dataclass
class RoundStatus:
    """One round that ran. `seconds_lost`: from the moment its predecessor was given up until its workers train, where
    they tell (petctl.elastic, or any progress that is reported); else until they were started."""

    number: int
    reason: str
    blocks: List[Tuple[str, int, int]]  # its members: nodes in a row, their first rank, ranks of each
    world_size: int = 0
    started: float = 0.0
    seconds_lost: float = 0.0

    @classmethod
    def of(cls, number: int, reason: str, members: Mapping[str, Sequence[int]], **more: Any) -> RoundStatus:
        """`members`: node -> first rank, number of ranks."""
        return cls(number, reason, pack_members(members), **more)

    @property
    def members(self) -> Dict[str, List[int]]:
        """Node -> first rank, number of ranks; empty where that is not known."""
        return members_in(self.blocks) if any(count for _, _, count in self.blocks) else {}

    @property
    def nodes(self) -> List[str]:
        """Who took part, in the order of ranks."""
        return list(members_in(self.blocks))

    def to_dict(self) -> Dict[str, Any]:
        """Plain data, as users get it."""
        plain = dict(vars(self), nodes=self.nodes, members=self.members)
        return {name: plain[name] for name in _ROUND}


_ROUND = ("number", "reason", "nodes", "world_size", "started", "seconds_lost", "members")


@dataclass
class ErrorStatus:
    """The root cause: the worker that failed first."""

    node: str
    rank: int
    local_rank: int
    code: int
    signal: str = ""
    message: str = ""
    traceback: str = ""
    time: float = 0.0
    hung: bool = False  # it made no step any more; `traceback` are its stacks
    task: str = ""  # which one of a role it was: "worker 1"
    cause: str = ""  # a known one, by its name in causes.ini, where what it says and advises stands too
    lasting: bool = False  # its node could not start it, and could not the next time either


@dataclass
class RoleStatus:
    """Tasks of one kind."""

    name: str
    count: int  # 0: one on each node


@dataclass
class RankProgress:
    """One rank that reports steps."""

    rank: int
    node: str
    step: int
    steps_per_second: float = 0.0  # 0: not known yet


@dataclass
class ProgressStatus:
    """What the script has reported in the running round, or in the last one; the first fields are the lowest rank's."""

    step: int
    steps_per_second: float = 0.0
    metrics: Dict[str, Union[float, str]] = field(default_factory=dict)  # a string only for nan, inf and -inf
    time: float = 0.0  # of the newest report
    ranks: List[RankProgress] = field(default_factory=list)
    stragglers: List[int] = field(default_factory=list)  # ranks below 0.8 of the median pace


@dataclass(frozen=True)
class JobStatus:
    """Where a job stands. Times are seconds since 1970."""

    id: str
    name: str
    cluster: str
    state: str
    since: float
    sentence: str
    size: SizeStatus
    submitted: float
    command: str = ""
    roles: List[RoleStatus] = field(default_factory=list)  # of a job whose tasks differ
    cwd: str = ""
    code: str = ""  # which code it runs
    folders: List[str] = field(default_factory=list)  # mapped ones: where each is
    directory: str = ""  # where its logs and outputs are, on clusters that have such a place
    results: str = ""  # where they are sent, and why something is not
    round: int = 0
    epoch: int = 0
    spent: int = 0  # failures so far
    restarts: int = 0  # failures allowed
    world_size: int = 0
    nodes: List[NodeStatus] = field(default_factory=list)
    rounds: List[RoundStatus] = field(default_factory=list)  # the last 100 ...
    rounds_run: int = 0  # ... of so many
    nodes_lost: int = 0  # without having left
    seconds_lost: float = 0.0  # in which no round ran, after one did
    progress: Optional[ProgressStatus] = None
    last_failure: Optional[ErrorStatus] = None  # the last that a round ended by, whatever became of the job
    exit_code: Optional[int] = None
    error: Optional[ErrorStatus] = None
    started: Optional[float] = None
    finished: Optional[float] = None
    cut_short: bool = False  # its submission was, so that it never runs
    unattended: bool = False  # no process goes on with it: the sentence names the command that does
    summary: bool = False  # of a list: what the cluster knows without asking the job; `petctl status` tells the rest

    @property
    def final(self) -> bool:
        """Whether the job is over and nothing of it runs any more, but for what is left of one that is `unattended`."""
        return self.state in FINAL

    def to_dict(self) -> Dict[str, Any]:
        """Plain data, as `-o json` prints it."""
        plain: Dict[str, Any] = encode({**vars(self), "rounds": []})
        plain["rounds"] = [past.to_dict() for past in self.rounds]
        return plain

    def pack(self) -> Dict[str, Any]:
        """Its form in files and on the wire."""
        packed: Dict[str, Any] = encode({**vars(self), "nodes": [], "progress": None})
        packed["nodes"] = [pack_node(vars(node)) for node in self.nodes]
        if self.progress is not None:
            packed["progress"] = pack_progress(vars(self.progress))
        return packed

    @classmethod
    def from_dict(cls, data: object) -> JobStatus:
        """From its form in files and on the wire; InternalError says what is damaged."""
        try:
            return decode(cls, unpack(data))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            name = data.get("id", "a job") if isinstance(data, dict) else "a job"
            raise InternalError(
                f"the status of {name} is damaged ({error}); forget it with: petctl rm {name}"
            ) from None


_NODE: Dict[str, Any] = {"address": "", "rank": None, "ranks": [], "restarts": 0, "pid": 0, "sentence": ""}
_RANK = ("rank", "node", "step", "steps_per_second")


def unpack(packed: Any) -> Dict[str, Any]:
    """The fields of a status from its short form."""
    status = dict(packed)
    status["nodes"] = [
        {**row, "ranks": list(_numbers(row["ranks"]))} if "ranks" in row else row for row in status.get("nodes", ())
    ]
    progress = status.get("progress")
    if progress:
        columns = progress["ranks"]
        ranks = [list(_numbers(columns["rank"])), *(list(_values(columns[name])) for name in _RANK[1:])]
        status["progress"] = {**progress, "ranks": [dict(zip(_RANK, row)) for row in zip(*ranks)]}
    return status


def pack_node(row: Mapping[str, Any]) -> Dict[str, Any]:
    """The short form of a node's fields."""
    short = {name: value for name, value in row.items() if name not in _NODE or value != _NODE[name]}
    if "ranks" in short:
        short["ranks"] = _ranges(short["ranks"])
    return short


def pack_progress(progress: Mapping[str, Any]) -> Dict[str, Any]:
    """The short form of the fields of progress."""
    rows = progress["ranks"]
    columns: Dict[str, Any] = {name: _runs(getattr(row, name) for row in rows) for name in _RANK[1:]}
    return {**progress, "ranks": {"rank": _ranges(row.rank for row in rows), **columns}}


def pack_members(members: Mapping[str, Sequence[int]]) -> List[Tuple[str, int, int]]:
    """Node -> first rank, number of ranks; in its short form, made once, since a job has many rounds."""
    blocks: List[Tuple[List[str], int, int]] = []
    for name, (first, count) in members.items():
        if blocks:
            names, start, each = blocks[-1]
            if each == count and first == start + each * len(names) and _follows(names[-1], name):
                names.append(name)
                continue
        blocks.append(([name], first, count))
    return [(names[0] if len(names) == 1 else f"{names[0]}:{names[-1]}", start, each) for names, start, each in blocks]


def members_in(blocks: Iterable[Tuple[str, int, int]]) -> Dict[str, List[int]]:
    """The long form."""
    members: Dict[str, List[int]] = {}
    for names, first, count in blocks:
        start, _, end = names.partition(":")
        for place, name in enumerate(map(str, range(int(start), int(end) + 1)) if end else [start]):
            members[name] = [first + place * count, count]
    return members


def _follows(name: str, later: str) -> bool:
    return name.isdigit() and later.isdigit() and later == str(int(name) + 1) and name == str(int(name))


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers as "0:7,9"."""
    found: List[List[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{low}:{high}" if high > low else str(low) for low, high in found)


def _numbers(text: str) -> Iterator[int]:
    for part in filter(None, text.split(",")):
        low, _, high = part.partition(":")
        yield from range(int(low), int(high or low) + 1)


def _runs(values: Iterable[Any]) -> List[Any]:
    """Equal neighbours as [value, count], a single one as itself."""
    found: List[List[Any]] = []
    for value in values:
        if found and found[-1][0] == value:
            found[-1][1] += 1
        else:
            found.append([value, 1])
    return [run[0] if run[1] == 1 else run for run in found]


def _values(runs: Iterable[Any]) -> Iterator[Any]:
    for run in runs:
        value, count = run if isinstance(run, list) else (run, 1)
        for _ in range(count):
            yield value
