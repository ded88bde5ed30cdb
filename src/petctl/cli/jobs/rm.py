"""petctl rm: finished jobs and everything in their directories."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from petctl.cli.options import find_jobs, jobs_argument, print_unanswered
from petctl.console.commands import examples, output_option, print_json
from petctl.errors import InternalError, PetctlError, UsageError

if TYPE_CHECKING:
    from petctl.jobs import JobHandle


class Kept(NamedTuple):
    """A job that has ended and was not removed."""

    id: str
    cluster: str
    reason: str


@click.command(
    "rm",
    epilog=examples(
        "petctl rm mnist-3f9k", "petctl rm --finished", "petctl rm --finished -c team", "petctl rm --force mnist-3f9k"
    ),
)
@jobs_argument
@click.option("--finished", is_flag=True, help="Remove all ended jobs of this machine or of -c.")
@click.option("-c", "--cluster", metavar="NAME", help="With --finished: jobs of this cluster.")
@click.option("--force", is_flag=True, help="Kill a job that is still running, then remove it.")
@output_option()
def command(jobs: tuple[str, ...], finished: bool, cluster: str | None, force: bool, output: str) -> int:
    """Remove finished jobs: logs, outputs and checkpoints in their directories too."""
    if not jobs and not finished:
        raise UsageError("no job given: name one, or use --finished for all that have ended")
    if cluster and not finished:
        raise UsageError("-c needs --finished; a job's id is enough to find it on any cluster")
    named = {handle.id: handle for handle in find_jobs(jobs)}
    running = [name for name, handle in named.items() if not force and _is_running(handle)]
    if running:
        names = " ".join(running)
        raise UsageError(f"still running: {names}. Nothing was removed; first: petctl cancel {names}, or use --force")
    ended, kept = _ended(cluster) if finished else ([], [])
    removed, failed = [], False
    for handle in {**{handle.id: handle for handle in ended}, **named}.values():
        try:
            results = _results(handle)
            handle.remove(force=force)
        except PetctlError as error:
            if not finished:
                raise
            failed = failed or not _is_needed(error)
            kept.append(Kept(handle.id, handle.cluster, str(error)))
            if output != "json":
                click.echo(f"petctl: {handle.id} stays: {error}", err=True)
            continue
        removed.append(handle.id)
        if output != "json":
            click.echo(f"{handle.id}: removed{results}")
    if output == "json":
        print_json({"removed": removed, "kept": [one._asdict() for one in kept]})
    return 1 if failed else 0


def _ended(cluster: str | None) -> tuple[list[JobHandle], list[Kept]]:
    """The ended jobs of one cluster; without a name, of this machine, and then those of the others, which stay: a
    namespace may hold jobs of many users."""
    from petctl.clusters.base import find_cluster
    from petctl.home import petctl_home
    from petctl.jobs import JobHandle, list_jobs
    from petctl.jobs.listing import list_by_cluster
    from petctl.kinds import DEFAULT
    from petctl.text import counted

    found = {cluster: list_jobs(cluster)} if cluster else list_by_cluster(print_unanswered)
    where = find_cluster(cluster or DEFAULT, petctl_home())
    handles = [JobHandle(status.id, where) for status in found.pop(cluster or DEFAULT) if status.final]
    kept = []
    for name, statuses in found.items():
        left = [status.id for status in statuses if status.final]
        way = f"petctl rm --finished -c {name}"
        kept += [Kept(job_id, name, f"it is not on this machine; to remove it: {way}") for job_id in left]
        if left:
            click.echo(f"petctl: {counted(len(left), 'ended job')} on cluster {name} not removed; use: {way}", err=True)
    return handles, kept


def _is_running(handle: JobHandle) -> bool:
    try:
        return not handle.status().final
    except InternalError:  # damaged: its cluster refuses to remove one that a process looks after
        return False


def _is_needed(error: PetctlError) -> bool:
    from petctl.clusters.base import InUse

    return isinstance(error, InUse)


def _results(handle: JobHandle) -> str:
    """How many result files go with the job: those of its directory, when it is on this machine."""
    from pathlib import Path

    from petctl.text import counted

    try:
        directory = handle.status().directory
    except PetctlError:  # damaged: nobody knows what it had
        return ""
    found = sum(path.is_file() for path in Path(directory, "outputs").rglob("*")) if directory else 0
    return f", with {counted(found, 'result file')} in its directory" if found else ""
