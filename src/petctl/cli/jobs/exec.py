"""petctl exec: a command on a node of a job."""

from __future__ import annotations

import click

from petctl.cli.options import complete_job
from petctl.console.commands import examples
from petctl.errors import UsageError


@click.command(
    "exec",
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "petctl exec mnist-3f9k -- nvidia-smi",
        "petctl exec --node 1 mnist-3f9k -- ls -l checkpoints",
    ),
)
@click.option("--node", metavar="NODE", help="Node; default: the first running one.")
@click.argument("job", metavar="JOB", shell_complete=complete_job)
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, type=click.UNPROCESSED)
def command(node: str | None, job: str, words: tuple[str, ...]) -> int:
    """Run a command on a node of a job, in the job's directory and environment; exits with its exit code."""
    argv = list(words[1:] if words[:1] == ("--",) else words)
    if not argv:
        raise UsageError(f"nothing to run: give a command, for example: petctl exec {job} -- nvidia-smi")
    from petctl.jobs import get

    return get(job).exec(argv, node=node)
