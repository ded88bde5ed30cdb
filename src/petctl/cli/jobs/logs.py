"""petctl logs: what the workers wrote."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Iterator

import click

from petctl.cli.options import job_argument
from petctl.console.commands import examples, output_option
from petctl.errors import NotFound

if TYPE_CHECKING:
    from petctl.jobs import LogLine, Status


@click.command(
    "logs",
    epilog=examples(
        "petctl logs mnist-3f9k",
        "petctl logs -f --tail 20 mnist-3f9k",
        "petctl logs --rank 1 --round 2 mnist-3f9k",
        "petctl logs --stream err mnist-3f9k",
    ),
)
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Follow until the job ends; Ctrl-C only stops following.")
@click.option("--rank", metavar="R", type=click.IntRange(min=0), help="Show only this rank.")
@click.option("--node", metavar="NODE", help="Show only this node.")
@click.option("--round", "round_", metavar="K", type=click.IntRange(min=1), help="Show only this round.")
@click.option(
    "--tail",
    metavar="N",
    type=click.IntRange(min=0),
    help="Start at the last N lines of each worker, in the newest round.",
)
@click.option("--stream", type=click.Choice(["out", "err"]), help="Show only stdout or stderr.")
@output_option()
def command(
    job: str,
    follow: bool,
    rank: int | None,
    node: str | None,
    round_: int | None,
    tail: int | None,
    stream: str | None,
    output: str,
) -> int:
    """Show or follow the workers' output: their stdout on stdout, their stderr on stderr.

    With more than one worker each line begins with its rank, or with its task's name where the job has roles. With
    -o json every line is one JSON document on stdout.
    """
    from petctl.cli.terminal.follow import copy_lines
    from petctl.cli.terminal.text import many_workers, task_names
    from petctl.console.screen import Screen
    from petctl.jobs import get

    handle = get(job, patient=follow)
    if rank is not None or round_ is not None:
        _check_place(handle.status(), rank, round_, follow)
    lines = handle.logs(follow=follow, rank=rank, node=node, round=round_, tail=tail, blocks=output != "json")
    if stream:
        lines = (line for line in lines if line.stream == stream)
    try:
        if output == "json":
            _print_json_lines(lines)
        else:
            status = handle.status()
            names = task_names(status.roles, status.size.min, status.size.max)
            screen = Screen(prefix=rank is None and many_workers(status), names=names, verbatim=True)
            copy_lines(lines, screen)
    except KeyboardInterrupt:
        return 130
    return 0


def _check_place(status: Status, rank: int | None, round_: int | None, follow: bool) -> None:
    """NotFound where the job has no such rank or round; one that is followed may still get it."""
    rounds, count = status.rounds, max(status.round, status.rounds_run)
    coming = follow and not status.final
    if round_ is not None and round_ > count and not coming:
        known = f"its last is {count}" if count else "none has run"
        raise NotFound(f"{status.id} has no round {round_}; {known}")
    ranks = max((status.world_size, *(past.world_size for past in rounds)))
    per_node = max((-(-past.world_size // max(1, len(past.nodes))) for past in rounds), default=0)
    possible = max(ranks, status.size.max * per_node) if coming else ranks
    if rank is None or rank < possible or (coming and not rounds):
        return
    known = f"its ranks are 0 to {possible - 1}" if possible > 1 else "its only rank is 0"
    raise NotFound(f"{status.id} has no rank {rank}; {known if possible else 'no worker has run'}")


def _print_json_lines(lines: Iterator[LogLine]) -> None:
    for line in lines:
        document = {
            "round": line.round,
            "node": line.node,
            "rank": line.rank,
            "stream": line.stream,
            "text": line.text.decode(errors="replace").removesuffix("\n"),
        }
        click.echo(json.dumps(document))
