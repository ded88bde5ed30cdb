"""How a sweep looks: a live table on a terminal, one line per event elsewhere, and a table at the end."""

from __future__ import annotations

import math
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from petctl.cli.terminal.text import duration
from petctl.console.commands import print_json
from petctl.console.terminal import raw, shown
from petctl.text import counted

if TYPE_CHECKING:
    from petctl.sweeps.drive import Driver
    from petctl.sweeps.record import SweepDirectory
    from petctl.sweeps.results import Row, Summary
    from petctl.sweeps.space import Point

REDRAW = 0.5
MOST_FAILURES = 5  # that are told one by one
_UNDER_WAY = ("running", "recovering", "starting", "pending", "queued")


def drive(folder: SweepDirectory, quiet: bool, as_json: bool) -> int:
    """Drives a sweep to its end on this terminal; its exit code. Ctrl-C leaves it, and what runs goes on."""
    from petctl.cli.failures import INTERRUPTED
    from petctl.sweeps.drive import Driver, go_there
    from petctl.sweeps.results import exit_code, rows_of

    go_there(folder)
    live = not quiet and sys.stderr.isatty()
    say = (lambda sentence: None) if quiet or live else (lambda sentence: click.echo(f"petctl: {sentence}", err=True))
    driver = Driver(folder, say)
    with _interrupts() as leave, _screen(driver, live) as shown:
        over = driver.run(shown, leave)
    if not over:
        running = len(driver.history.open)
        click.echo(
            f"petctl: left the sweep {folder.name}; {running} of its jobs keep running. To continue it: petctl "
            f"sweep resume {folder.name}; to end it: petctl sweep cancel {folder.name}",
            err=True,
        )
        return INTERRUPTED
    tell(driver, quiet, as_json, failures=live)
    return exit_code(rows_of(driver))


def tell(driver: Driver, quiet: bool = False, as_json: bool = False, failures: bool = True) -> None:
    """Where a sweep stands: a table on stdout, and some sentences on stderr."""
    from petctl.cli.terminal.table import print_table
    from petctl.sweeps.results import summary_of, to_plain

    summary = summary_of(driver)
    if as_json:
        print_json(to_plain(summary))
        return
    print_table(header(driver), [cells(row) for row in summary.rows])
    if not quiet:
        failed = [row for row in summary.rows if row.state in ("failed", "lost", "refused")] if failures else []
        for row in failed[:MOST_FAILURES]:
            why = "".join(f": {one}" for one in (row.cause, row.sentence) if one)
            click.echo(f"petctl: {row.job} {row.state}{why}", err=True)
        click.echo(f"petctl: sweep {summary.name}: {summary.sentence}", err=True)
        for line in [*untold(driver, summary), *advice(summary)]:
            click.echo(f"petctl: {line}", err=True)


def first_words(name: str, points: Sequence[Point]) -> list[str]:
    """What is said of a sweep that was just made."""
    from petctl.sweeps.space import in_words, repeated

    said = [f"sweep {name} has {counted(len(points), 'point')}"]
    if again := repeated(points):
        what = "one point repeats another" if len(again) == 1 else f"{len(again)} points repeat others"
        said.append(f"{what}, and will run too: {in_words(again[0])}{', ...' if len(again) > 1 else ''}")
    return said


def untold(driver: Driver, summary: Summary) -> list[str]:
    """Where points have ended and none has told the metric: a word about that, as it may be misspelt."""
    metric = driver.rules.metric
    ended = next((row for row in summary.rows if row.state in ("succeeded", "stopped")), None)
    if not metric or ended is None or any(row.value is not None for row in summary.rows):
        return []
    others = sorted({name for attempt in driver.history.attempts.values() for name in attempt.metrics} - {"step"})
    if driver.limits.regex:
        why = "--metric-regex found no number in the output of rank 0"
    else:
        why = f"they reported {', '.join(others)}" if others else "they reported no metric"
    return [f"no point reported {metric}: {why}; see its output with: petctl logs {ended.job}"]


def advice(summary: Summary) -> list[str]:
    """What to type next."""
    if summary.state == "left":
        return [f"the sweep is stopped; continue it with: petctl sweep resume {summary.name}"]
    failed = next((row for row in summary.rows if row.state in ("failed", "lost")), None)
    if failed is not None and summary.state != "driven":
        return [f"see why with: petctl logs {failed.job}; to retry failed points: petctl sweep retry {summary.name}"]
    return []


def header(driver: Driver) -> list[str]:
    """The columns of the table."""
    return ["POINT", *driver.sweep.parameters, "STATE", driver.rules.metric or "METRIC", "STEP", "TIME", "TRIES", "JOB"]


def cells(row: Row) -> list[str]:
    """One point's."""
    from petctl.sweeps.space import in_line

    return [
        str(row.point),
        *map(in_line, row.values.values()),
        row.state,
        "-" if row.value is None else f"{row.value:.6g}",
        "-" if row.step is None else str(row.step),
        "-" if row.seconds is None else duration(row.seconds),
        str(row.attempts),
        row.job or "-",
    ]


def print_picture(driver: Driver) -> None:
    """Parallel coordinates, as wide as the terminal; colours where there is one."""
    from petctl.sweeps.parallel import BEST, coordinates
    from petctl.sweeps.plot import drawable
    from petctl.sweeps.textplot import ASCII, FULL, draw_text

    picture = coordinates(drawable(driver), driver.rules.metric, driver.rules.goal)
    wide = shutil.get_terminal_size().columns
    try:
        "●⠿│".encode(sys.stdout.encoding)
        glyphs = FULL
    except UnicodeEncodeError:
        glyphs = ASCII

    def style(text: str, rank: int) -> str:
        return text if "NO_COLOR" in os.environ else click.style(text, fg="red" if rank == BEST else "yellow")

    click.echo(draw_text(picture, wide, glyphs, style), nl=False)


def first_rows(rows: Sequence[Row], goal: str, most: int) -> list[Row]:
    """Those that matter most where there is no room for all: what runs, then the best, then the rest."""

    def rank(row: Row) -> tuple[Any, ...]:
        if row.state in _UNDER_WAY:
            return 0, _UNDER_WAY.index(row.state), row.point
        if row.value is not None and math.isfinite(row.value):
            return 1, -row.value if goal == "max" else row.value, row.point
        return (3 if row.state == "waiting" else 2), 0, row.point

    return sorted(rows, key=rank)[:most]


@contextmanager
def _screen(driver: Driver, live: bool) -> Iterator[Any]:
    """What is called after every change; draws at most twice a second."""
    if not live:
        yield lambda: None
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=raw(sys.stderr))
    drawn = 0.0

    def draw() -> None:
        nonlocal drawn
        if time.monotonic() - drawn >= REDRAW:
            drawn = time.monotonic()
            view.update(_picture(driver), refresh=True)

    with Live(console=console, auto_refresh=False, transient=True) as view:
        yield draw


def _picture(driver: Driver) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from petctl.cli.terminal.table import STATE_STYLES
    from petctl.sweeps.results import summary_of

    summary = summary_of(driver)
    room = max(3, shutil.get_terminal_size().lines - 4)
    rows = first_rows(summary.rows, driver.rules.goal, room)
    view = Table(box=None, pad_edge=False, header_style="dim")
    for name in header(driver):
        view.add_column(name, overflow="ellipsis", no_wrap=True)
    for row in rows:
        view.add_row(*(Text(shown(cell), style=STATE_STYLES.get(cell, "")) for cell in cells(row)))
    hidden = len(summary.rows) - len(rows)
    more = [Text(f"... and {hidden} more", style="dim")] if hidden else []
    elapsed = duration(time.time() - driver.sweep.created)
    last = Text(shown(f"{summary.name}  {elapsed}  {summary.sentence}"), style="dim", no_wrap=True, overflow="ellipsis")
    return Group(view, *more, last)


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """The first Ctrl-C, or SIGTERM, asks the driver to leave; the second does not wait for it."""
    leave = threading.Event()

    def pressed(*_: object) -> None:
        if leave.is_set():
            raise KeyboardInterrupt
        leave.set()

    previous = {number: signal.signal(number, pressed) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield leave
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
