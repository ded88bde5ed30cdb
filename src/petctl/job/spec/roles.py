"""Roles: the tasks of a job that do different things, such as the parameter servers and workers of TensorFlow.

    roles:
      - {name: ps, count: 1, args: [--job_name, ps]}        behind the job's own command
      - {name: worker, count: nodes, script: worker.py}     or a command of its own
      - {name: watcher, count: 1, shell: tail -F log, serves: true}

On the command line `--role ps=1:'--job_name ps'`. Task i of a role runs on node i modulo the number of nodes; who that
is, and what the tasks are told of each other, is the agent's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import field

from petctl.job.spec import values
from petctl.job.spec.command import KINDS, command_from_forms
from petctl.job.spec.problems import FieldError, Problem, Problems, shown, unknown_field, wrong
from petctl.text import counted

if TYPE_CHECKING:
    from petctl.job.spec.job import Job

PER_NODE = "nodes"  # for a count: one on each
MOST = 100_000
_SERVING = ("ps",)  # roles that never end by themselves, unless it is said otherwise
_name = values.of_form(
    r"[A-Za-z][A-Za-z0-9_-]{0,31}",
    "expected 1 to 32 letters, digits, '-' or '_', beginning with a letter, such as worker",
)
_FIELDS = ("name", "count", *KINDS, "args", "serves")


class Role(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Tasks of one kind."""

    name: str
    count: int = 0  # 0: one on each node
    words: list[str] = field(default_factory=list)  # behind the job's own, or the whole command where `kind` says so
    kind: str = ""  # of a command of its own; empty: the job's
    serves: bool = False  # it does not end by itself: it is stopped when all others have ended well


def roles(value: object) -> list[Role]:
    """Roles from the entries of a job file, or those that were made before."""
    found = values.every(value, _role, "a list of roles, such as {name: ps, count: 1}")
    values.check_once([role.name for role in found], "name", "there is a second role {!r}")
    return found


def parse_role_option(text: str) -> Role:
    """NAME=COUNT[:ARGS], as the command line has it."""
    name, equals, rest = text.partition("=")
    count, _, arguments = rest.partition(":")
    if not equals or not count:
        raise wrong(f"expected NAME=COUNT or NAME=COUNT:ARGS, such as worker=2:'--lr 0.1', got {shown(text)}", "--role")
    try:
        return _role({"name": name, "count": count, "args": arguments})
    except FieldError as error:
        raise FieldError(problem._replace(path=(f"--role {text}",)) for problem in error.problems) from None


def roles_to_plain(found: Sequence[Role]) -> list[dict[str, Any]]:
    """Roles as a job file has them."""
    return [_plain(role) for role in found]


def role_problems(job: Job) -> list[Problem]:
    """What of a job's roles does not fit its other fields."""
    if not job.roles:
        return []
    problems = []
    if job.launcher != "plain":
        problems.append(Problem(("roles",), f"are for launcher plain, not {job.launcher}"))
    if job.procs != "1":
        problems.append(Problem(("procs",), "the roles' counts say how many processes there are; leave it out"))
    if all(role.serves for role in job.roles):
        problems.append(Problem(("roles",), "every role is a server (serves: true), so the job would never end"))
    most = MOST if any(role.count == 0 for role in job.roles) else max(role.count for role in job.roles)
    if most < job.nodes.max:
        tasks = counted(most, "task")
        sentence = f"the largest role has {tasks}, too few for {job.nodes.max} nodes; ask for at most {most}"
        problems.append(Problem(("nodes",), sentence))
    return problems


def _role(entry: object) -> Role:
    if isinstance(entry, Role):
        return entry
    if not isinstance(entry, Mapping):
        raise wrong(f"expected a role such as {{name: ps, count: 1}}, got {shown(entry)}")
    problems = Problems(unknown_field(str(name), _FIELDS) for name in entry if name not in _FIELDS)
    made: dict[str, Any] = {}
    for name, convert in (("name", _name), ("count", _count), ("serves", values.truth)):
        with problems.at(name):
            if entry.get(name) is not None:
                made[name] = convert(entry[name])
            elif name == "name":
                _name("")  # which says what it has to be
    with problems.at():
        if any(entry.get(kind) is not None for kind in KINDS):
            command = command_from_forms(entry)
            made |= {"kind": command.kind, "words": command.words}
        elif entry.get("args") is not None:
            made["words"] = values.words(entry["args"])
    problems.check()
    return Role(**{"serves": made["name"] in _SERVING, **made})


def _count(value: object) -> int:
    if value == PER_NODE:
        return 0
    try:
        return values.whole(1, MOST)(value)
    except FieldError:
        raise wrong(
            f"expected a number from 1 to {MOST}, or {PER_NODE} for one on each node, got {shown(value)}"
        ) from None


def _plain(role: Role) -> dict[str, Any]:
    plain: dict[str, Any] = {"name": role.name, "count": role.count or PER_NODE}
    if role.kind == "program":
        plain["program"] = list(role.words)
    elif role.kind:
        plain[role.kind] = role.words[0]
    arguments = [] if role.kind == "program" else role.words[1:] if role.kind else role.words
    if arguments:
        plain["args"] = list(arguments)
    if role.serves != (role.name in _SERVING):
        plain["serves"] = role.serves
    return plain
