"""Parallel coordinates for a terminal: lines of dots, eight to a character, and the best point's of larger ones.

A terminal that cannot show these gets points and asterisks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from petctl.sweeps.axes import Axis, spaced
from petctl.sweeps.parallel import BEST, PLAIN, Coordinates, Line
from petctl.sweeps.plot import words_of
from petctl.sweeps.space import in_line

HIGH = 17  # lines
LAST_LABEL = 11  # room for the labels of the last axis
LONGEST_WORD = 10
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a character, by line and column
_BRAILLE = 0x2800

Style = Callable[[str, int], str]


class Glyphs(NamedTuple):
    """What a terminal can show."""

    best: str
    axis: str
    tick: str
    cut: str
    dots: bool


FULL = Glyphs("●", "│", "┤", "…", True)
ASCII = Glyphs("*", "|", "+", "~", False)


class _Cell(NamedTuple):
    text: str = " "
    rank: int = PLAIN


class _Canvas:
    """Characters by place; a dot's place is finer, 2 by 4 of them in a character."""

    def __init__(self, wide: int, glyphs: Glyphs) -> None:
        self.rows = [[_Cell()] * wide for _ in range(HIGH)]
        self._glyphs = glyphs

    def dot(self, x: float, place: float, rank: int) -> None:
        across, down = round(x * 2), _down(place)
        row, column = self.rows[down // 4], across // 2
        if rank == BEST:
            row[column] = _Cell(self._glyphs.best, rank)
        elif not self._glyphs.dots:
            row[column] = _Cell(".", rank)
        else:
            before = ord(row[column].text) - _BRAILLE if row[column].text != " " else 0
            row[column] = _Cell(chr(_BRAILLE | before | _DOTS[down % 4][across % 2]), rank)

    def axis(self, column: int, axis: Axis) -> None:
        """Over the lines, so that its labels can be read."""
        for row in self.rows:
            row[column] = _Cell(self._glyphs.axis) if row[column].rank != BEST else row[column]
        for place, label in spaced(axis.ticks, 4 / (HIGH * 4 - 1)):
            row = self.rows[_down(place) // 4]
            row[column] = _Cell(self._glyphs.tick) if row[column].rank != BEST else row[column]
            for offset, character in enumerate(_shortened(label, self._glyphs), 1):
                if column + offset < len(row):
                    row[column + offset] = _Cell(character)


def draw_text(picture: Coordinates, wide: int, glyphs: Glyphs, style: Style = lambda text, rank: text) -> str:
    """The picture, `wide` characters at most where it has room for its axes; `style` colours a piece of it."""
    gaps = len(picture.axes) - 1
    gap = max(LONGEST_WORD + 2, (wide - LAST_LABEL - 1) // gaps)
    columns = [number * gap for number in range(gaps + 1)]
    canvas = _Canvas(columns[-1] + LAST_LABEL + 1, glyphs)
    for line in picture.lines:
        _trace(canvas, line, gap)
    for column, axis in zip(columns, picture.axes, strict=True):
        canvas.axis(column, axis)
    head = "".join(_shortened(name, glyphs, gap - 1).ljust(gap) for name in picture.names).rstrip()
    told = [head, *(_joined(row, style) for row in canvas.rows)]
    top = picture.lines[-1]
    if top.rank == BEST:
        told.append(f"{style(glyphs.best, BEST)} the best: {words_of(top.row)}")
    return "\n".join(told) + "\n"


def _down(place: float) -> int:
    """Dots from the top."""
    return round((1 - place) * (HIGH * 4 - 1))


def _trace(canvas: _Canvas, line: Line, gap: int) -> None:
    steps = gap * 2
    for number, (left, right) in enumerate(zip(line.places, line.places[1:])):
        for step in range(steps + (number == len(line.places) - 2)):
            share = step / steps
            canvas.dot((number + share) * gap, left + (right - left) * share, line.rank)


def _joined(row: Sequence[_Cell], style: Style) -> str:
    """Neighbours of one rank together; blanks at the end are left out."""
    pieces: list[tuple[str, int]] = []
    for cell in row:
        if pieces and pieces[-1][1] == cell.rank:
            pieces[-1] = (pieces[-1][0] + cell.text, cell.rank)
        else:
            pieces.append((cell.text, cell.rank))
    if pieces[-1][1] == PLAIN:
        pieces[-1] = (pieces[-1][0].rstrip(), PLAIN)
    return "".join(style(text, rank) if rank != PLAIN else text for text, rank in pieces)


def _shortened(text: str, glyphs: Glyphs, most: int = LONGEST_WORD) -> str:
    text = in_line(text)
    return text if len(text) <= most else f"{text[: most - 1]}{glyphs.cut}"
