"""The status of a job: one model, whatever the cluster. Made from the plain mapping that a cluster gives; read by
people's eyes.

pending -> queued -> starting -> running <-> recovering -> succeeded | failed | cancelled | lost
"""

from __future__ import annotations

from typing import Any

import msgspec

from petctl.controller.status.compact import unpack
from petctl.errors import InternalError

FINAL = frozenset({"succeeded", "failed", "cancelled", "lost"})


class SizeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes: the bounds, and what is wanted now."""

    min: int
    wanted: int
    max: int


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One node."""

    name: str
    state: str
    address: str = ""
    rank: int | None = None  # of the node in the running round
    ranks: list[int] = []  # of its workers
    restarts: int = 0
    pid: int = 0  # of its top process, where that means something
    sentence: str = ""


class RoundStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One round that ran. `seconds_lost`: from the moment its predecessor was given up until its workers train, where
    they tell (petctl.elastic, or any progress that is reported); else until they were started."""

    number: int
    reason: str
    nodes: list[str]
    world_size: int
    started: float
    seconds_lost: float = 0.0
    members: dict[str, list[int]] = {}  # node -> first rank, number of ranks


class ErrorStatus(msgspec.Struct, frozen=True, kw_only=True):
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


class RoleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks of one kind."""

    name: str
    count: int  # 0: one on each node


class RankProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One rank that reports steps."""

    rank: int
    node: str
    step: int
    steps_per_second: float = 0.0  # 0: not known yet


class ProgressStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the script has reported in the running round, or in the last one; the first fields are the lowest rank's."""

    step: int
    steps_per_second: float = 0.0
    metrics: dict[str, float | str] = {}  # a string only for nan, inf and -inf, which JSON does not have
    time: float = 0.0  # of the newest report
    ranks: list[RankProgress] = []
    stragglers: list[int] = []  # ranks below 0.8 of the median pace


class Status(msgspec.Struct, frozen=True, kw_only=True):
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
    roles: list[RoleStatus] = []  # of a job whose tasks differ
    cwd: str = ""
    code: str = ""  # which code it runs
    folders: list[str] = []  # mapped ones: where each is
    directory: str = ""  # where its logs and outputs are, on clusters that have such a place
    results: str = ""  # where they are sent, and why something is not
    round: int = 0
    epoch: int = 0
    spent: int = 0  # failures so far
    restarts: int = 0  # failures allowed
    world_size: int = 0
    nodes: list[NodeStatus] = []
    rounds: list[RoundStatus] = []  # the last 100 ...
    rounds_run: int = 0  # ... of so many
    nodes_lost: int = 0  # without having left
    seconds_lost: float = 0.0  # in which no round ran, after one did
    progress: ProgressStatus | None = None
    last_failure: ErrorStatus | None = None  # the last that a round ended by, whatever became of the job
    exit_code: int | None = None
    error: ErrorStatus | None = None
    started: float | None = None
    finished: float | None = None
    cut_short: bool = False  # its submission was, so that it never runs
    unattended: bool = False  # no process goes on with it: the sentence names the command that does
    summary: bool = False  # of a list: what the cluster knows without asking the job; `petctl status` tells the rest

    @property
    def final(self) -> bool:
        """Whether the job is over and nothing of it runs any more, but for what is left of one that is `unattended`."""
        return self.state in FINAL

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `-o json` prints it."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def status_from(data: dict[str, Any]) -> Status:
    """A status from a cluster's mapping; fields of newer versions are ignored."""
    try:
        return msgspec.convert(unpack(data), Status)
    except (msgspec.ValidationError, TypeError, ValueError, KeyError, AttributeError) as error:
        name = data.get("id", "a job")
        raise InternalError(f"the status of {name} is damaged ({error}); forget it with: petctl rm {name}") from None


def damaged_status(job_id: str, cluster: str, sentence: str) -> Status:
    """What a list shows of a job whose files cannot be read: the others must still be listed."""
    return Status(
        id=job_id,
        name=job_id,
        cluster=cluster,
        state="lost",
        since=0.0,
        sentence=sentence,
        size=SizeStatus(min=0, wanted=0, max=0),
        submitted=0.0,
        exit_code=InternalError.code,
    )
