"""The keys that a configuration may have, so that a slip of the pen is an error and not a setting without effect.

What the values mean is checked by who uses them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from petctl.errors import UsageError
from petctl.kinds import KINDS, canonical_kind, is_kind

TOP = ("clusters", "stores", "folders", "store", "cache", "mounts", "secrets")
USERS_OWN = ("trusted",)  # a project cannot vouch for itself
STORE = ("endpoint", "region", "directory", "anonymous")
OF_NODES = ("resources", "volumes")
LOCAL = ("kind", "slots", "container", "container_options", "folders", *OF_NODES)
KUBERNETES = (
    *("kind", "context", "kubeconfig", "namespace", "image", "pull_policy", "python", "pod", "operator", "folders"),
    *OF_NODES,
)


def check_keys(path: Path, said: Mapping[Any, Any], users_own: bool) -> None:
    """Raises UsageError with the file, each unknown key and the nearest right one."""
    problems = [*_unknown(said, (*TOP, *USERS_OWN) if users_own else TOP, "")]
    if not users_own and "trusted" in said:
        problems = ["trusted: only your own configuration can set this, not the project's"]
    for name, section in _mappings(said.get("stores")):
        problems += _unknown(section, STORE, f"stores.{name}.")
    for name, section in _mappings(said.get("clusters")):
        problems += _unknown(section, _cluster_keys(str(section.get("kind", name)), section), f"clusters.{name}.")
    if problems:
        raise UsageError("\n".join(f"{path}: {problem}" for problem in problems))


def kubernetes_keys() -> tuple[str, ...]:
    """The settings of a Kubernetes cluster: its own, and what may be said of pods."""
    from petctl.job.spec.options import find_options

    options = find_options("kubernetes")
    assert options is not None
    return tuple(dict.fromkeys((*KUBERNETES, *options.__struct_fields__)))


def _cluster_keys(kind: str, section: Mapping[Any, Any]) -> Collection[str]:
    if "kind" in section and kind not in KINDS and is_kind(kind):
        return section  # another package's, which checks them itself
    if kind == "local" or set(section) <= set(LOCAL):
        return LOCAL
    if set(section) <= set(KUBERNETES):  # nothing more has to be imported
        return KUBERNETES
    if canonical_kind(kind) == "kubernetes":
        return kubernetes_keys()
    return (*LOCAL, *kubernetes_keys())  # the other file may say of which kind it is


def _mappings(section: object) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    if isinstance(section, dict):
        yield from ((str(name), value) for name, value in section.items() if isinstance(value, dict))


def _unknown(said: Mapping[Any, Any], known: Collection[str], where: str) -> Iterator[str]:
    for name in said:
        if name not in known:
            from petctl.job.spec.problems import did_you_mean, plain

            near = did_you_mean(str(name), known) or f"; known here: {', '.join(sorted(known))}"
            yield f"{where}{plain(str(name))} is not a known setting{near}"
