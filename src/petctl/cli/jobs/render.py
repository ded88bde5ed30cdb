"""petctl render: exactly what would be started."""

from __future__ import annotations

from typing import Any

import click

from petctl.cli.job_options import CONTEXT, JobCommand, build_job, job_options
from petctl.console.commands import examples


@click.command(
    "render",
    cls=JobCommand,
    context_settings=CONTEXT,
    epilog=examples(
        "petctl render -n 1:3 train.py --lr 0.1",
        "petctl render -o json job.yaml",
        "petctl render -c k8s --with-secrets train.py | kubectl apply -f -",
    ),
)
@click.option("--with-secrets", is_flag=True, help="Include the job's token and keys, so that it can be started.")
@job_options("yaml", "json")
def command(with_secrets: bool, **options: Any) -> None:
    """Show what would be started, without starting it; stored secrets are named, never shown.

    Takes the same options and words as 'petctl run'. For Kubernetes it prints the objects that the job consists of.
    """
    from petctl.jobs import render

    text = render(build_job(options), options["cluster"], options["output"], with_secrets)
    if with_secrets:
        click.echo("petctl: this contains the job's token and keys: keep it private, and start it only once", err=True)
    click.echo(text, nl=False)
