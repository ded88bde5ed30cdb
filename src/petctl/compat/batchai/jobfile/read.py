"""A Batch AI job file, read: the Job that does what it says, or everything that is wrong with it, each at its place.

    {"$schema": ..., "properties": {...}}     or the properties themselves; in YAML the same

What the fields mean is said in `compile`. Settings files of clusters and file servers look alike (`read_settings`);
which fields those have is for whoever asks to know.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from petctl.compat.batchai.jobfile.compile import Compiled, JobFile
from petctl.compat.batchai.jobfile.fields import PROPERTIES, REPORTED
from petctl.errors import SpecError
from petctl.job.file import documents
from petctl.job.file.read import document_of
from petctl.job.spec.document import Document
from petctl.job.spec.job import Prepared
from petctl.job.spec.problems import FieldError, Path, Problem, shown, unknown_field, wrong
from petctl.job.spec.shape import Shape, examine

ACCOUNT, KEY = "AZURE_BATCHAI_STORAGE_ACCOUNT", "AZURE_BATCHAI_STORAGE_KEY"

_SAID = {  # where else the two placeholders can be given
    ACCOUNT: f"--storage-account-name to batchai, or set {ACCOUNT} in the environment",
    KEY: f"--storage-account-key to batchai, or set {KEY} in the environment",
}
_WRAPPER = ("$schema", "properties", *REPORTED, "location", "tags", "apiVersion")


def read_file(path: str | os.PathLike[str], surroundings: JobFile) -> Prepared:
    """From a file; SpecError with every problem and its line."""
    return read_document(document_of(path), surroundings)


def read_document(document: Document, surroundings: JobFile) -> Prepared:
    """From a file that has been parsed."""
    try:
        reading = _read(document.root, surroundings)
    except FieldError as error:
        document.check(error.problems)
    document.check()
    return reading


def read_mapping(data: Mapping[str, Any], surroundings: JobFile, where: str = "job") -> Prepared:
    """From parsed JSON."""
    try:
        return _read(data, surroundings)
    except FieldError as error:
        raise SpecError("\n".join(f"{where}: {problem}" for problem in error.problems)) from None


def read_settings(path: str, shape: Shape, account: str = "", key: str = "") -> dict[str, Any]:
    """The properties in a settings file of that shape, which is JSON; SpecError with every problem and its line."""
    document = documents.read_document(path, "settings file", json=True)
    problems: list[Problem] = []
    said, inside = _opened(document.root, {ACCOUNT: account, KEY: key}, problems)
    properties, found = examine(shape, said, ("$schema",))
    document.check(_all(problems, found, inside))
    return properties


def _read(root: object, surroundings: JobFile) -> Prepared:
    if not isinstance(root, Mapping):
        raise wrong(f"expected an object with properties, got {shown(root)}")
    problems: list[Problem] = []
    said, inside = _opened(root, {ACCOUNT: surroundings.account, KEY: surroundings.key}, problems)
    properties, found = examine(PROPERTIES, _with_mounts(said, surroundings.mounts), REPORTED)
    compiled = Compiled(properties, found, surroundings)
    reading = compiled.reading()
    problems = _all(problems, compiled.problems, inside)
    if problems or reading is None:
        raise FieldError(problems)
    return reading


def _opened(root: object, sets: Mapping[str, str], problems: list[Problem]) -> tuple[Any, Path]:
    """The properties with the placeholders filled, and where in the file they are."""
    filled = _filled(root, (), sets, problems)
    if not isinstance(filled, dict) or "properties" not in filled:
        return filled, ()
    problems += [unknown_field(str(name), _WRAPPER) for name in filled if name not in _WRAPPER]
    return filled["properties"], ("properties",)


def _all(problems: list[Problem], further: list[Problem], inside: Path) -> list[Problem]:
    """Problems of the whole, and those of the properties; one line about what could not be filled is enough."""
    known = {problem.path for problem in problems}
    return problems + [problem for one in further if (problem := one.under(*inside)).path not in known]


def _filled(value: Any, path: Path, sets: Mapping[str, str], problems: list[Problem]) -> Any:
    """The tree with the service's two placeholders replaced."""
    if isinstance(value, Mapping):
        return {name: _filled(item, (*path, name), sets, problems) for name, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, (*path, index), sets, problems) for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value
    for name, text in sets.items():
        if f"<{name}>" in value:
            if not text:
                problems.append(Problem(path, f"<{name}> is unknown; give --set {name}=..., or {_SAID[name]}"))
                text = "unknown"
            value = value.replace(f"<{name}>", text)
    return value


def _with_mounts(properties: Any, more: Mapping[str, list[Mapping[str, Any]]]) -> Any:
    """The properties with the mounts of the command line behind their own."""
    if not more or not isinstance(properties, Mapping):
        return properties
    own = properties.get("mountVolumes") or {}
    if not isinstance(own, Mapping):
        return properties
    merged = {kind: [*(own.get(kind) or []), *entries] for kind, entries in more.items()}
    return {**properties, "mountVolumes": {**own, **merged}}
