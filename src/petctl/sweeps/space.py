"""Parameters and their points: pure functions from texts to lists of texts.

    lr=0.1,0.01          these values                      bs=16:128:x2     16, 32, 64, 128
    lr="1:3"             this very text                    n=1:10:3         1, 4, 7, 10
    lr=uniform(0,1)      log(1e-5,1e-1)  int(1,8)  choice(sgd,adam)        for --random

A value is text from here to the job, exactly as it was written. A random point depends on the seed alone.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from petctl.errors import UsageError

MOST_POINTS = 10_000
EXPORTED = "PARAM_"  # how the names of parameters begin in the environment
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_CALL = re.compile(r"([a-z]+)\((.*)\)", re.DOTALL)
_RANGE = re.compile(r"([^:\s]+):([^:\s]+)(?::(x?)([^:\s]+))?")
_PIECE = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([^,"'\s](?:[^,"']*[^,"'\s])?))\s*(,|\Z)""")
_DRAWS = ("uniform", "log", "int", "choice")
_FORMS = "expected values such as 0.1,0.01, a range such as 16:128:x2, or uniform(a,b), log(a,b), int(a,b), choice(...)"
_ATTEMPTS = 100  # to draw a point that was not drawn before

Point = Mapping[str, str]
Drawing = Callable[[random.Random], str]


class Parameter(NamedTuple):
    """One parameter: its values, or how one is drawn where they cannot be counted."""

    name: str
    values: tuple[str, ...]
    draw: Drawing | None = None


def parse_parameter(text: str) -> Parameter:
    """NAME=VALUES, as on the command line."""
    name, equals, said = text.partition("=")
    if not equals or not said:
        raise UsageError(f"-p {text}: {_FORMS}, as in -p lr=0.1,0.01")
    if not _NAME.fullmatch(name):
        raise UsageError(f"-p {text}: a parameter's name has letters, digits and '_', and does not start with a digit")
    call = _CALL.fullmatch(said.strip())
    if call:
        return _drawn(name, call[1], call[2], text)
    return Parameter(name, tuple(value for piece in _pieces(said, text) for value in _expanded(piece, text)))


def grid(parameters: Sequence[Parameter], rows: Sequence[Point] = ({},)) -> list[Point]:
    """Every combination, the last parameter changing fastest; for each of `rows`, which come from a file."""
    endless = [parameter.name for parameter in parameters if parameter.draw is not None]
    if endless:
        raise UsageError(f"{endless[0]} has endless values; set how many points to draw: --random 20")
    count = len(rows) * math.prod(len(parameter.values) for parameter in parameters)
    _check_count(count)
    names = [parameter.name for parameter in parameters]
    combinations = list(itertools.product(*(parameter.values for parameter in parameters)))
    return [{**row, **dict(zip(names, values, strict=True))} for row in rows for values in combinations]


def draw(parameters: Sequence[Parameter], count: int, seed: int) -> list[Point]:
    """So many different points, by chance; the same for the same seed."""
    if count < 1:
        raise UsageError(f"--random {count}: must be 1 or more")
    _check_count(count)
    if all(parameter.draw is None for parameter in parameters):
        most = math.prod(len(parameter.values) for parameter in parameters)
        if count > most:
            raise UsageError(f"--random {count}: there are only {most} different points; leave --random out")
        if most <= MOST_POINTS:
            return random.Random(seed).sample(grid(parameters), count)
    chance = random.Random(seed)
    points: dict[tuple[str, ...], Point] = {}
    for _ in range(count * _ATTEMPTS):
        point = {one.name: one.draw(chance) if one.draw else chance.choice(one.values) for one in parameters}
        points.setdefault(tuple(point.values()), point)
        if len(points) == count:
            return list(points.values())
    raise UsageError(f"--random {count}: found only {len(points)} different points; ask for fewer")


def repeated(points: Sequence[Point]) -> list[Point]:
    """Those that are the same as an earlier one."""
    seen: set[tuple[str, ...]] = set()
    again = []
    for point in points:
        values = tuple(point[name] for name in points[0])
        if values in seen:
            again.append(point)
        seen.add(values)
    return again


def in_words(point: Point) -> str:
    """Names and values in one line, whatever characters these have."""
    return " ".join(f"{name}={in_line(value)}" for name, value in point.items())


def in_line(text: str) -> str:
    """The same text, with characters that would move a terminal's cursor written out."""
    return text if text.isprintable() else ascii(text)[1:-1]


def check_names(names: Sequence[str]) -> None:
    """Refuses names that are not fit for ${NAME}, or that would be one variable in the environment."""
    exported: dict[str, str] = {}
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} cannot be a parameter: a name has letters, digits and '_', no digit first")
        other = exported.setdefault(variable(name), name)
        if other != name or list(names).count(name) > 1:
            what = "twice" if other == name else f"beside {other!r}, and both would be {variable(name)}"
            raise UsageError(f"the parameter {name!r} is given {what}; keep one")


def variable(name: str) -> str:
    """Where a job finds the value in its environment."""
    return f"{EXPORTED}{name.upper()}"


def _check_count(count: int) -> None:
    if count < 1:
        raise UsageError("no points to run; give each parameter a value")
    if count > MOST_POINTS:
        raise UsageError(
            f"that is {count} points, but a sweep can have at most {MOST_POINTS}; draw some with --random 100"
        )


class _Piece(NamedTuple):
    text: str
    quoted: bool


def _pieces(said: str, whole: str) -> list[_Piece]:
    """Values between commas; quotes keep commas, blanks and colons."""
    pieces: list[_Piece] = []
    at = 0
    while True:
        found = _PIECE.match(said, at)
        if found is None:
            raise UsageError(f"-p {whole}: {_FORMS}; write '' for an empty value")
        double, single, bare, comma = found.groups()
        pieces.append(_Piece(bare if bare is not None else double or single or "", bare is None))
        if not comma:
            return pieces
        at = found.end()


def _expanded(piece: _Piece, whole: str) -> list[str]:
    """A range's values; what does not begin with a number, as name:tag, is a text like any other."""
    found = None if piece.quoted else _RANGE.fullmatch(piece.text)
    if found is None or _decimal(found[1]) is None:
        return [piece.text]
    first, last, times, step = found.groups()
    low, high, by = _decimal(first), _decimal(last), _decimal(step or "1")
    if low is None or high is None or by is None:
        raise UsageError(
            f"""-p {whole}: a range needs numbers, as in 16:128:x2; put quotes around text: '"{piece.text}"'"""
        )
    endless = by <= 1 or low <= 0 if times else by <= 0
    if endless or high < low:
        how = "multiplies by more than 1, from above 0" if times else "goes up, by more than 0"
        raise UsageError(f"-p {whole}: a range {how}")
    values: list[str] = []
    while low <= high:
        values.append(_shown(low))
        if len(values) > MOST_POINTS:
            raise UsageError(f"-p {whole}: that is more than {MOST_POINTS} values, the maximum number of points")
        low = low * by if times else low + by
    return values


def _decimal(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _shown(number: Decimal) -> str:
    plain = format(number.normalize(), "f")
    return plain if len(plain) <= 16 else format(number.normalize(), "g")


def _drawn(name: str, kind: str, inner: str, whole: str) -> Parameter:
    if kind not in _DRAWS:
        raise UsageError(f"-p {whole}: there is no {kind}(); {_FORMS}; quote text")
    texts = [piece.text for piece in _pieces(inner, whole)]
    if kind == "choice":
        return Parameter(name, tuple(texts))
    try:
        low, high = (float(text) for text in texts)
    except ValueError:
        raise UsageError(f"-p {whole}: {kind} takes two numbers, as in {kind}(1,8)") from None
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low or (kind == "log" and low <= 0):
        above = ", and above 0" if kind == "log" else ""
        raise UsageError(f"-p {whole}: the first number must be less than the second{above}")
    if kind == "int":
        if not low.is_integer() or not high.is_integer():
            raise UsageError(f"-p {whole}: int takes two whole numbers")
        if high - low < MOST_POINTS:
            return Parameter(name, tuple(str(number) for number in range(int(low), int(high) + 1)))
        return Parameter(name, (), lambda chance: str(chance.randint(int(low), int(high))))
    if kind == "log":
        return Parameter(name, (), lambda chance: f"{math.exp(chance.uniform(math.log(low), math.log(high))):.6g}")
    return Parameter(name, (), lambda chance: f"{chance.uniform(low, high):.6g}")
