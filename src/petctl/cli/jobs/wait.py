"""petctl wait: until the named jobs have ended."""

from __future__ import annotations

import time

import click

from petctl.cli.options import find_jobs, jobs_argument
from petctl.console.commands import examples, output_option, print_json
from petctl.errors import UsageError

TIMED_OUT = 3  # not 124: that is a job over its own time limit


@click.command(
    "wait",
    epilog=examples(
        "petctl wait mnist-3f9k",
        "petctl wait --timeout 10m $(petctl list -q --state running)",
    ),
)
@jobs_argument
@click.option("--timeout", metavar="TIME", help="Give up after: 90s, 10m; exit code 3, jobs keep running.")
@output_option()
def command(jobs: tuple[str, ...], timeout: str | None, output: str) -> int:
    """Wait for jobs, exit with their exit code.

    With several jobs: the code of the first, in the given order, that did not succeed.
    """
    from petctl.cli.terminal.ending import exit_code

    if not jobs:
        raise UsageError("no job given ('petctl list' shows them)")
    limit = _seconds(timeout)
    ends_at = None if limit is None else time.monotonic() + limit
    handles = find_jobs(jobs, patient=True)
    statuses = []
    for handle in handles:
        try:
            statuses.append(handle.wait(None if ends_at is None else max(0.0, ends_at - time.monotonic())))
        except TimeoutError:
            statuses.append(handle.status())
    if output == "json":
        print_json([status.to_dict() for status in statuses])
    late = [status for status in statuses if not status.final]
    if late:
        names = ", ".join(f"{status.id} ({status.state})" for status in late)
        click.echo(f"petctl: still running after {timeout}: {names}", err=True)
        return TIMED_OUT
    if output != "json":
        for status in statuses:
            if exit_code(status):
                click.echo(f"petctl: job {status.id} {status.state}: {status.sentence}", err=True)
    return next((exit_code(status) for status in statuses if exit_code(status)), 0)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    from petctl.job.spec import parse_duration

    return parse_duration(text)
