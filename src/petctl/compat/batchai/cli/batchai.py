"""The entry of `batchai`: the verbs and flags of `az batchai`, with petctl underneath. And of the `az` stand-in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from petctl.compat.batchai.cli.verbs import BATCHAI, OWN, overview, start

if TYPE_CHECKING:
    import click

    batchai: click.Group


def main(words: Sequence[str] | None = None, program: str = "batchai") -> NoReturn:
    """Runs one command line of `batchai`, or `az`, and exits with its code."""

    def root() -> click.Command:
        from petctl.compat.batchai.cli.base_command import VerbGroup

        beyond = f"'{program} --help' lists the commands."
        if program == "az":
            beyond = (
                "This az is petctl's stand-in and covers only what a recipe of Batch AI types (az --help). "
                "For the real one: pip install azure-cli, and remove this one: petctl compat uninstall az"
            )
        return VerbGroup(program, verbs=OWN[program], beyond=beyond, help="See overview.")

    def spread(words: Sequence[str]) -> list[str]:
        from petctl.compat.batchai.cli import base_command

        return base_command.spread(words)

    start(program, words, overview, root, spread)


def __getattr__(name: str) -> object:
    if name == "batchai":  # the same verbs below `az`
        from petctl.compat.batchai.cli.base_command import VerbGroup

        return VerbGroup("batchai", verbs=BATCHAI, help="Batch AI, on this machine and on petctl's clusters.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "__main__":
    main()
