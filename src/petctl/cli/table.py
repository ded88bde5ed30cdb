"""Prints a table: by rich on a terminal, as plain aligned columns anywhere else (where rich is not even imported)."""

from __future__ import annotations

import os
import sys
from typing import Sequence

import click

from petctl.cli.text import table

STATE_STYLES = {
    "running": "green",
    "succeeded": "green",
    "recovering": "yellow",
    "starting": "yellow",
    "failed": "red",
    "lost": "red",
    "cancelled": "dim",
    "queued": "cyan",
    "pending": "cyan",
}


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """One table to stdout."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        click.echo(table(header, rows))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    view = Table(box=None, pad_edge=False, header_style="dim")
    for name in header:
        view.add_column(name, overflow="ellipsis", no_wrap=True)
    for row in rows:
        view.add_row(*(Text(cell, style=STATE_STYLES.get(cell, "")) for cell in row))
    Console().print(view)
