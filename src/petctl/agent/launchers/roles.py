"""The tasks of a plain job: which of them this node has, and what each is told of the others. Pure.

    offer(address, ports)         what a node tells the others before a round: where its tasks will listen
    assignments(task, context)    this node's tasks in that round, in the order of their local ranks

Task i of a role runs on node i modulo the number of nodes. A job without roles has `procs` tasks on each node, and all
of them are workers. Ports are held in `port_reservation.py`; how many tasks a node has is known to the coordinator too,
which numbers their ranks (`rendezvous/core/decide.py`).
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from dataclasses import dataclass, field
from typing import Dict, List, Protocol, Sequence, Tuple, TypeVar

from petctl.agent.workers.environment import RoundContext
from petctl.errors import UsageError
from petctl.job.task import SHELL, Role, Task
from petctl.rendezvous.core.decide import share
from petctl.rendezvous.core.messages import Place

WORKER, PS = "worker", "ps"


class Counted(Protocol):
    """A role, whoever describes it."""

    @property
    def name(self) -> str: ...

    @property
    def count(self) -> int: ...


AnyRole = TypeVar("AnyRole", bound=Counted)


@dataclass(frozen=True)
class Assignment:
    """One task of this node."""

    task: Task  # with a command of its own
    variables: Dict[str, str]
    name: str = ""  # "worker 1"; empty: the job has no roles
    serves: bool = False


@dataclass(frozen=True)
class RoleAssignment:
    """Where every task of a round listens, as "host:port"."""

    hosts: List[str]  # of the nodes, in rank order
    everybody: List[str]  # by rank
    roles: Dict[str, List[str]] = field(default_factory=dict)  # by index


def most_tasks(task: Task, procs: int) -> int:
    """How many tasks this node may have in a round, whatever its place will be."""
    return share([role.count for role in task.roles], 0, task.min_nodes) if task.roles else procs


def offer(address: str, ports: Sequence[int]) -> str:
    """What a node says of itself before it knows its place."""
    return " ".join([address, *map(str, ports)])


def tasks_of(roles: Sequence[AnyRole], rank: int, nodes: int) -> List[Tuple[AnyRole, int]]:
    """The tasks of one node, each with its index in its role."""
    return [(role, index) for role in roles for index in range(rank, role.count or nodes, nodes)]


def task_names(roles: Sequence[AnyRole], nodes: int) -> List[str]:
    """What the tasks of a round on so many nodes are called, by their ranks."""
    return [f"{role.name} {index}" for rank in range(nodes) for role, index in tasks_of(roles, rank, nodes)]


def cast_of(roles: Sequence[Role], place: Place) -> RoleAssignment:
    """Who is where in a round, from what its members have offered."""
    told = [text.split() for text in place.offers]
    cast = RoleAssignment(
        [words[0] for words in told], [], {role.name: [""] * (role.count or place.nodes) for role in roles}
    )
    for rank, (host, *ports) in enumerate(told):
        own = tasks_of(roles, rank, place.nodes)
        host = f"[{host}]" if ":" in host else host
        addresses = [f"{host}:{port}" for port in (ports[: len(own)] if roles else ports)]
        cast.everybody.extend(addresses)
        for (role, index), address in zip(own, addresses):
            cast.roles[role.name][index] = address
    return cast


def assignments(task: Task, context: RoundContext) -> List[Assignment]:
    """This node's tasks, in the order of their local ranks."""
    place = context.place
    cast = cast_of(task.roles, place)
    common = {"PETCTL_HOSTS": ",".join(cast.hosts)}
    if not task.roles:
        common["AZ_BATCHAI_WORKER_HOSTS"] = ",".join(cast.everybody)
        ranks = range(place.first_rank, place.first_rank + context.procs)
        return [Assignment(task, {**common, "AZ_BATCHAI_TASK_INDEX": str(rank)}) for rank in ranks]
    for name, variable in ((PS, "AZ_BATCHAI_PS_HOSTS"), (WORKER, "AZ_BATCHAI_WORKER_HOSTS")):
        if name in cast.roles:
            common[variable] = ",".join(cast.roles[name])
    own = tasks_of(task.roles, place.rank, place.nodes)
    if not own:
        raise UsageError(f"no role has a task for node {place.rank + 1} of {place.nodes}; ask for fewer nodes")
    return [
        Assignment(
            _with_command(task, role),
            {**common, **_variables(role, index, cast)},
            name=f"{role.name} {index}",
            serves=role.serves,
        )
        for role, index in own
    ]


def _with_command(task: Task, role: Role) -> Task:
    """The job's task as one of this role runs it."""
    if role.kind:
        return dataclasses.replace(task, kind=role.kind, words=list(role.words))
    if task.kind == SHELL and role.words:
        words = [" ".join([task.words[0], *map(shlex.quote, role.words)])]
    else:
        words = [*task.words, *role.words]
    return dataclasses.replace(task, words=words)


def _variables(role: Role, index: int, cast: RoleAssignment) -> Dict[str, str]:
    told = {"cluster": cast.roles, "task": {"type": role.name, "index": index}}
    return {
        "ROLE_NAME": role.name,
        "ROLE_RANK": str(index),
        "ROLE_WORLD_SIZE": str(len(cast.roles[role.name])),
        "TF_CONFIG": json.dumps(told),
        "AZ_BATCHAI_TASK_INDEX": str(index),
    }
