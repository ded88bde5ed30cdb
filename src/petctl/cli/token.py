"""petctl token: the file with which a machine joins a job by hand."""

from __future__ import annotations

import click

from petctl.cli.options import examples, job_argument, output_option, print_json


@click.command(
    "token",
    epilog=examples(
        "petctl token mnist-3f9k                              writes mnist-3f9k.join.json",
        "petctl token mnist-3f9k --address 10.0.0.5 --file join.json --agent petctl-agent.pyz",
        "python petctl-agent.pyz join --file join.json        on the other machine",
    ),
)
@job_argument
@click.option("--file", "path", metavar="FILE", type=click.Path(dir_okay=False), help="Where to write it (mode 0600).")
@click.option("--address", metavar="HOST", help="How the other machine reaches this one.")
@click.option("--agent", metavar="FILE", type=click.Path(dir_okay=False), help="Also write the agent, one file.")
@output_option()
def command(job: str, path: str | None, address: str | None, agent: str | None, output: str) -> None:
    """Write the file with which another machine joins a job. It holds the job's token: keep it private."""
    from petctl.jobs import get

    handle = get(job)
    path = path or f"{handle.id}.join.json"
    handle.token(path, address=address)
    if agent is not None:
        from pathlib import Path

        from petctl.clusters.archive import build_agent

        build_agent(Path(agent))
    if output == "json":
        print_json({"id": handle.id, "file": path, "agent": agent})
        return
    click.echo(path)
    click.echo(f"petctl: on the other machine: python {agent or 'petctl-agent.pyz'} join --file {path}", err=True)
    if agent is None:
        click.echo("petctl: --agent petctl-agent.pyz writes the agent, too", err=True)
