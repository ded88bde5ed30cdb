"""Making clusters: what a kind supplies beside its backend, so that `petctl cluster create -k KIND` works.

A provisioner is a module or an object with these functions. `petctl.kinds` says which kind has one. The local kind's
is `clusters/local/pools`: shares of this machine.

A view is a dict with `name`, `scale` ({mode: manual, nodes} or {mode: auto, min, max}), `nodes`, `counts` (state ->
nodes), `running` and `queued` (ids of jobs); a kind may add to it. A node's row has name, state, since, job, job_node
and reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from petctl.errors import UsageError
from petctl.kinds import all_kinds, load_provisioner

View = dict[str, Any]


class Provisioner(Protocol):
    """What makes, resizes and deletes the clusters of one kind."""

    def create(self, home: Path, name: str, spec: Mapping[str, Any]) -> View:
        """A new cluster. Of a file, every number and truth value is text as it was written. UsageError
        says what the kind does not understand; a FieldError's problems are told with their places in the file."""

    def names(self, home: Path) -> list[str]:
        """Of all that were made."""

    def read(self, home: Path, name: str) -> View:
        """One of them; NotFound."""

    def read_all(self, home: Path) -> list[View]:
        """Every one."""

    def nodes(self, home: Path, name: str) -> list[dict[str, Any]]:
        """Its nodes, and the jobs that have them."""

    def change(self, home: Path, name: str, **wanted: Any) -> View:
        """Another size (`nodes`, or `min` and `max` with `idle_time`), and what becomes of jobs (`deallocation`)."""

    def reset(self, home: Path, name: str, node: str) -> dict[str, Any]:
        """Sets a node up again."""

    def delete(self, home: Path, name: str, force: bool = False) -> None:
        """With its nodes; `force`: cancels its jobs first."""


def find_provisioner(kind: str) -> Provisioner:
    """The provisioner of a kind of clusters; UsageError where it has none."""
    found: Provisioner | None = load_provisioner(kind)
    if found is None:
        can = ", ".join(kind for kind in all_kinds() if load_provisioner(kind) is not None)
        raise UsageError(f"petctl cannot create {kind} clusters; kinds that it can create: {can}")
    return found
