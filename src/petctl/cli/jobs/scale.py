"""petctl scale: another number of nodes for a running job."""

from __future__ import annotations

import click

from petctl.cli.options import job_argument
from petctl.console.commands import examples, output_option, print_json


@click.command("scale", epilog=examples("petctl scale mnist-3f9k 3", "petctl scale 3f9k 1"))
@job_argument
@click.argument("nodes", metavar="N", type=click.IntRange(min=1))
@output_option()
def command(job: str, nodes: int, output: str) -> None:
    """Change the number of nodes of a running job, within its min and max.

    Costs one round; uses up no restart.
    """
    from petctl.jobs import get

    handle = get(job)
    sentence = handle.scale(nodes)
    if output == "json":
        print_json({"id": handle.id, "wanted": nodes, "sentence": sentence})
    else:
        click.echo(f"{handle.id}: {sentence}")
