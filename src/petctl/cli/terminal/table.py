"""Prints a table: by rich on a terminal, as plain aligned columns anywhere else (where rich is not even imported)."""

from __future__ import annotations

import os
import sys
from typing import Sequence

import click

from petctl.cli.terminal.text import table
from petctl.console.terminal import raw, shown

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
    """One table to stdout. On a narrow terminal the widest column but the first, which names the row, is cut, and lines
    are broken before any other is."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        click.echo(table(header, rows))
        return
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = [[shown(cell) for cell in row] for row in rows]
    view = Table(box=None, pad_edge=False, header_style="dim")
    widths = [max(map(cell_len, column)) for column in zip(header, *rows, strict=True)]
    widest = max(range(len(widths)), key=lambda k: (k > 0, widths[k]))
    others = sum(widths) - widths[widest] + 2 * (len(widths) - 1)
    widths[widest] = min(widths[widest], max(LEAST, Console().width - others))
    for name, width in zip(header, widths, strict=True):
        view.add_column(name, overflow="ellipsis", no_wrap=True, width=width)
    for row in rows:
        view.add_row(*(Text(cell, style=STATE_STYLES.get(cell, "")) for cell in row))
    Console(file=raw(sys.stdout), width=max(Console().width, others + widths[widest])).print(view)
