"""Job files in: a YAML or JSON file, or the same as a mapping, to a `Job`.

All problems of a file are reported at once, one line each, in the order of their places. Foreign formats are not read
here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path as FilePath
from typing import Any

from petctl.errors import SpecError
from petctl.job.file.fill import fill
from petctl.job.spec import values
from petctl.job.spec.document import Builder, Document, Mark
from petctl.job.spec.job import FIELDS, Job
from petctl.job.spec.problems import FieldError, Problem, shown, unknown_field

LARGEST_FILE = 1 << 20

# In a file, what concerns logs is together under `logs`.
FILE_FIELDS = (*(name for name in FIELDS if name != "log_cap"), "logs")
_MOST_UNKNOWN = 20  # looking for the nearest name is slow, and somebody will pass a large file of another kind
_BATCHAI = ("properties", "nodeCount", "stdOutErrPathPrefix")  # at the top of such a file, and of no other
_LOGS = {"cap": "log_cap"}
_HINTS = {
    "command": "; a command is one of script, module, program or shell",
    "log_cap": "; write logs: {cap: 1GiB}",
}


def read_job(path: str | os.PathLike[str], sets: Mapping[str, str] | None = None) -> Job:
    """A job from a file, its ${NAME}s filled from `sets`; SpecError tells everything that is wrong, and where."""
    return job_of(*document_of(path), sets)


def document_of(path: str | os.PathLike[str]) -> tuple[Document, Builder]:
    """A file's fields, whatever they mean, and the builder that knows what is wrong with its text."""
    name = os.fspath(path)
    text = _read_text(name)
    builder = Builder(name)
    # Each reader is imported only when it is needed: PyYAML costs as much as the rest of petctl.job.spec.
    if name.lower().endswith(".json"):
        from petctl.job.file.json_text import parse_json as parse
    else:
        from petctl.job.file.yaml_text import parse_yaml as parse
    document = parse(text, builder)
    if document.root is None:
        raise SpecError(f"{name}: the file is empty; a job file begins with, for example, script: train.py")
    if not isinstance(document.root, dict):
        raise SpecError(
            f"{name}: expected fields such as script: train.py and nodes: 1:3, got {shown(document.root)} instead"
        )
    return document, builder


def is_batchai(root: object) -> bool:
    """Is this the content of a Batch AI job file? `petctl.compat.batchai.jobfile` reads those."""
    return isinstance(root, Mapping) and any(name in _BATCHAI or str(name).endswith("Settings") for name in root)


def job_of(document: Document, builder: Builder, sets: Mapping[str, str] | None = None) -> Job:
    """A job from a file that has been parsed."""
    if is_batchai(document.root):
        raise SpecError(
            f"{document.name}: this is a Batch AI job file; read it with petctl submit or petctl.compat.batchai.jobfile"
        )
    filled, problems = fill(document.root, {key: values.text(value) for key, value in (sets or {}).items()})
    unfilled = {problem.path for problem in problems if problem.path}
    job, wrong_fields = _build(filled)  # type: ignore[arg-type]  # filling keeps a mapping a mapping
    # A text that still holds ${NAME} is bound not to be a number or a size; one line about it is enough.
    problems += [problem for problem in wrong_fields if problem.path not in unfilled]
    if job is None or problems or builder.problems:
        raise SpecError(located(document, builder, problems))
    return job


def located(document: Document, builder: Builder, problems: Iterable[Problem]) -> str:
    """All that is wrong with a file, one line each, in the order of their places."""
    lines: list[tuple[Mark, str]] = [
        (mark, f"{document.name}:{mark.line}:{mark.column}: {sentence}") for mark, sentence in builder.problems
    ]
    for problem in problems:
        place, mark = document.place(problem.path, problem.at_name)
        lines.append((mark, f"{place}: {problem}"))
    return "\n".join(dict.fromkeys(line for _, line in sorted(lines)))


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


def _read_text(name: str) -> str:
    try:
        with FilePath(name).open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise SpecError(f"{name}: no such file") from None
    except IsADirectoryError:
        raise SpecError(f"{name}: is a directory, not a job file") from None
    except (OSError, ValueError) as error:
        raise SpecError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > LARGEST_FILE:
        raise SpecError(f"{name}: larger than 1 MiB, too large for a job file; is this the right file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SpecError(f"{name}:{line}: not UTF-8 text; save the file as UTF-8") from None
