"""What can be done with a sweep that is there: status, resume, retry, cancel, ls, plot, export, rm."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from petctl.console.commands import examples, output_option, print_json
from petctl.errors import InternalError, UsageError
from petctl.text import counted

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from petctl.sweeps.drive import Driver
    from petctl.sweeps.record import SweepDirectory

AGAIN = ("failed", "lost", "cancelled", "refused", "removed")
WATCH = 1.0


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of sweeps for the shell. Silent on any error: the user is typing."""
    from click.shell_completion import CompletionItem

    try:
        from petctl.sweeps.record import every

        return [CompletionItem(folder.name) for folder in every() if folder.name.startswith(incomplete)]
    except Exception:
        return []


_NAME = click.argument("name", metavar="SWEEP", shell_complete=_complete)
_QUIET = click.option("-q", "--quiet", is_flag=True, help="Only print errors.")
_DETACH = click.option("-d", "--detach", is_flag=True, help="Return at once; run in the background.")


@click.command("status", epilog=examples("petctl sweep status tune", "petctl sweep status -w tune"))
@_NAME
@click.option("-w", "--watch", is_flag=True, help="Keep showing it until it ends.")
@output_option()
def status(name: str, watch: bool, output: str) -> None:
    """Show the points of a sweep: parameters, state, metric, job."""
    from petctl.cli.sweeps.show import tell
    from petctl.sweeps.results import summary_of

    folder = _found(name)
    driver = _seen(folder)
    last = ""
    while watch and (folder.driven() or any(attempt.accepted for attempt in driver.history.open.values())):
        sentence = summary_of(driver).sentence
        if output != "json" and sys.stdout.isatty():
            click.clear()
            tell(driver)
        elif output != "json" and sentence != last:
            click.echo(f"petctl: {sentence}", err=True)
        last = sentence
        time.sleep(WATCH)
        driver = _seen(folder)
    tell(driver, as_json=output == "json")


@click.command("resume", epilog=examples("petctl sweep resume tune", "petctl sweep resume -j 8 tune"))
@_NAME
@click.option(
    "-j", "--jobs", metavar="N", type=int, help="From now on, run at most N jobs at once; 0: as the queue allows."
)
@click.option("--retries", metavar="N", type=int, help="From now on, retry a failed point up to N times.")
@_DETACH
@_QUIET
@output_option()
def resume(name: str, jobs: int | None, retries: int | None, detach: bool, quiet: bool, output: str) -> int:
    """Continue a stopped sweep: finished points are not run again, running ones are followed."""
    from msgspec.structs import replace

    from petctl.cli.sweeps.sweep import start
    from petctl.sweeps.decide import rules_of

    folder = _found(name)
    with folder.driving():
        limits = folder.limits()
        limits = replace(limits, jobs=limits.jobs if jobs is None else jobs)
        limits = replace(limits, retries=limits.retries if retries is None else retries)
        rules_of(limits)
        folder.set_limits(limits)
        folder.note("resume")
    return start(folder.name, detach, quiet, output == "json")


@click.command("retry", epilog=examples("petctl sweep retry tune", "petctl sweep retry --point 7 tune"))
@_NAME
@click.option("--point", "numbers", metavar="N", type=int, multiple=True, help="Only this point, however it ended.")
@_DETACH
@_QUIET
@output_option()
def retry(name: str, numbers: tuple[int, ...], detach: bool, quiet: bool, output: str) -> int:
    """Submit the points again that failed, were cancelled or lost, and go on with the sweep."""
    from petctl.cli.sweeps.sweep import start

    folder = _found(name)
    driver = _seen(folder)
    for number in numbers:
        if number not in driver.history.points:
            raise UsageError(f"{folder.name} has the points 1 to {len(driver.history.points)}, and no {number}")
        if driver.history.points[number].open:
            raise UsageError(f"point {number} of {folder.name} has not ended; cancel its job first (petctl cancel)")
    if driver.history.reached:
        raise UsageError(f"{folder.name} has reached its goal: {driver.history.reached}; start one without --until")
    chosen = list(numbers) or [number for number in driver.history.points if driver.history.state(number) in AGAIN]
    if not chosen:
        raise UsageError(f"no point of {folder.name} failed; choose one with --point N to run it again anyway")
    folder.note("retry", points=[number for number in chosen if not driver.history.points[number].open])
    if folder.driven():
        click.echo(f"petctl: the driver of {folder.name} submits {counted(len(chosen), 'point')} again", err=True)
        return 0
    return start(folder.name, detach, quiet, output == "json")


@click.command("cancel", epilog=examples("petctl sweep cancel tune"))
@_NAME
@output_option()
def cancel(name: str, output: str) -> None:
    """End a sweep: no more points are submitted, and the jobs that run are cancelled."""
    from petctl.cli.sweeps.show import tell

    folder = _found(name)
    folder.note("cancel")
    if folder.driven():
        click.echo(f"petctl: the driver of {folder.name} cancels its jobs now", err=True)
    else:
        driver = _driver(folder)
        with _where_begun(driver):
            driver.run()
    if output == "json" or not folder.driven():
        tell(_seen(folder), as_json=output == "json")


@click.command("ls", epilog=examples("petctl sweep ls", "petctl sweep ls -o json"))
@output_option()
def ls(output: str) -> None:
    """List sweeps, newest first."""
    from petctl.cli.terminal.table import print_table
    from petctl.cli.terminal.text import duration
    from petctl.sweeps.record import every
    from petctl.sweeps.results import ENDED, summary_of, to_plain

    found = []
    for folder in every():
        try:
            found.append(_driver(folder))
        except InternalError as error:  # the others must still be listed
            click.echo(f"petctl: {error}", err=True)
    found.sort(key=lambda driver: driver.sweep.created, reverse=True)
    summaries = [(driver, summary_of(driver)) for driver in found]
    if output == "json":
        print_json([{**to_plain(summary), "points": len(summary.rows)} for _, summary in summaries])
    elif not summaries:
        click.echo("petctl: no sweeps; start one: petctl sweep -p lr=0.1,0.01 train.py --lr '${lr}'", err=True)
    else:
        rows = [
            [
                summary.name,
                summary.state,
                f"{sum(row.state in ENDED for row in summary.rows)}/{len(summary.rows)}",
                str(sum(row.state in AGAIN for row in summary.rows)),
                "-" if summary.best is None else f"{driver.rules.metric} {summary.best.value:.6g}",
                duration(time.time() - driver.sweep.created),
            ]
            for driver, summary in summaries
        ]
        print_table(["SWEEP", "STATE", "DONE", "FAILED", "BEST", "AGE"], rows)


@click.command("plot", epilog=examples("petctl sweep plot tune", "petctl sweep plot --text tune"))
@_NAME
@click.option("-f", "--file", metavar="FILE", help="Write the plot to FILE; default: SWEEP.svg.")
@click.option("-t", "--text", is_flag=True, help="Print a text plot instead: one line per point.")
@output_option()
def plot(name: str, file: str | None, text: bool, output: str) -> None:
    """Draw points as lines through their values, and the metric over each parameter and over steps, as an SVG picture.

    The best point is red, the rest of the best tenth orange.
    """
    from petctl.sweeps.plot import draw

    if text and (file or output == "json"):
        raise UsageError("--text prints the plot; leave -f and -o json out")
    driver = _seen(_found(name))
    if text:
        from petctl.cli.sweeps.show import print_picture

        print_picture(driver)
        return
    path = Path(file or f"{driver.sweep.name}.svg")
    try:
        path.write_text(draw(driver), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    if output == "json":
        print_json({"file": str(path)})
    else:
        click.echo(f"petctl: wrote {path}", err=True)


@click.command("export", epilog=examples("petctl sweep export tune > tune.csv", "petctl sweep export -o json tune"))
@_NAME
@output_option("csv", "json")
def export(name: str, output: str) -> None:
    """Print a sweep's points, with their parameters and results, for other programs."""
    from petctl.sweeps.results import summary_of, to_csv, to_plain

    driver = _seen(_found(name))
    summary = summary_of(driver)
    if output == "json":
        print_json(to_plain(summary)["points"])
    else:
        click.echo(to_csv(summary, driver.rules.metric), nl=False)


@click.command("rm", epilog=examples("petctl sweep rm tune", "petctl sweep rm --keep-jobs tune"))
@_NAME
@click.option("--keep-jobs", is_flag=True, help="Remove only the sweep; keep its jobs.")
@output_option()
def rm(name: str, keep_jobs: bool, output: str) -> None:
    """Remove a stopped sweep, and its jobs with their files."""
    folder = _found(name)
    removed = []
    with folder.driving():
        if not keep_jobs:
            driver = _driver(folder)
            _peek(driver)
            if driver.history.open:
                raise UsageError(f"jobs of {folder.name} are still running; first: petctl sweep cancel {folder.name}")
            for job_id in driver.history.attempts:
                handle = driver.own(job_id)
                if handle is not None:  # submitted, and nobody has removed it
                    handle.remove()
                    removed.append(job_id)
        folder.remove()
    if output == "json":
        print_json({"removed": folder.name, "jobs": sorted(removed)})
    else:
        click.echo(f"{folder.name}: removed, with {counted(len(removed), 'job')}")


def _found(name: str) -> SweepDirectory:
    from petctl.sweeps.record import find

    return find(name)


def _driver(folder: SweepDirectory) -> Driver:
    from petctl.sweeps.drive import Driver

    return Driver(folder)


def _seen(folder: SweepDirectory) -> Driver:
    """A sweep as it is now, also where nobody drives it."""
    driver = _driver(folder)
    if not folder.driven():
        _peek(driver)
    return driver


def _peek(driver: Driver) -> None:
    with _where_begun(driver):
        driver.peek()


def _where_begun(driver: Driver) -> contextlib.AbstractContextManager[None]:
    """The directory that it was begun in, if that is still there: the settings of its cluster may be."""
    there = Path(driver.sweep.cwd)
    return contextlib.chdir(there) if there.is_dir() else contextlib.nullcontext()


VERBS = (status, resume, retry, cancel, ls, plot, export, rm)
