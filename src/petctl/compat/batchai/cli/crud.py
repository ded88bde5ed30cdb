"""The verbs that every resource of a workspace has, and workspaces themselves: show, list, delete."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from petctl.compat.batchai.cli import options
from petctl.compat.batchai.cli.base_command import NOTHING, background, confirm, leaf
from petctl.compat.batchai.cli.printing import Row

if TYPE_CHECKING:
    from petctl.compat.batchai.service.names import Address


class Resource(NamedTuple):
    """Resources of one kind, in the words of the command line."""

    kind: str  # as ids have it
    verb: str
    flags: tuple[str, ...]  # that name one
    row: Row
    shown: Callable[[Address], object]
    place: str  # an example of where they are
    name: str  # ... and of one
    told: str = ""  # what `show` tells
    along: str = ""  # what goes along with a deleted one

    @property
    def noun(self) -> str:
        """What people call one."""
        return self.verb.replace("-", " ")


def add_usual_verbs(parent: click.Group, resource: Resource) -> None:
    """All three."""
    kind, noun, verb = resource.kind, resource.noun, resource.verb
    one = " ".join(part for part in (f"-n {resource.name}", resource.place) if part)

    @leaf(parent, "show", f"batchai {verb} show {one}", row=resource.row)
    @options.addressed(kind, *resource.flags, ids=True)
    def show(address: Address) -> object:
        return resource.shown(address)

    @leaf(parent, "list", f"batchai {verb} list {resource.place} -o table".replace("  ", " "), row=resource.row)
    @options.surrounded(kind)
    def list_(near: list[Address]) -> object:
        return [found for place in near for found in _listed(resource, place)]

    @leaf(parent, "delete", f"batchai {verb} delete {one} -y")
    @options.addressed(kind, *resource.flags, ids=True)
    @options.yes_option
    @options.no_wait_option
    def delete(address: Address, yes: bool, no_wait: bool) -> object:
        from petctl.compat.batchai.service.names import id_of
        from petctl.compat.batchai.service.removal import delete as remove

        trail = options.record(kind, address)[0]
        confirm(f"Delete {noun} {trail[-1][1]!r}{resource.along}?", yes)
        if no_wait:
            background([verb, "delete", "-y", "--ids", id_of(kind, address)])
        else:
            remove(options.home(), kind, address)
        return NOTHING

    article = "an" if noun[0] in "aeiou" else "a"
    inside = {"workspaces": "all groups, or of one", "jobs": "an experiment"}.get(kind, "a workspace")
    for command, sentence in (
        (show, f"Show {article} {noun}{resource.told}."),
        (list_, f"List the {noun}s of {inside}."),
        (delete, f"Delete {article} {noun}{resource.along}."),
    ):
        command.help = sentence


def _listed(resource: Resource, near: Address) -> Iterator[Any]:
    from petctl.compat.batchai.service.resource_store import Missing, Tree
    from petctl.compat.batchai.service.resources import trail_of

    tree, outer = Tree(options.home()), trail_of(resource.kind, near)[:-1]
    tree.read(outer)
    for name in tree.names(outer, resource.kind):
        try:
            yield resource.shown(options.filled(resource.kind, near._replace(name=name)))
        except Missing:
            continue  # deleted since
