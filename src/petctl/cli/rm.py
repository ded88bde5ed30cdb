"""petctl rm: finished jobs and everything in their directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from petctl.cli.options import examples, find_jobs, jobs_argument, output_option, print_json
from petctl.errors import UsageError

if TYPE_CHECKING:
    from petctl.jobs import JobHandle


@click.command("rm", epilog=examples("petctl rm mnist-3f9k", "petctl rm --finished", "petctl rm --force mnist-3f9k"))
@jobs_argument
@click.option("--finished", is_flag=True, help="All jobs that have ended.")
@click.option("--force", is_flag=True, help="Kill a job that is still running, then remove it.")
@output_option()
def command(jobs: tuple[str, ...], finished: bool, force: bool, output: str) -> None:
    """Remove finished jobs: logs, outputs and checkpoints in their directories too."""
    from petctl.clusters.base import InUse

    if not jobs and not finished:
        raise UsageError("which job? Name one, or all that have ended with --finished")
    handles = find_jobs(jobs)
    if finished:
        from petctl.jobs import list_jobs

        handles += find_jobs(tuple(status.id for status in list_jobs("local") if status.final))
    unique = {handle.id: handle for handle in handles}
    running = [name for name, handle in unique.items() if not force and not handle.status().final]
    if running:
        names = " ".join(running)
        raise UsageError(f"still going on: {names}. Nothing is removed; first: petctl cancel {names}, or use --force")
    removed = []
    for handle in unique.values():
        try:
            results = _results(handle)
            handle.remove(force=force)
        except InUse as error:
            if not finished:
                raise
            click.echo(f"petctl: {error}: it stays", err=True)
            continue
        removed.append(handle.id)
        if output != "json":
            click.echo(f"{handle.id}: removed{results}")
    if output == "json":
        print_json({"removed": removed})


def _results(handle: JobHandle) -> str:
    """How many result files go with the job: those of its directory, when it is on this machine."""
    from pathlib import Path

    from petctl.errors import PetctlError
    from petctl.supervision.counting import counted

    try:
        directory = handle.status().directory
    except PetctlError:  # damaged: nobody knows what it had
        return ""
    found = sum(path.is_file() for path in Path(directory, "outputs").rglob("*")) if directory else 0
    return f", with {counted(found, 'result file')} in its directory" if found else ""
