"""A sweep as a picture (SVG): parallel coordinates, where there are two parameters or more; the metric over each
parameter, a dot per point, and over the steps, a line per point.

Nothing but text is needed for that. The best point is drawn in another colour, and every mark tells its point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape

from petctl.errors import UsageError
from petctl.sweeps import parallel
from petctl.sweeps.axes import Axis, axis_of, axis_of_texts, spaced
from petctl.sweeps.results import Row, rows_of, summary_of
from petctl.sweeps.space import in_line, in_words

if TYPE_CHECKING:
    from petctl.sweeps.drive import Driver

WIDE, HIGH, LEFT, TOP, BOTTOM, RIGHT = 380, 260, 58, 34, 40, 14
COLUMNS = 2
PLAIN, GOOD, BEST, FRAME = "#5b93d3", "#e08e2b", "#c0392b", "#dddddd"
LONGEST_WORD = 14
LETTER, LINE, LABEL = 7, 11, 90  # how wide and high a letter is; room for the labels of the last axis
MOST_DOTS = 400  # of one line


class Mark(NamedTuple):
    """One point at a place, with the words that a pointer shows."""

    x: float
    y: float
    words: str
    best: bool


def draw(driver: Driver) -> str:
    """The picture's text."""
    summary, metric, rows = summary_of(driver), driver.rules.metric, drawable(driver)
    first = HIGH if len(driver.sweep.parameters) > 1 else 0  # the height of the coordinates
    panels = [over_parameter(name, metric, rows, summary.best) for name in driver.sweep.parameters]
    panels += _over_steps(driver, metric, summary.best)
    lines = math.ceil(len(panels) / COLUMNS)
    width, height = COLUMNS * WIDE, first + lines * HIGH + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(LEFT, 20, f"{summary.name}: {metric}, {len(rows)} points", 14),
    ]
    if first:
        picture = parallel.coordinates(rows, metric, driver.rules.goal)
        parts.append(f'<g transform="translate(0 30)">{svg(picture)}</g>')
    for number, panel in enumerate(panels):
        x, y = number % COLUMNS * WIDE, number // COLUMNS * HIGH + first + 30
        parts.append(f'<g transform="translate({x} {y})">{panel}</g>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def drawable(driver: Driver) -> list[Row]:
    """The points that have told a number."""
    metric = driver.rules.metric
    if not metric:
        raise UsageError(f"{driver.sweep.name} has no metric to draw; start a sweep with --metric NAME")
    told = [row for row in rows_of(driver) if row.value is not None]
    rows = [row for row in told if math.isfinite(row.value or 0.0)]
    if not rows:
        what = f"a {metric} that is a number" if told else f"its {metric} yet"
        raise UsageError(f"no point of {driver.sweep.name} reported {what}")
    return rows


def svg(picture: parallel.Coordinates) -> str:
    """As wide as all columns; labels stand over the lines, right of their axis."""
    gap = (COLUMNS * WIDE - LEFT - LABEL) / (len(picture.axes) - 1)
    fit = max(3, int(gap / LETTER))
    faint = max(0.15, min(0.6, 30 / len(picture.lines)))
    parts = [_line(line, gap, faint) for line in picture.lines]
    for number, (name, axis) in enumerate(zip(picture.names, picture.axes, strict=True)):
        x = LEFT + number * gap
        parts.append(f'<path d="M{x:.1f} {TOP}V{HIGH - BOTTOM}" stroke="#888888"/>')
        parts.append(_text(x, TOP - 10, _shortened(name, fit), 12, "middle" if number else "start"))
        for place, label in spaced(axis.ticks, LINE / (_y(0.0) - _y(1.0))):
            parts.append(_text(x + 4, _y(place) + 4, _shortened(label, min(fit, LONGEST_WORD)), 10, halo=True))
    return "".join(parts)


def _line(line: parallel.Line, gap: float, faint: float) -> str:
    colour, width, strength = {
        parallel.PLAIN: (PLAIN, 1, faint),
        parallel.GOOD: (GOOD, 1.5, 0.9),
        parallel.BEST: (BEST, 2.5, 1),
    }[line.rank]
    path = "L".join(f"{LEFT + number * gap:.1f} {_y(place):.1f}" for number, place in enumerate(line.places))
    return (
        f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-opacity="{strength:.2g}">'
        f"<title>{_escaped(words_of(line.row))}</title></path>"
    )


def over_parameter(name: str, metric: str, rows: Sequence[Row], top: Row | None) -> str:
    """A panel: a dot for each point."""
    across, places = axis_of_texts([row.values[name] for row in rows])
    up = axis_of([row.value for row in rows if row.value is not None])
    marks = [
        Mark(place, up.place(row.value or 0.0), words_of(row), top is not None and row.point == top.point)
        for place, row in zip(places, rows, strict=True)
    ]
    dots = [
        f'<circle cx="{_x(mark.x):.1f}" cy="{_y(mark.y):.1f}" r="{4.5 if mark.best else 3.5}" '
        f'fill="{BEST if mark.best else PLAIN}" fill-opacity="0.8"><title>{_escaped(mark.words)}</title></circle>'
        for mark in sorted(marks, key=lambda mark: mark.best)
    ]
    return _frame(f"{metric} over {name}", across, up) + "".join(dots)


def _over_steps(driver: Driver, metric: str, top: Row | None) -> list[str]:
    """One panel, where any point has told more than one value."""
    lines: list[tuple[int, list[tuple[float, float]]]] = []
    for number, standing in driver.history.points.items():
        known = [
            (reading.at, reading.metrics[metric])
            for reading in (standing.last.readings if standing.last else ())
            if math.isfinite(reading.metrics.get(metric, math.nan))
        ]
        if known:
            lines.append((number, known[:: len(known) // MOST_DOTS + 1] + known[-1:]))
    if not any(len(dots) > 2 for _, dots in lines):
        return []
    across = axis_of([at for _, dots in lines for at, _ in dots], straight=True)
    up = axis_of([value for _, dots in lines for _, value in dots])
    parts = []
    for number, dots in sorted(lines, key=lambda line: top is not None and line[0] == top.point):
        best = top is not None and number == top.point
        path = " ".join(f"{_x(across.place(at)):.1f},{_y(up.place(value)):.1f}" for at, value in dots)
        words = in_words(driver.sweep.points[number - 1].values)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{BEST if best else PLAIN}" '
            f'stroke-width="{2 if best else 1}" stroke-opacity="{1 if best else 0.6}">'
            f"<title>{_escaped(f'point {number}: {words}')}</title></polyline>"
        )
    return [_frame(f"{metric} over steps", across, up) + "".join(parts)]


def _frame(title: str, across: Axis, up: Axis) -> str:
    parts = [_text(LEFT, 18, title, 12)]
    for place, label in up.ticks:
        parts.append(f'<path d="M{LEFT} {_y(place):.1f}H{WIDE - RIGHT}" stroke="{FRAME}"/>')
        parts.append(_text(LEFT - 6, _y(place) + 4, label, 10, "end"))
    labels = [(place, _shortened(label, LONGEST_WORD)) for place, label in across.ticks]
    widest = LETTER * max(len(label) for _, label in labels) if labels else 0
    for place, short in spaced(labels, widest / (_x(1.0) - _x(0.0))):
        parts.append(f'<path d="M{_x(place):.1f} {TOP}V{HIGH - BOTTOM}" stroke="{FRAME}"/>')
        parts.append(_text(_x(place), HIGH - BOTTOM + 16, short, 10, "middle"))
    return "".join(parts)


def _x(place: float) -> float:
    return LEFT + 8 + place * (WIDE - LEFT - RIGHT - 16)


def _y(place: float) -> float:
    return HIGH - BOTTOM - 8 - place * (HIGH - TOP - BOTTOM - 16)


def _text(x: float, y: float, text: str, size: int = 11, anchor: str = "start", halo: bool = False) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
    around = ' stroke="#ffffff" stroke-width="3" paint-order="stroke"' if halo else ""
    return f'<text {place} fill="#222222"{around}>{_escaped(text)}</text>'


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _escaped(text: str) -> str:
    """XML has no place for most control characters."""
    return escape(in_line(text))


def words_of(row: Row) -> str:
    """A point in a line."""
    return f"point {row.point}: {in_words(row.values)}: {row.value:.6g}"
