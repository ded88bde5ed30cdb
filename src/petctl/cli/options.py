"""Arguments that name jobs, and completing and finding those, the same for every verb."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from petctl.console.commands import wants_json

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from petctl.jobs import JobHandle


def complete_job(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Job ids for the shell; a unique ending completes too. Silent on any error: the user is typing."""
    from click.shell_completion import CompletionItem

    try:
        from petctl.jobs import list_jobs

        jobs = list_jobs("local")  # the user is typing: no other cluster is waited for
    except Exception:
        return []
    jobs = [job for job in jobs if job.id.startswith(incomplete) or job.id.endswith(incomplete)]
    return [CompletionItem(job.id, help=job.state) for job in jobs]


job_argument = click.argument("job", metavar="JOB", shell_complete=complete_job)
jobs_argument = click.argument("jobs", metavar="JOB...", nargs=-1, shell_complete=complete_job)


def print_unanswered(name: str, error: Exception) -> None:
    """Says in one line on stderr why a cluster's jobs are missing, and how to ask it alone."""
    reason, again = " ".join(str(error).split()), f"petctl list -c {name}"
    if wants_json():
        click.echo(json.dumps({"cluster": name, "error": reason, "next": again}), err=True)
    else:
        end = "" if reason.endswith((".", "?")) else "."
        click.echo(f"petctl: cluster {name}: {reason}{end} To ask it alone: {again}", err=True)


def find_jobs(references: tuple[str, ...], patient: bool = False) -> list[JobHandle]:
    """All of the named jobs, or an error before anything is done to the first of them; `patient`: as in `get`."""
    from petctl.jobs import get

    handles = [get(reference, patient) for reference in references]
    return list({handle.id: handle for handle in handles}.values())
