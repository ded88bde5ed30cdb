"""Draws grouped bars as SVG: one group per event, one bar per system, the median as its height and the 90th percentile
as a whisker. Nothing but text is needed for that, so nothing is imported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 760, 360, 56, 88, 36
COLOURS = ("#8a8f98", "#c4c7cc", "#d8b4a0", "#b9d0ec", "#5b93d3", "#1d4f91")
LEGEND = 3  # names in one line of it


@dataclass(frozen=True)
class Bar:
    """One figure; an endless one is drawn to the top and labelled."""

    median: float
    p90: float
    label: str


class Axis:
    """From values to heights: in powers of ten, or from 0 to `high`."""

    def __init__(self, low: float, high: float, logarithmic: bool) -> None:
        self.low, self.high, self.logarithmic = low, high, logarithmic

    def y(self, value: float) -> float:
        """Where a value is on the page."""
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)

    def ticks(self) -> list[float]:
        """Values that get a line."""
        if self.logarithmic:
            powers = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
            return [10.0**power for power in powers]
        return [self.low + (self.high - self.low) * part / 4 for part in range(5)]


def draw(
    path: Path, title: str, groups: Sequence[str], series: Sequence[str], bars: Sequence[Sequence[Bar]], axis: Axis
) -> None:
    """Write the picture; `bars` holds a row per group and in it a bar per series."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(LEFT, 22, title, size=14),
    ]
    colours = COLOURS[-len(series) :]
    for number, name in enumerate(series):
        x, y = LEFT + number % LEGEND * (WIDTH - LEFT) / LEGEND, 34.0 + number // LEGEND * 18
        parts.append(f'<rect x="{x:.0f}" y="{y:.0f}" width="10" height="10" fill="{colours[number]}"/>')
        parts.append(_text(x + 15, y + 9, name))
    for tick in axis.ticks():
        y = axis.y(tick)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - 8}" stroke="#dddddd"/>')
        parts.append(_text(LEFT - 6, y + 4, f"{tick:g}", anchor="end"))
    room = (WIDTH - LEFT - 8) / len(groups)
    width = room * 0.8 / len(series)
    for place, (group, row) in enumerate(zip(groups, bars, strict=True)):
        begin = LEFT + place * room + room * 0.1
        for number, bar in enumerate(row):
            x, y = begin + number * width, axis.y(bar.median)
            whisker = axis.y(bar.p90)
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width * 0.92:.1f}" height="{HEIGHT - BOTTOM - y:.1f}" '
                f'fill="{colours[number]}"/>'
            )
            parts.append(f'<path d="M{x + width * 0.46:.1f} {y:.1f}V{whisker:.1f}" stroke="#222222"/>')
            parts.append(_text(x + width * 0.46, whisker - 4, bar.label, anchor="middle", size=10))
        parts.append(_text(begin + room * 0.4, HEIGHT - 14, group, anchor="middle", size=12))
    parts.append(f'<path d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - 8}" stroke="#222222"/>')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")


def _text(x: float, y: float, words: str, anchor: str = "start", size: int = 11) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="#222222">{escape(words)}</text>'
    )
