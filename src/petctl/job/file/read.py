"""Job files in: a YAML or JSON file, or the same as a mapping, to a `Job`.

All problems of a file are reported at once, one line each, in the order of their places. Those of other systems are
told apart here, and read by their front ends.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from petctl.errors import SpecError
from petctl.job.file.documents import read_document
from petctl.job.file.fill import fill
from petctl.job.spec import values
from petctl.job.spec.document import Document
from petctl.job.spec.job import FIELDS, Job
from petctl.job.spec.problems import FieldError, Problem, shown, unknown_field
from petctl.job.spec.resources import Resources

# In a file, what concerns logs is together under `logs`.
FILE_FIELDS = (*(name for name in FIELDS if name != "log_cap"), "logs")
_MOST_UNKNOWN = 20  # looking for the nearest name is slow, and somebody will pass a large file of another kind
_FOREIGN = ("petctl.compat.batchai.service.volumes",)  # by its name: nothing here imports a front end
_LOGS = {"cap": "log_cap"}
_HINTS = {
    **{name: f"; write resources: {{{name}: ...}}" for name in Resources.__struct_fields__},
    "command": "; a command is one of script, module, program or shell",
    "kubernetes": "; write options: {kubernetes: {...}}",
    "pod": "; write options: {kubernetes: {pod: {...}}}",
    "log_cap": "; write logs: {cap: 1GiB}",
}


def read_job(path: str | os.PathLike[str], sets: Mapping[str, str] | None = None) -> Job:
    """A job from a file, its ${NAME}s filled from `sets`; SpecError tells everything that is wrong, and where."""
    return job_of(document_of(path), sets)


def document_of(path: str | os.PathLike[str]) -> Document:
    """A job file's fields, whoever reads them."""
    document = read_document(path)
    if document.root is None:
        raise SpecError(f"{document.name}: the file is empty; a job file begins with, for example, script: train.py")
    if not isinstance(document.root, dict):
        raise SpecError(
            f"{document.name}: expected fields such as script: train.py and nodes: 1:3, got {shown(document.root)} "
            "instead"
        )
    return document


def foreign_format(root: Any) -> Any:
    """The module that knows the system whose job or cluster file has this content; None: it is petctl's own. It has the
    system's NAME, `is_one(root)`, `read_job_file`, READER, which does so in Python, and CREATE_CLUSTER, a command."""
    strange = any(name not in FILE_FIELDS for name in root)
    return next((known for known in map(import_module, _FOREIGN) if known.is_one(root)), None) if strange else None


def job_of(document: Document, sets: Mapping[str, str] | None = None) -> Job:
    """A job from a file that has been parsed."""
    if foreign := foreign_format(document.root):
        raise SpecError(
            f"{document.name}: this is a {foreign.NAME} job file; read it with petctl submit or {foreign.READER}"
        )
    filled, problems = fill(document.root, {key: values.text(value) for key, value in (sets or {}).items()})
    unfilled = {problem.path for problem in problems if problem.path}
    job, wrong_fields = _build(filled)  # type: ignore[arg-type]  # filling keeps a mapping a mapping
    # A text that still holds ${NAME} is bound not to be a number or a size; one line about it is enough.
    problems += [problem for problem in wrong_fields if problem.path not in unfilled]
    document.check(problems)
    assert job is not None  # it has problems otherwise
    return job


def job_from_dict(data: Mapping[str, Any], where: str = "job") -> Job:
    """A job from a mapping of the shape of a job file; ${NAME} has no meaning here."""
    if not isinstance(data, Mapping):
        raise SpecError(f"{where}: expected a mapping of fields such as script and nodes, got {shown(data)}")
    job, problems = _build(data)
    if job is None or problems:
        raise SpecError("\n".join(f"{where}: {problem}" for problem in problems))
    return job


def _build(data: Mapping[str, object]) -> tuple[Job | None, list[Problem]]:
    """The job, and every problem of the file's shape and of its fields."""
    unknown = [str(name) for name in data if name not in FILE_FIELDS]
    problems = [unknown_field(name, FILE_FIELDS, _HINTS.get(name, "")) for name in unknown[:_MOST_UNKNOWN]]
    if len(unknown) > _MOST_UNKNOWN:
        problems.append(Problem((), f"{len(unknown)} unknown fields in all; is this a job file?"))
    fields = {name: data[name] for name in FIELDS if name in data and name not in _LOGS.values()}
    logs = data.get("logs")
    if isinstance(logs, Mapping):
        problems += [unknown_field(str(name), _LOGS).under("logs") for name in logs if name not in _LOGS]
        fields |= {_LOGS[name]: logs[name] for name in logs if name in _LOGS}
    elif logs is not None:
        problems.append(Problem(("logs",), f"expected a mapping with {', '.join(_LOGS)}, got {shown(logs)}"))
    try:
        return Job(**fields), problems  # type: ignore[arg-type]  # the fields check themselves
    except FieldError as error:
        return None, problems + [
            problem._replace(path=("logs", "cap")) if problem.path == ("log_cap",) else problem
            for problem in error.problems
        ]
