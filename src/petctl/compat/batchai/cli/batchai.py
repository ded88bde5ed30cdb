"""The entry of `batchai`: the verbs and flags of `az batchai`, with petctl underneath."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from petctl.compat.batchai.cli.verbs import BATCHAI, OWN, answer_at_once, overview

if TYPE_CHECKING:
    import click

    batchai: click.Group


def main(words: Sequence[str] | None = None) -> NoReturn:
    """Runs one command line of `batchai` and exits with its code."""
    start("batchai", words)


def start(program: str, words: Sequence[str] | None) -> NoReturn:
    """A front end: help and version at once, the rest by click."""
    given = list(sys.argv[1:] if words is None else words)
    answer_at_once(program, given, overview)
    from petctl.compat.batchai.cli.base_command import VerbGroup, run

    beyond = f"'{program} --help' lists the commands."
    if program == "az":
        beyond = (
            "This az is petctl's stand-in and covers only what a recipe of Batch AI types (az --help). "
            "For the real one: pip install azure-cli, and remove this one: petctl compat uninstall az"
        )
    run(program, VerbGroup(program, verbs=OWN[program], beyond=beyond, help="See overview."), given)


def __getattr__(name: str) -> object:
    if name == "batchai":  # the same verbs below `az`
        from petctl.compat.batchai.cli.base_command import VerbGroup

        return VerbGroup("batchai", verbs=BATCHAI, help="Batch AI, on this machine and on petctl's clusters.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "__main__":
    main()
