"""petctl render: exactly what would be started."""

from __future__ import annotations

from typing import Any

import click

from petctl.cli.job_options import CONTEXT, build_job, job_options
from petctl.cli.options import examples


@click.command(
    "render",
    context_settings=CONTEXT,
    epilog=examples(
        "petctl render -n 1:3 train.py --lr 0.1",
        "petctl render -o json job.yaml",
    ),
)
@job_options("yaml", "json")
def command(**options: Any) -> None:
    """Show what would be started, without starting it; secrets are named, never shown.

    Takes the same options and words as 'petctl run'.
    """
    from petctl.jobs import render

    click.echo(render(build_job(options), options["cluster"], options["output"]), nl=False)
