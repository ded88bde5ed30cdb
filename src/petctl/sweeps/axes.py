"""Axes of pictures: from values to places between 0 and 1, with labels at some of them. Pure.

Numbers that differ much are placed by their magnitude; texts that are no numbers each have a place of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

TICKS = 4
FEW = 8  # numbers that each get a label
WIDE_RATIO = 30  # values that differ by more are drawn in powers of ten


class Axis(NamedTuple):
    """From values to places between 0 and 1, with some that get a label."""

    place: Callable[[float], float]
    ticks: list[tuple[float, str]]  # place, label


def axis_of(values: Sequence[float], straight: bool = False) -> Axis:
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
    ticks = [(share, f"{low * (1 - share) + high * share:.4g}") for share in shares]
    unit = 1.0 if math.isfinite(high - low) else 0.5
    return Axis(lambda value: (value * unit - low * unit) / (high * unit - low * unit), ticks)


def axis_of_texts(texts: Sequence[str]) -> tuple[Axis, list[float]]:
    """The axis of a parameter, and where on it each of its values is."""
    numbers = [number for text in texts if (number := _number(text)) is not None]
    if len(numbers) == len(texts):
        axis = axis_of(numbers)
        return axis, [axis.place(number) for number in numbers]
    words = list(dict.fromkeys(texts))
    each = {word: (index + 0.5) / len(words) for index, word in enumerate(words)}
    return Axis(lambda value: value, [(place, word) for word, place in each.items()]), [each[text] for text in texts]


def labelled(texts: Sequence[str]) -> tuple[Axis, list[float]]:
    """The same; a few numbers are labelled as they were written, and of many the least and the greatest."""
    axis, places = axis_of_texts(texts)
    known = dict(zip(places, texts, strict=True))
    if len(known) > FEW:
        known = {**dict(axis.ticks), **{place: known[place] for place in (0.0, 1.0) if place in known}}
    return axis._replace(ticks=sorted(known.items())), places


def spaced(ticks: Sequence[tuple[float, str]], apart: float) -> list[tuple[float, str]]:
    """Those for which there is room: the ends, and then from the top."""
    kept: list[tuple[float, str]] = []
    down = sorted(ticks, reverse=True)
    for place, label in [*down[:1], *down[:0:-1][:1], *down[1:-1]]:
        if all(abs(place - other) >= apart for other, _ in kept):
            kept.append((place, label))
    return kept


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
