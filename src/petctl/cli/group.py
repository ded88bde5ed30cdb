"""The click group: finds a verb's file by its name, when it is typed.

`petctl.cli.ROOM.NAME` holds the click command called `command`; verbs that are one kind's alone are in the kind's
package (`petctl.kinds`). Nothing of a verb is imported before it is needed.
"""

from __future__ import annotations

import difflib
import importlib
import os
from collections.abc import Collection
from typing import cast

import click

from petctl import __version__
from petctl.cli.verbs import MODULES, VERBS, overview
from petctl.kinds import COMMANDS, brought_verbs, load_command


def verbs_of_others() -> list[str]:
    """Verbs that other packages bring; none of them takes the place of petctl's own."""
    return [verb for verb in brought_verbs() if verb not in VERBS]


class LazyGroup(click.Group):
    """A group whose commands are files."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*VERBS, *verbs_of_others()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in VERBS and cmd_name not in COMMANDS:
            module = MODULES.get(cmd_name, f"petctl.cli.jobs.{cmd_name}")
            return cast(click.Command, importlib.import_module(module).command)
        return cast("click.Command | None", load_command(cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if word in VERBS or word.startswith("-") or word in verbs_of_others():
            return super().resolve_command(ctx, args)
        raise click.UsageError(f"unknown command {word!r}.{advice(word, self.list_commands(ctx))}", ctx)

    def get_help(self, ctx: click.Context) -> str:
        return overview()


OF_OLDER_PROGRAMS = {
    *("setup", "configure", "run_job", "kill_job", "check_status", "delete_resources"),
    *("upload_storage", "storage_secret", "docker_secret"),
}


def advice(word: str, known: Collection[str] = tuple(VERBS)) -> str:
    """The end of a message about a word that is none of those that are known: what was meant, as far as one can see."""
    if word in OF_OLDER_PROGRAMS:
        return " It was a command of petctl for AWS or Azure; see docs/migrating.md for its new name"
    if close := difflib.get_close_matches(word, known):
        return f" Did you mean {' or '.join(close)}?"
    if word.endswith((".py", ".yaml", ".yml", ".json")):
        return f" To start it: petctl run {word}"
    return ""


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, "--version", message="petctl %(version)s")
@click.option("-v", "--verbose", is_flag=True, help="Log what petctl does; $PETCTL_LOG chooses by module.")
def petctl(verbose: bool) -> None:
    """Portable elastic training."""
    wanted = os.environ.get("PETCTL_LOG", "")
    if verbose or wanted:
        import logging

        from petctl.log_setup import begin_log, parse_levels

        level, modules = parse_levels(wanted)
        begin_log(logging.DEBUG if verbose else logging.WARNING if level is None else level, modules)
