"""petctl token: the file with which a machine joins a job by hand."""

from __future__ import annotations

import click

from petctl.cli.options import job_argument
from petctl.console.commands import examples, output_option, print_json
from petctl.errors import PetctlError


@click.command(
    "token",
    epilog=examples(
        "petctl token mnist-3f9k                              writes mnist-3f9k.join.json",
        "petctl token mnist-3f9k --address 10.0.0.5 --file join.json --agent petctl-agent.pyz",
        "python petctl-agent.pyz join --file join.json        on the other machine",
    ),
)
@job_argument
@click.option("--file", "path", metavar="FILE", type=click.Path(dir_okay=False), help="Write it to FILE (mode 0600).")
@click.option("--address", metavar="HOST", help="Address of this machine for the other one.")
@click.option("--agent", metavar="FILE", type=click.Path(dir_okay=False), help="Also write the agent to FILE.")
@output_option()
def command(job: str, path: str | None, address: str | None, agent: str | None, output: str) -> None:
    """Write the join file for another machine. It holds the job's token: keep it private."""
    from petctl.jobs import get

    handle = get(job)
    path = path or f"{handle.id}.join.json"
    try:
        handle.token(path, address=address)
    except OSError as error:
        raise PetctlError(f"cannot write {path}: {error.strerror}; choose another file with --file") from None
    if agent is not None:
        from pathlib import Path

        from petctl.clusters.agent_archive import build_agent

        build_agent(Path(agent))
    if output == "json":
        print_json({"id": handle.id, "file": path, "agent": agent})
        return
    click.echo(path)
    if _is_for_here(path):
        click.echo(
            f"petctl: {handle.id} listens only on this machine, so the file works only here; for other machines "
            f"submit the job with --listen 0.0.0.0",
            err=True,
        )
        return
    click.echo(f"petctl: on the other machine: python {agent or 'petctl-agent.pyz'} join --file {path}", err=True)
    if agent is None:
        click.echo("petctl: to write the agent as well: --agent petctl-agent.pyz", err=True)


def _is_for_here(path: str) -> bool:
    """Whether the coordinator is named by a file of this machine."""
    from petctl.rendezvous.net.join_file import read_join_file

    return "file" in read_join_file(path).locator
