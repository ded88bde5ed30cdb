"""What `petctl cluster create` is told: its options over a file, as one description. What a description may say is
checked where the cluster is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from petctl.errors import UsageError
from petctl.job.file.documents import read_document
from petctl.job.spec.document import Document
from petctl.job.spec.problems import shown


def description(
    file: Document | None,
    size: Mapping[str, int | None],
    words: Mapping[str, Any],
    setup: Mapping[str, Any],
    directories: Mapping[str, str],
    commands: Mapping[str, str],
) -> dict[str, Any]:
    """The file's fields, with what the options say in their place; None: not said. A field of the file that is not as
    it should be stays so, and is told with all the others."""
    spec: dict[str, Any] = dict(file.root) if file and isinstance(file.root, dict) else {}
    if any(value is not None for value in size.values()):
        spec = {key: value for key, value in spec.items() if key not in (*size, "initial")}
    spec.update({key: value for key, value in {**size, **words}.items() if value is not None})
    if not set(size) & set(spec):
        spec["nodes"] = 1
    if any(value not in (None, {}) for value in setup.values()):
        spec["setup"] = _with_setup(spec.get("setup"), setup)
    added = [
        *({"path": path, "directory": _absolute(where)} for path, where in directories.items()),
        *({"path": path, "command": line} for path, line in commands.items()),
    ]
    own = spec.get("mounts") or []
    if added and isinstance(own, list):
        spec["mounts"] = [*own, *added]
    return spec


def pairs(words: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE, several times."""
    found = [word.partition("=") for word in words]
    for name, equals, value in found:
        if not name or not equals or not value:
            raise UsageError(f"{name!r} must be written as NAME=VALUE")
    return {name: value for name, _, value in found}


def seconds(words: str | None) -> float | None:
    """An idle time in the user's words."""
    if words is None:
        return None
    from petctl.job.spec.problems import FieldError
    from petctl.job.spec.quantities import parse_duration

    try:
        return parse_duration(words)
    except FieldError as error:
        raise UsageError(f"the idle time: {error}") from None


def _with_setup(known: object, said: Mapping[str, Any]) -> object:
    setup: object = {"command": known} if isinstance(known, str) else known or {}
    if not isinstance(setup, dict):
        return setup
    setup = {**setup}
    if said["command"] is not None:
        setup["command"] = said["command"]
    if said["output"] is not None:
        setup["output"] = _absolute(said["output"])
    for name in ("env", "secrets"):
        own = setup.get(name) or {}
        if said[name] and isinstance(own, dict):
            setup[name] = {**own, **said[name]}
    return setup


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def read_description(path: str) -> Document:
    """The file, whose fields are checked where the cluster is made."""
    document = read_document(path, "cluster file")
    if not isinstance(document.root, dict):
        raise UsageError(f"the cluster file {path} must be a mapping, not {shown(document.root)}")
    from petctl.job.file.read import foreign_format

    if foreign := foreign_format(document.root):
        raise UsageError(
            f"{path} is a file of {foreign.NAME}; make its cluster with: {foreign.CREATE_CLUSTER} -f {path} ..."
        )
    return document
