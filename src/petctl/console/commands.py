"""Pieces of click commands, so that all of them read and behave the same."""

from __future__ import annotations

import json
from typing import Any, Callable, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Verbs(click.Group):
    """Verbs under a verb; its help tells what each of them does in a whole sentence."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        verbs = sorted(self.commands.items())
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.get_short_help_str(limit=300)) for name, verb in verbs])


def examples(*lines: str) -> str:
    """The block at the end of a verb's help; \\b keeps click from joining the lines."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def _note_json(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if value == "json" and ctx.find_root().obj is not None:
        ctx.find_root().obj.json = True
    return value


def output_option(*choices: str) -> Callable[[Decorated], Decorated]:
    """-o: the first choice is the default. Errors follow it, see failures.py."""
    choices = choices or ("text", "json")
    return click.option(
        "-o",
        "--output",
        type=click.Choice(choices),
        default=choices[0],
        show_default=True,
        is_eager=True,
        callback=_note_json,
        help="json: one JSON document on stdout, errors as JSON on stderr.",
    )


def print_json(document: object) -> None:
    """The one JSON document of a command."""
    click.echo(json.dumps(document, indent=2, default=str))


def wants_json() -> bool:
    """Whether the command that runs was told -o json."""
    context = click.get_current_context(silent=True)
    return bool(context and getattr(context.find_root().obj, "json", False))
