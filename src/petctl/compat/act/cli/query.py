"""act query and its kin, blame, summary, parse: how runs stand, what they wrote, why they failed."""

from __future__ import annotations

import pprint
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from petctl.cli.jobs.diagnose import diagnosis_lines
from petctl.cli.options import complete_job
from petctl.compat.act import overview
from petctl.compat.act.cli.flags import Flags, verb
from petctl.compat.act.run_facts import facts
from petctl.compat.act.run_logs import fetch, last_lines, log_folder
from petctl.compat.act.runs import find_run, find_runs
from petctl.compat.batchai.cli.base_command import say
from petctl.console.commands import print_json
from petctl.jobs import JobHandle
from petctl.jobs.diagnosis import diagnose

_LISTS = ("cluster", "max", "output")
_ABOVE = ("logFiles", "all_log_path")  # printed before the facts


@verb(
    "query",
    "act query jianfw_1563257309_60ce2fc7",
    "act q 60ce2fc7 5f0e2a11                  a unique end of the id is enough",
    "act q -no-wl 60ce2fc7                    without logs",
    "act q --max 20                           the newest runs of the experiment",
    heeds=("cluster", "without_log", "without_details", "end_of_log", "max", "output"),
)
@click.argument("runs", metavar="[RUN...]", nargs=-1, shell_complete=complete_job)
def query(said: Flags, runs: tuple[str, ...]) -> int:
    """Fetch the logs of runs, show the last 100 lines of rank 0, the paths of all logs, and what is known of each run.

    Logs lie in ./assets/RUN, or in $AML_LOG_FOLDER/RUN; only what is new is fetched. Without RUN: list the newest runs
    of the experiment.
    """
    if not runs:
        return _list(said, None)

    handles = find_runs(runs)
    if not said.config(required=False).with_log:
        said = said._replace(without_log=True)
    found = [_look(said, handle) for handle in handles]
    if said.json:
        print_json(found if len(found) != 1 else found[0])
    elif len(found) > 1:
        _table(found)
    return 0


@verb("failed", "act f", "act -c eu qf --max 10", heeds=_LISTS)
def failed(said: Flags) -> int:
    """List the experiment's runs that failed, newest first."""
    return _list(said, ("Failed",))


@verb("qq", "act qq", heeds=_LISTS)
def queued(said: Flags) -> int:
    """List the experiment's runs that wait."""
    return _list(said, ("Queued", "Starting"))


@verb("qr", "act qr", heeds=_LISTS)
def running(said: Flags) -> int:
    """List the experiment's runs that run."""
    return _list(said, ("Running",))


@verb("blame", "act blame", "act -c eu blame", heeds=("cluster", "max", "output"))
def blame(said: Flags) -> int:
    """List the five runs of the cluster that have run longest, whoever's experiment they are of."""
    return _rows(said, overview.blame(said.config(required=False), said.max or 5))


@verb("summary", "act summary", "act -c eu summary -o json", heeds=("cluster", "output"))
def summary(said: Flags) -> int:
    """Say what the cluster has, what of it is free, and which runs run and wait."""
    return tell_summary(said)


@verb("parse", "act parse 60ce2fc7", heeds=("output",))
@click.argument("run", metavar="RUN", shell_complete=complete_job)
def parse(said: Flags, run: str) -> int:
    """Say why a run failed: known causes that are found in its logs and its status, with advice."""
    found = diagnose(find_run(run))
    if said.json:
        print_json(to_builtins(found))
    else:
        click.echo("\n".join(diagnosis_lines(found)))
    return 0


def tell_summary(said: Flags) -> int:
    """Of the cluster that is meant."""
    found = overview.summary(said.config(required=False))
    if said.json:
        print_json(found)
    else:
        click.echo(pprint.pformat(found))
    return 0


def _look(said: Flags, handle: JobHandle) -> dict[str, Any]:
    """One run; text is printed as it comes."""
    paths: list[Path] = []
    lines: list[str] = []
    if not said.without_log:
        paths = fetch(handle, log_folder(), full=not said.end_of_log)
        lines = last_lines(paths)
    found = facts(handle, paths)
    if said.json:
        return {**found, "log": lines}
    for line in lines:
        click.echo(line)
    if not said.without_log:
        click.echo(f"log files:\n{pprint.pformat([str(path) for path in paths])}")
    if not said.without_details:
        click.echo(pprint.pformat({name: value for name, value in found.items() if name not in _ABOVE}))
    return found


def _list(said: Flags, states: tuple[str, ...] | None) -> int:

    return _rows(said, overview.runs(said.config(), states, said.max))


def _rows(said: Flags, rows: list[dict[str, Any]]) -> int:
    if said.json:
        print_json(rows)
    elif rows:
        _table(rows)
    else:
        say("there are none")
    return 0


def _table(rows: list[dict[str, Any]]) -> None:

    for line in overview.lines_of(rows):
        click.echo(line)
