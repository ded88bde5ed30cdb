"""A sweep as a picture (SVG): the metric over each parameter, a dot per point, and over the steps, a line per point.

Nothing but text is needed for that. The best point is drawn in another colour, and every mark tells its point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape

from petctl.errors import UsageError
from petctl.sweeps.results import Row, summary_of

if TYPE_CHECKING:
    from petctl.sweeps.drive import Driver

WIDE, HIGH, LEFT, TOP, BOTTOM, RIGHT = 380, 260, 58, 34, 40, 14
COLUMNS = 2
TICKS = 4
WIDE_RATIO = 30  # values that differ by more are drawn in powers of ten
PLAIN, BEST, FRAME = "#5b93d3", "#c0392b", "#dddddd"
LONGEST_WORD = 14
MOST_DOTS = 400  # of one line


class Axis(NamedTuple):
    """From values to places between 0 and 1, with some that get a label."""

    place: Callable[[float], float]
    ticks: list[tuple[float, str]]  # place, label


class Mark(NamedTuple):
    """One point at a place, with the words that a pointer shows."""

    x: float
    y: float
    words: str
    best: bool


def draw(driver: Driver) -> str:
    """The picture's text."""
    summary, metric = summary_of(driver), driver.rules.metric
    if not metric:
        raise UsageError(f"{driver.sweep.name} has no metric to draw; start a sweep with --metric NAME")
    rows = [row for row in summary.rows if row.value is not None and math.isfinite(row.value)]
    if not rows:
        raise UsageError(f"no point of {driver.sweep.name} has told its {metric} yet")
    panels = [_over_parameter(name, metric, rows, summary.best) for name in driver.sweep.parameters]
    panels += _over_steps(driver, metric, summary.best)
    lines = math.ceil(len(panels) / COLUMNS)
    width, height = COLUMNS * WIDE, lines * HIGH + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(LEFT, 20, f"{summary.name}: {metric}, {len(rows)} points", 14),
    ]
    for number, panel in enumerate(panels):
        x, y = number % COLUMNS * WIDE, number // COLUMNS * HIGH + 30
        parts.append(f'<g transform="translate({x} {y})">{panel}</g>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _over_parameter(name: str, metric: str, rows: Sequence[Row], top: Row | None) -> str:
    texts = [row.values[name] for row in rows]
    numbers = [_number(text) for text in texts]
    if all(number is not None for number in numbers):
        across = _axis([number for number in numbers if number is not None])
        places = [across.place(number) for number in numbers if number is not None]
    else:
        words = list(dict.fromkeys(texts))
        each = {word: (index + 0.5) / len(words) for index, word in enumerate(words)}
        across = Axis(lambda value: value, [(place, word) for word, place in each.items()])
        places = [each[text] for text in texts]
    up = _axis([row.value for row in rows if row.value is not None])
    marks = [
        Mark(place, up.place(row.value or 0.0), _words(row), top is not None and row.point == top.point)
        for place, row in zip(places, rows, strict=True)
    ]
    dots = [
        f'<circle cx="{_x(mark.x):.1f}" cy="{_y(mark.y):.1f}" r="{4.5 if mark.best else 3.5}" '
        f'fill="{BEST if mark.best else PLAIN}" fill-opacity="0.8"><title>{escape(mark.words)}</title></circle>'
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
    across = _axis([at for _, dots in lines for at, _ in dots], straight=True)
    up = _axis([value for _, dots in lines for _, value in dots])
    parts = []
    for number, dots in sorted(lines, key=lambda line: top is not None and line[0] == top.point):
        best = top is not None and number == top.point
        path = " ".join(f"{_x(across.place(at)):.1f},{_y(up.place(value)):.1f}" for at, value in dots)
        words = " ".join(f"{name}={value}" for name, value in driver.sweep.points[number - 1].values.items())
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{BEST if best else PLAIN}" '
            f'stroke-width="{2 if best else 1}" stroke-opacity="{1 if best else 0.6}">'
            f"<title>{escape(f'point {number}: {words}')}</title></polyline>"
        )
    return [_frame(f"{metric} over steps", across, up) + "".join(parts)]


def _axis(values: Sequence[float], straight: bool = False) -> Axis:
    """Room for all values; in powers of ten where they differ that much."""
    low, high = min(values), max(values)
    if not straight and low > 0 and high / low > WIDE_RATIO:
        bottom, top = math.log10(low), math.log10(high)
        powers = range(math.ceil(bottom - 1e-9), math.floor(top + 1e-9) + 1)
        ticks = [((power - bottom) / (top - bottom), f"{10.0**power:g}") for power in powers]
        return Axis(lambda value: (math.log10(value) - bottom) / (top - bottom), ticks[:: len(ticks) // 6 + 1])
    if high == low:
        return Axis(lambda value: 0.5, [(0.5, f"{low:.4g}")])
    shares = [part / TICKS for part in range(TICKS + 1)]
    ticks = [(share, f"{low + (high - low) * share:.4g}") for share in shares]
    return Axis(lambda value: (value - low) / (high - low), ticks)


def _frame(title: str, across: Axis, up: Axis) -> str:
    parts = [_text(LEFT, 18, title, 12)]
    for place, label in up.ticks:
        parts.append(f'<path d="M{LEFT} {_y(place):.1f}H{WIDE - RIGHT}" stroke="{FRAME}"/>')
        parts.append(_text(LEFT - 6, _y(place) + 4, label, 10, "end"))
    for place, label in across.ticks:
        short = label if len(label) <= LONGEST_WORD else f"{label[: LONGEST_WORD - 1]}…"
        parts.append(f'<path d="M{_x(place):.1f} {TOP}V{HIGH - BOTTOM}" stroke="{FRAME}"/>')
        parts.append(_text(_x(place), HIGH - BOTTOM + 16, short, 10, "middle"))
    return "".join(parts)


def _x(place: float) -> float:
    return LEFT + 8 + place * (WIDE - LEFT - RIGHT - 16)


def _y(place: float) -> float:
    return HIGH - BOTTOM - 8 - place * (HIGH - TOP - BOTTOM - 16)


def _text(x: float, y: float, text: str, size: int = 11, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {place} fill="#222222">{escape(text)}</text>'


def _words(row: Row) -> str:
    values = " ".join(f"{name}={value}" for name, value in row.values.items())
    return f"point {row.point}: {values}: {row.value:.6g}"


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
