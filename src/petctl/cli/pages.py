"""petctl help: the documentation, offline. Its pages travel in the wheel; in a clone they are those of docs/."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

import petctl
from petctl.cli.group import advice, verbs_of_others
from petctl.cli.verbs import VERBS, overview
from petctl.console.commands import examples

_PACKAGE = Path(petctl.__file__).parent


def pages() -> dict[str, Path]:
    """The pages by what one types: NAME, or NAME.md where a command has the name."""
    installed = _PACKAGE / "docs"
    found = sorted((installed if installed.is_dir() else _PACKAGE.parents[1] / "docs").glob("*.md"))
    return {page.name if page.stem in VERBS else page.stem: page for page in found}


def _contents() -> str:
    lines = [overview()]
    if others := verbs_of_others():
        lines += ["", f"Commands of other packages: {', '.join(others)}"]
    lines += ["", "Pages, shown by 'petctl help PAGE':"]
    for name, page in pages().items():
        with open(page, encoding="utf-8") as file:
            lines.append(f"  {name:<22}{file.readline().lstrip('# ').rstrip()}")
    return "\n".join(lines)


@click.command(
    "help",
    epilog=examples(
        "petctl help                          the commands and the pages",
        "petctl help first-ten-minutes        a page",
        "petctl help data.md                  a page that is called as a command",
        "petctl help cluster create           a command",
    ),
)
@click.argument("topic", metavar="[TOPIC]...", nargs=-1)
def command(topic: tuple[str, ...]) -> None:
    """Show a page of the documentation, offline, or the options of a command.

    Without a TOPIC all commands and pages are listed. A page is formatted on a terminal, and plain text elsewhere.
    """
    if not topic:
        click.echo(_contents())
        return
    known, name = pages(), " ".join(topic)
    page = known.get(name) or known.get(name.removesuffix(".md"))
    if page is None and topic[0] in verbs_of_others():
        click.get_current_context().find_root().command.main([*topic, "--help"], "petctl", standalone_mode=False)
        return
    if page is None:
        raise click.UsageError(f"unknown page or command {name!r}.{advice(name, [*VERBS, *verbs_of_others(), *known])}")
    text = page.read_text(encoding="utf-8")
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        click.echo(text, nl=False)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    from petctl.console.terminal import raw

    Console(file=raw(sys.stdout), width=min(Console().width, 120)).print(Markdown(text, hyperlinks=False))
