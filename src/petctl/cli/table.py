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


LEAST = 10  # columns that the widest one keeps


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """One table to stdout. On a narrow terminal the widest column is cut, and lines are broken before any other is."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        click.echo(table(header, rows))
        return
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    view = Table(box=None, pad_edge=False, header_style="dim")
    widths = [max(map(cell_len, column)) for column in zip(header, *rows, strict=True)]
    widest = widths.index(max(widths))
    others = sum(widths) - widths[widest] + 2 * (len(widths) - 1)
    widths[widest] = min(widths[widest], max(LEAST, Console().width - others))
    for name, width in zip(header, widths, strict=True):
        view.add_column(name, overflow="ellipsis", no_wrap=True, width=width)
    for row in rows:
        view.add_row(*(Text(cell, style=STATE_STYLES.get(cell, "")) for cell in row))
    Console(width=max(Console().width, others + widths[widest])).print(view)
