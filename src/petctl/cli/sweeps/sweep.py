"""petctl sweep: one job over many points of its parameters.

`petctl sweep [OPTIONS] COMMAND` starts one, as `petctl sweep run` does: a first word that is no verb of this group
begins its options. The verbs are in verbs.py.
"""

from __future__ import annotations

from typing import Any

import click

from petctl.cli.job_options import CONTEXT, JobCommand, job_options
from petctl.cli.sweeps.points import jobs_of, points_of, takes_names
from petctl.cli.sweeps.verbs import VERBS
from petctl.console.commands import Verbs, examples, print_json

EXAMPLES = (
    "petctl sweep -p lr=0.1,0.01 -p bs=16:128:x2 train.py --lr '${lr}' --batch '${bs}'     a grid",
    "petctl sweep --random 20 --seed 1 -p lr='log(1e-5,1e-1)' --metric loss job.yaml       20 random points",
    "petctl sweep --points points.csv -j 4 --name tune job.yaml                            points of a file",
    "petctl sweep status tune",
)
RUN_EXAMPLES = (
    "petctl sweep run -p lr=0.1,0.01 --metric loss train.py --lr '${lr}'",
    "petctl sweep run -p seed=1:20 -j 4 --retries 1 -d job.yaml                            in the background",
    "petctl sweep run -p lr=0.1,0.01 --metric-regex 'acc ([0-9.]+)' --goal max --until 'metric>=0.95' train.py",
)


class SweepGroup(Verbs):
    """A group that takes words that are no verb for those of `run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("sweep", cls=SweepGroup, epilog=examples(*EXAMPLES))
def command() -> None:
    """Run a job over many points of its parameters, and compare what comes out.

    'petctl sweep [OPTIONS] COMMAND' is short for 'petctl sweep run'; its options are in 'petctl sweep run --help'.
    """


class _SweepCommand(JobCommand):
    own_group = "Sweep"


@command.command("run", cls=_SweepCommand, context_settings=CONTEXT, epilog=examples(*RUN_EXAMPLES))
@click.option(
    "-p", "--param", "parameters", metavar="NAME=VALUES", multiple=True, help="Parameter and its values; see above."
)
@click.option("--points", "file", metavar="FILE", help="Read points from .csv, .json, .jsonl or .yaml.")
@click.option("--random", metavar="N", type=int, help="Draw N points instead of trying every combination.")
@click.option("--seed", metavar="N", type=int, help="With --random: seed of the draw.  [default: 0]")
@click.option(
    "-j", "--jobs", metavar="N", type=int, default=0, help="Run at most N jobs at once; default: as the queue allows."
)
@click.option("--retries", metavar="N", type=int, default=0, help="Retry a failed point up to N times.")
@click.option("--metric", metavar="NAME", default="", help="Compare points by this reported metric.")
@click.option(
    "--metric-regex", "regex", metavar="RE", default="", help="Compare points by what its group finds in the log."
)
@click.option(
    "--goal",
    type=click.Choice(["min", "max"]),
    default="min",
    show_default=True,
    help="Whether less or more is better.",
)
@click.option(
    "--take",
    type=click.Choice(["last", "best"]),
    default="last",
    show_default=True,
    help="Value of a point that counts.",
)
@click.option("--stop-when", metavar="COND", multiple=True, help="End a point early: 'loss>10', 'loss=nan'.")
@click.option("--early-stop", type=click.Choice(["median"]), help="End points worse than the median.")
@click.option("--warm-up", metavar="N|TIME", default="", help="With --early-stop: not before N steps or this time.")
@click.option("--until", metavar="COND", default="", help="End the sweep once a point reaches: 'acc>=0.95'.")
@click.option("-d", "--detach", is_flag=True, help="Print its name and return; run in the background.")
@job_options()
def run(
    parameters: tuple[str, ...], file: str | None, random: int | None, seed: int | None, detach: bool, **options: Any
) -> int:
    """Start a sweep, drive it to its end, print a table of its points. Exit code 1 when some of them failed.

    \b
    NAME=VALUES   lr=0.1,0.01    these            bs=16:128:x2   16, 32, 64, 128
                  opt=sgd,adam                    n=1:10:3       1, 4, 7, 10
                  n='int(1,8)'                    opt='choice(sgd,adam)'
                  with --random also 'uniform(0,1)', 'log(1e-5,1e-1)'

    ${NAME} is filled in every word of COMMAND, in options such as -e, and in every value of a job file; $PARAM_NAME (in
    capitals) has it in the job's environment. All points run one snapshot of the code. --name is the sweep's: with
    it, the same command goes on where the sweep was.

    Ctrl-C leaves the sweep: no more points are submitted, and those that run go on. 'petctl sweep resume' goes on.
    """
    from petctl.cli.sweeps.show import first_words
    from petctl.sweeps.begin import begin
    from petctl.sweeps.decide import check_conditions
    from petctl.sweeps.record import Limits

    names = ("jobs", "retries", "metric", "regex", "goal", "take", "warm_up", "until")
    said = {name: options.pop(name) for name in names}
    stop_when, early_stop = list(options.pop("stop_when")), options.pop("early_stop") or ""
    limits = Limits(stop_when=stop_when, early_stop=early_stop, **said)
    check_conditions(limits)
    points = points_of(parameters, random, seed, file)
    jobs = jobs_of(options, points)
    begun = begin(points, jobs, limits, options["name"] or "", options["cluster"] or "")
    quiet, as_json = options["quiet"], options["output"] == "json"
    name = begun.folder.name
    if not quiet:
        for note in begun.notes:
            click.echo(f"petctl: {note}", err=True)
        if not begun.again:
            for line in first_words(name, points):
                click.echo(f"petctl: {line}", err=True)
        elif not begun.folder.driven():
            click.echo(f"petctl: continuing sweep {name}", err=True)
    if begun.again and not begun.folder.driven():
        begun.folder.note("resume")
    return start(name, detach, quiet, as_json)


def start(name: str, detach: bool, quiet: bool, as_json: bool) -> int:
    """Drives a sweep here, or has it driven."""
    from petctl.sweeps.drive import drive_detached
    from petctl.sweeps.record import find

    folder = find(name)
    if not detach:
        from petctl.cli.sweeps.show import drive

        return drive(folder, quiet, as_json)
    drive_detached(folder)
    if as_json:
        print_json({"name": folder.name})
    else:
        click.echo(folder.name)
        if not quiet:
            click.echo(f"petctl: see it with: petctl sweep status --watch {folder.name}", err=True)
    return 0


takes_names(run)
for verb in VERBS:
    command.add_command(verb)
