"""petctl list: the jobs, newest first."""

from __future__ import annotations

import time

import click

from petctl.cli.options import examples, output_option, print_json, print_unanswered
from petctl.cli.terminal.text import duration

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
@click.option("-c", "--cluster", metavar="NAME", help="Only jobs of this cluster.")
@click.option("--state", "states", type=click.Choice(STATES), multiple=True, help="Only this state; repeatable.")
@click.option("-q", "--quiet", is_flag=True, help="Ids only.")
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
                str(job.round),
                duration(now - job.submitted) if job.submitted else "",
                job.command,
            ]
            for job in jobs
        ]
        print_table(["ID", *(["CLUSTER"] if elsewhere else []), "STATE", "NODES", "ROUND", "AGE", "COMMAND"], rows)
