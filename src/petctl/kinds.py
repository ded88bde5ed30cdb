"""Which kinds of clusters there are, and what each brings: petctl's own in one table, other packages' by entry points.

    petctl.clusters       the kind itself: called with $PETCTL_HOME and the cluster's settings it gives a `Cluster`
    petctl.options        what a job may say to this kind alone (`petctl.job.spec.options`)
    petctl.provisioners   what makes clusters of it (`petctl.clusters.provisioner`)
    petctl.commands       verbs that are this kind's alone: click commands, named as the verb

Those are groups of entry points; the first three have the kind's name. They are read only for what is none of petctl's
own, since reading them takes longer than most commands. Nothing of a kind is imported before it is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

DEFAULT = "local"


class Kind(NamedTuple):
    """A kind of petctl's own: the modules that hold what it has."""

    backend: str  # `connect`
    options: str = ""  # `OPTIONS`
    provisioner: str = ""  # functions of a provisioner
    commands: Mapping[str, str] = {}  # verb -> `command`


_KUBERNETES = Kind(
    "petctl.clusters.kubernetes.backend",
    options="petctl.clusters.kubernetes.pods.schema",
    commands={
        "import": "petctl.clusters.kubernetes.commands.import_",
        "operator": "petctl.clusters.kubernetes.commands.operator",
        "volume": "petctl.clusters.kubernetes.commands.volume",
    },
)
KINDS = {
    "debug": Kind("petctl.clusters.debug.backend", options="petctl.clusters.debug.options"),
    "local": Kind("petctl.clusters.local.backend", provisioner="petctl.clusters.local.pools.pool"),
    "kubernetes": _KUBERNETES,
    "k8s": _KUBERNETES,
}
LAYOUTS = {"batchai": "petctl.compat.batchai.layout"}
"""No clusters, but job files of another system: the module of the `OPTIONS` that say what has no field of a job."""
COMMANDS = {verb: module for kind in KINDS.values() for verb, module in kind.commands.items()}
_ALIASES = {"k8s": "kubernetes"}


def canonical_kind(kind: str) -> str:
    """The one name of a kind that has two."""
    return _ALIASES.get(kind, kind)


def find_kind(kind: str) -> Callable[..., Any]:
    """What makes a cluster of this kind, which there is."""
    if kind in KINDS:
        connect: Callable[..., Any] = importlib.import_module(KINDS[kind].backend).connect
        return connect
    brought: Callable[..., Any] = _brought("petctl.clusters")[kind].load()
    return brought


def load_options(kind: str) -> Any:
    """The struct of a kind's options; None where it has none, or there is no such kind."""
    if kind in KINDS or kind in LAYOUTS:
        module = LAYOUTS.get(kind) or KINDS[kind].options
        return importlib.import_module(module).OPTIONS if module else None
    return _load("petctl.options", kind)


def load_provisioner(kind: str) -> Any:
    """What makes clusters of this kind (`petctl.clusters.provisioner`); None where nothing does."""
    if kind in KINDS:
        module = KINDS[kind].provisioner
        return importlib.import_module(module) if module else None
    return _load("petctl.provisioners", kind)


def load_command(verb: str) -> Any:
    """The click command of a verb that a kind brings; None where none does."""
    return importlib.import_module(COMMANDS[verb]).command if verb in COMMANDS else _load("petctl.commands", verb)


def is_kind(name: str) -> bool:
    """Whether there is a kind of this name; nothing of it is imported."""
    return name in KINDS or name in _brought("petctl.clusters")


def all_kinds() -> list[str]:
    """The names of all kinds, in order."""
    return sorted({*KINDS, *_brought("petctl.clusters")})


def kinds_with_options() -> list[str]:
    """The names of all kinds that a job can say something to, in order."""
    own = {canonical_kind(name) for name, kind in KINDS.items() if kind.options}
    return sorted({*own, *_brought("petctl.options")})


def brought_verbs() -> list[str]:
    """Verbs of kinds that other packages bring, in order."""
    return sorted(_brought("petctl.commands"))


def _load(group: str, name: str) -> Any:
    point = _brought(group).get(name)
    return None if point is None else point.load()


@cache
def _brought(group: str) -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=group)}
