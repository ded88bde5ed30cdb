"""Parallel coordinates: an axis for each parameter and one for the metric, and a line through them for each point.

What is drawn, for pictures of any kind; as SVG it is drawn in plot.py, for a terminal in textplot.py. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from petctl.sweeps.axes import Axis, axis_of, labelled
from petctl.sweeps.results import UNCOUNTED, Row

GOOD_SHARE = 0.1  # of the points, that stand out beside the best one
PLAIN, GOOD, BEST = range(3)


class Line(NamedTuple):
    """One point: where it crosses each axis, and how well it did: PLAIN, GOOD or BEST."""

    row: Row
    places: tuple[float, ...]
    rank: int


class Coordinates(NamedTuple):
    """The picture: axes from left to right, the metric's last; lines with the best on top, which is last."""

    names: list[str]
    axes: list[Axis]
    lines: list[Line]


def coordinates(rows: Sequence[Row], metric: str, goal: str) -> Coordinates:
    """Of points whose values are all numbers."""
    names = list(rows[0].values)
    found = [labelled([row.values[name] for row in rows]) for name in names]
    values = [row.value or 0.0 for row in rows]
    last = _with_ends(axis_of(values), values)
    crossed = zip(*(places for _, places in found), map(last.place, values), strict=True)
    ranked = sorted(zip(rows, crossed, strict=True), key=lambda pair: _merit(pair[0], goal), reverse=True)
    counted = sum(row.state not in UNCOUNTED for row in rows)
    good = math.ceil(counted * GOOD_SHARE) if counted else 0
    ranks = [BEST if place == 0 and good else GOOD if place < good else PLAIN for place in range(len(ranked))]
    lines = [Line(row, tuple(places), rank) for (row, places), rank in zip(ranked, ranks, strict=True)]
    return Coordinates([*names, metric], [*(axis for axis, _ in found), last], lines[::-1])


def _with_ends(axis: Axis, values: Sequence[float]) -> Axis:
    """The metric's, which tells how far it goes."""
    ends = {axis.place(end): f"{end:.4g}" for end in (min(values), max(values))}
    return axis._replace(ticks=sorted({**dict(axis.ticks), **ends}.items()))


def _merit(row: Row, goal: str) -> tuple[bool, float, int]:
    """More is better; of equal ones the first, as in the table."""
    value = row.value or 0.0
    return row.state not in UNCOUNTED, value if goal == "max" else -value, -row.point
