"""-O NAME=VALUE: options of the kind of cluster that a job is for, from the command line, and their help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from petctl.errors import PetctlError, UsageError

if TYPE_CHECKING:
    from petctl.job.spec.options import Options


def parse_options(texts: Sequence[str], cluster: str) -> dict[str, dict[str, Any]]:
    """What -O says, by the kind of this cluster; UsageError where the kind does not know an option."""
    if not texts:
        return {}
    from petctl.clusters.base import cluster_kind
    from petctl.home import petctl_home
    from petctl.job.spec.options import find_options
    from petctl.job.spec.problems import did_you_mean
    from petctl.kinds import canonical_kind

    kind = canonical_kind(cluster_kind(cluster, petctl_home())[0])
    schema = find_options(kind)
    if schema is None:
        raise UsageError(f"-O {texts[0]}: {kind} clusters have no options of their own; choose a cluster with -c")
    default, found = schema(), dict[str, Any]()
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"-O {text}: expected NAME=VALUE")
        known = schema.__struct_fields__
        if name not in known:
            near = did_you_mean(name, known) or f"; they have: {', '.join(known)}"
            raise UsageError(f"-O {text}: {kind} clusters have no option {name!r}{near}")
        found[name] = value if isinstance(getattr(default, name), str) else _read(name, value)
    return {kind: found}


def merge_options(old: Mapping[str, Options], said: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A job file's options with what the command line says over them."""
    return {**old, **{kind: _with(old.get(kind), more) for kind, more in said.items()}}


def option_records(cluster: str) -> tuple[str, list[tuple[str, str]]]:
    """The options of a cluster's kind for its help, with their heading; none where there is no such cluster."""
    from petctl.clusters.base import cluster_kind
    from petctl.home import petctl_home
    from petctl.job.spec.options import describe_options, find_options
    from petctl.kinds import canonical_kind

    try:
        kind = canonical_kind(cluster_kind(cluster, petctl_home())[0])
    except PetctlError:  # a cluster that is not there is told when the job is submitted
        return "", []
    schema = find_options(kind)
    listed = describe_options(schema) if schema else []
    records = [(f"-O {one.name}={one.type}", f"{one.help}  [default: {one.default}]") for one in listed]
    return f"Options of {kind} clusters", records


def _with(old: Options | None, more: Mapping[str, Any]) -> Mapping[str, Any]:
    if old is None:
        return more
    return {**{name: getattr(old, name) for name in old.__struct_fields__}, **more}


def _read(name: str, value: str) -> Any:
    """A mapping or a list as a job file has it; anything else is text, which the option itself reads."""
    if value[:1] not in ("{", "["):
        return value
    from petctl.job.file.yaml_text import parse_yaml
    from petctl.job.spec.document import Builder

    document = parse_yaml(value, Builder(f"-O {name}"))
    document.check()
    return document.root
