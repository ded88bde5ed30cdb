"""petctl submit: start a job and return. Its id goes to stdout, so that a shell can keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from petctl.cli.job_file import kept_secrets
from petctl.cli.job_options import CONTEXT, JobCommand, job_options, prepare_job
from petctl.console.commands import examples, print_json

if TYPE_CHECKING:
    from petctl.job.spec.job import Prepared
    from petctl.jobs import JobHandle


@click.command(
    "submit",
    cls=JobCommand,
    context_settings=CONTEXT,
    epilog=examples(
        "petctl submit -n 1:3 train.py --lr 0.1",
        "petctl submit --name nightly job.yaml",
        "petctl submit job.json                           a job file of Batch AI",
        "id=$(petctl submit -q train.py) && petctl wait $id",
    ),
)
@job_options()
def command(**options: Any) -> int:
    """Start a job and return at once; its id is printed.

    COMMAND is a job file (.yaml, .json), a Python script (.py) or any program, as in 'petctl run'.
    """
    handle = submit_job(prepare_job(options), options["cluster"], options["quiet"])
    return announce(handle, options["output"] == "json", options["quiet"])


def submit_job(prepared: Prepared, cluster: str | None, quiet: bool) -> JobHandle:
    """Hands the job over, and its file's own secrets before it; -c wins over the job file."""
    from petctl.jobs import submit

    with kept_secrets(prepared.secrets, cluster or prepared.job.cluster):
        handle = submit(prepared.job, cluster=cluster)
    for note in () if quiet else handle.notes():
        click.echo(f"petctl: {note}", err=True)
    return handle


def announce(handle: JobHandle, as_json: bool, quiet: bool) -> int:
    """The id on stdout, what to do with it on stderr."""
    if as_json:
        print_json({"id": handle.id})
    else:
        click.echo(handle.id)
        if not quiet:
            click.echo(f"petctl: submitted; follow it with: petctl logs -f {handle.id}", err=True)
    return 0
