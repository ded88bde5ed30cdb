"""petctl status: one job, as people read it or as JSON."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import click

from petctl.cli.options import job_argument
from petctl.console.commands import examples, output_option, print_json
from petctl.console.terminal import raw
from petctl.errors import PetctlError

if TYPE_CHECKING:
    from petctl.jobs import JobHandle, Status

REDRAW_SECONDS = 1.0
QUIET_SECONDS = 3600.0


@click.command(
    "status",
    epilog=examples("petctl status mnist-3f9k", "petctl status --watch 3f9k", "petctl status -o json 3f9k"),
)
@job_argument
@click.option("-w", "--watch", is_flag=True, help="Show every change until the job ends (json: one document per line).")
@output_option()
def command(job: str, watch: bool, output: str) -> None:
    """Show one job: state, nodes, rounds and what they cost, exit code, root cause."""
    from petctl.jobs import get

    handle = get(job, patient=watch)
    if watch:
        _watch(handle, output)
    elif output == "json":
        print_json(handle.status().to_dict())
    else:
        click.echo(_page(handle.status()))


def _page(status: Status) -> str:
    from petctl.cli.terminal.status_view import job_page

    return job_page(status, colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ)


def _watch(handle: JobHandle, output: str) -> None:
    """On a terminal the page is drawn anew in place, also to let the clocks go on; piped, every change is one line."""
    from petctl.cli.terminal.follow import status_line

    terminal = sys.stdout.isatty() and output != "json"
    status = handle.watch(None, QUIET_SECONDS)
    while True:
        if terminal:
            raw(sys.stdout).write("\x1b[H\x1b[2J")
            text = _page(status)
        else:
            text = json.dumps(status.to_dict()) if output == "json" else status_line(status)
        click.echo(text)
        if status.final:
            return
        status = _next(handle, status) if terminal else handle.watch(status, QUIET_SECONDS)


def _next(handle: JobHandle, status: Status) -> Status:
    """After a second at most, unless the cluster is away: then when it is back."""
    from petctl.clusters.patience import AWAY

    try:
        return handle.watch(status, REDRAW_SECONDS)
    except PetctlError as error:
        if error.code != AWAY:
            raise
        return handle.watch(None, QUIET_SECONDS)
