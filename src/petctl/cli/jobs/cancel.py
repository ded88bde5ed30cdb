"""petctl cancel: stop jobs."""

from __future__ import annotations

import click

from petctl.cli.options import find_jobs, jobs_argument
from petctl.console.commands import examples, output_option, print_json
from petctl.errors import UsageError


@click.command(
    "cancel",
    epilog=examples(
        "petctl cancel mnist-3f9k", "petctl cancel --kill mnist-3f9k", "petctl cancel $(petctl list -q --state queued)"
    ),
)
@jobs_argument
@click.option("--kill", is_flag=True, help="Send SIGKILL at once, without SIGTERM and grace.")
@output_option()
def command(jobs: tuple[str, ...], kill: bool, output: str) -> None:
    """Stop jobs. Their workers get SIGTERM and the job's grace; its files stay."""
    if not jobs:
        raise UsageError("no job given ('petctl list' shows them)")
    handles = find_jobs(jobs)
    for handle in handles:
        sentence = handle.cancel(kill=kill)
        if output != "json":
            click.echo(f"{handle.id}: {sentence}")
    if output == "json":
        print_json([handle.status().to_dict() for handle in handles])
