"""petctl resubmit: run a job again, exactly as it ran or with the code as it is now."""

from __future__ import annotations

import click

from petctl.cli.jobs.submit import announce
from petctl.console.commands import examples, output_option


@click.command(
    "resubmit",
    epilog=examples(
        "petctl resubmit 3f9k",
        "petctl resubmit 3f9k --new-code",
        "petctl resubmit 3f9k --resume                from its last checkpoint",
        "id=$(petctl resubmit -q 3f9k) && petctl wait $id",
    ),
)
@click.argument("job")
@click.option("-c", "--cluster", metavar="NAME", help="Run on this cluster instead.")
@click.option("--new-code", is_flag=True, help="Use today's code instead of the job's.")
@click.option("--resume", is_flag=True, help="Continue from the job's checkpoints.")
@click.option("-q", "--quiet", is_flag=True, help="Only print errors.")
@output_option()
def command(job: str, cluster: str | None, new_code: bool, resume: bool, quiet: bool, output: str) -> int:
    """Start a job again that was submitted before: the same command, environment and size, as a new job.

    A job that was submitted with code runs from the same snapshot, whatever has become of the files since; with
    --new-code a new one is taken from the same place. With --resume it has the first job's PETCTL_CHECKPOINT_DIR, which
    must have ended; otherwise the first job is left as it is.
    """
    from petctl.jobs import resubmit

    return announce(resubmit(job, cluster=cluster, new_code=new_code, resume=resume), output == "json", quiet)
