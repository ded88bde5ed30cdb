"""act abort, ssh: ending runs, and looking into one that runs."""

from __future__ import annotations

import re

import click

from petctl.cli.options import complete_job
from petctl.compat.act import runs as acts
from petctl.compat.act.cli.flags import Flags, verb
from petctl.compat.batchai.cli.base_command import say
from petctl.config.settings import cluster_names
from petctl.console.commands import print_json
from petctl.errors import NotFound, PetctlError
from petctl.jobs import list_jobs

SHELL = "command -v bash > /dev/null && exec bash; exec sh"
_ADDRESS = re.compile(r"\d{1,3}(\.\d{1,3}){3}|[0-9a-fA-F]*:[0-9a-fA-F:]+")


@verb(
    "abort",
    "act abort jianfw_1563257309_60ce2fc7",
    "act a 60ce2fc7 assets/jianfw_1563257309_5f0e2a11/",
    heeds=("output",),
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_job)
def abort(said: Flags, runs: tuple[str, ...]) -> None:
    """End runs; a unique end of the id is enough. Their logs stay."""
    told: dict[str, str] = {}
    try:
        for handle in acts.find_runs(runs):
            told[handle.id] = acts.abort(handle.id)
            if not said.json:
                say(told[handle.id])
    finally:
        if said.json and told:
            print_json(told)


@verb(
    "ssh",
    "act ssh 60ce2fc7                                   a shell, where rank 0 runs",
    "act ssh 60ce2fc7 nvidia-smi",
    "act ssh 10.0.0.5                                   the run that has a node there",
    command_behind=True,
)
@click.argument("run", metavar="RUN|IP", shell_complete=complete_job)
@click.argument("words", metavar="[COMMAND...]", nargs=-1, type=click.UNPROCESSED)
def ssh(said: Flags, run: str, words: tuple[str, ...]) -> int:
    """A shell on a node of a run, or a command there; exits with its exit code. Needs no sshd, key or password."""
    argv = list(words[1:] if words[:1] == ("--",) else words) or ["/bin/sh", "-c", SHELL]
    if _ADDRESS.fullmatch(run):
        found, node = _at(run)
        return acts.find_run(found).exec(argv, node=node)
    return acts.find_run(run).exec(argv)


def _at(address: str) -> tuple[str, str]:
    """The run, and its node, that is at an address."""
    places: list[str] = []
    for cluster in dict.fromkeys(["local", *cluster_names()]):
        try:
            running = [job for job in list_jobs(cluster) if not job.final]
        except PetctlError:  # away: the node may be at another
            continue
        for job in running:
            for node in job.nodes:
                if node.address.rpartition(":")[0] == address or node.address == address:
                    return job.id, node.name
                places.append(f"{node.address} ({job.id})")
    raise NotFound(f"no run has a node at {address}" + (f"; there are {', '.join(places)}" if places else ""))
