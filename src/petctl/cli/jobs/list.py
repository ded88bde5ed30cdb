"""petctl list: the jobs, newest first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from petctl.cli.options import print_unanswered
from petctl.cli.terminal.text import duration
from petctl.console.commands import examples, output_option, print_json

if TYPE_CHECKING:
    from petctl.jobs import Status

SHOWN = 5  # ids in one sentence
STATES = ("pending", "queued", "starting", "running", "recovering", "succeeded", "failed", "cancelled", "lost")


@click.command(
    "list",
    epilog=examples(
        "petctl list",
        "petctl list --state running --state recovering",
        "petctl list -c local",
        "petctl rm $(petctl list -c local -q --state succeeded)",
        "petctl list -o json",
    ),
)
@click.option("-c", "--cluster", metavar="NAME", help="List only jobs of this cluster.")
@click.option("--state", "states", type=click.Choice(STATES), multiple=True, help="List only this state; repeatable.")
@click.option("-q", "--quiet", is_flag=True, help="Print only ids.")
@output_option()
def command(cluster: str | None, states: tuple[str, ...], quiet: bool, output: str) -> None:
    """List the jobs of this machine and of every other cluster that answers, newest first."""
    from petctl.jobs import list_jobs

    jobs = [job for job in list_jobs(cluster, print_unanswered) if not states or job.state in states]
    if output == "json":
        print_json([job.to_dict() for job in jobs])
    elif quiet:
        for job in jobs:
            click.echo(job.id)
    elif not jobs:
        click.echo("petctl: no jobs" + (" in that state" if states else "; start one: petctl run train.py"), err=True)
    else:
        from petctl.cli.terminal.table import print_table

        now = time.time()
        elsewhere = {job.cluster for job in jobs} - {cluster or "local"}
        rows = [
            [
                job.id,
                *([job.cluster] if elsewhere else []),
                job.state,
                f"{sum(node.state == 'running' for node in job.nodes)}/{job.size.wanted}",
                "-" if job.summary and not job.round and not job.final else str(job.round),
                duration(now - job.submitted) if job.submitted else "",
                job.command,
            ]
            for job in jobs
        ]
        print_table(["ID", *(["CLUSTER"] if elsewhere else []), "STATE", "NODES", "ROUND", "AGE", "COMMAND"], rows)
        _tell_unattended([job for job in jobs if job.unattended])


def _tell_unattended(jobs: Sequence[Status]) -> None:
    """Says what to type for jobs that no process goes on with."""
    lost = [job.id for job in jobs if job.final]
    if lost:
        left = f"{' '.join(lost[:SHOWN])}{' ...' if len(lost) > SHOWN else ''}"
        click.echo(f"petctl: to end what is left of lost jobs: petctl cancel {left}", err=True)
    stopped = {job.cluster: job.id for job in jobs if not job.final}  # the first in the queue is listed last
    for cluster, job_id in stopped.items():
        click.echo(f"petctl: the queue of {cluster} has stopped; petctl wait {job_id} starts it again", err=True)
