"""Numbers of a job: what it reports with its steps, or a regular expression finds in what rank 0 prints; and conditions
on them, such as loss>10.

A regular expression has a group for the value, which is called `value` or is the only one beside `step`, the step that
it belongs to. Nothing here asks a cluster: statuses and lines come in.
"""

from __future__ import annotations

import bisect
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from petctl.errors import UsageError

if TYPE_CHECKING:
    from petctl.jobs import Status

PRINTED = "metric"  # what a regular expression finds is called so, unless it is given a name
_CONDITION = re.compile(r"\s*([A-Za-z_][\w./-]*)\s*(>=|<=|==|!=|=|>|<)\s*(\S+)\s*", re.ASCII)
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}


class Reading(NamedTuple):
    """What was known of a job at one moment. `at`: the step, or which value it is where no step is told."""

    at: float
    metrics: Mapping[str, float]


class Measurement:
    """The mean of a metric up to each step; each reading is looked at once."""

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.steps: list[float] = []  # of readings that have it; never falling, also where a restart repeats some
        self._values: list[float] = []
        self._sum, self._read = 0.0, 0

    def take(self, readings: Sequence[Reading]) -> None:
        """Adds those that are new."""
        for reading in readings[self._read :]:
            value = reading.metrics.get(self.metric, math.nan)
            if not math.isnan(value):
                self._sum += value
                self.steps.append(max([reading.at, *self.steps[-1:]]))
                self._values.append(self._sum / len(self.steps))
        self._read = len(readings)

    def up_to(self, step: float) -> float | None:
        """The mean of all values up to this step, if it has got so far."""
        if not self.steps or self.steps[-1] < step:
            return None
        count = bisect.bisect_right(self.steps, step)
        return self._values[count - 1] if count else None


class Downsampled:
    """Enough of many readings to draw a line, with the last one; and how low and how high each number ever was."""

    def __init__(self, most: int) -> None:
        self.low: dict[str, float] = {}
        self.high: dict[str, float] = {}
        self._most, self._each = most, 1  # of so many, one is kept
        self._kept: list[Reading] = []
        self._taken, self._last = 0, Reading(0.0, {})

    def take(self, reading: Reading) -> None:
        """Adds the next one."""
        widen(self.low, self.high, reading.metrics)
        if self._taken % self._each == 0:
            self._kept.append(reading)
        self._taken, self._last = self._taken + 1, reading
        if len(self._kept) > self._most:
            self._kept, self._each = self._kept[::2], 2 * self._each

    @property
    def readings(self) -> list[Reading]:
        """Oldest first."""
        return self._kept + ([self._last] if self._taken and self._kept[-1] is not self._last else [])


def widen(low: dict[str, float], high: dict[str, float], metrics: Mapping[str, float]) -> None:
    """Takes values into the lowest and the highest that were ever seen."""
    for name, value in metrics.items():
        if not math.isnan(value):
            low[name] = min(value, low.get(name, value))
            high[name] = max(value, high.get(name, value))


class Condition(NamedTuple):
    """A metric compared with a number."""

    name: str
    sign: str
    number: float

    def holds(self, metrics: Mapping[str, float]) -> bool:
        """Whether it is so; not where the metric is not known."""
        if self.name not in metrics:
            return False
        value = metrics[self.name]
        if math.isnan(self.number):
            return math.isnan(value) == (self.sign != "!=")
        return not math.isnan(value) and _OPERATORS[self.sign](value, self.number)

    def __str__(self) -> str:
        return f"{self.name}{self.sign}{self.number:g}"


def parse_condition(text: str, option: str) -> Condition:
    """NAME>NUMBER, as on the command line."""
    found = _CONDITION.fullmatch(text)
    try:
        if found:
            return Condition(found[1], found[2], float(found[3]))
    except ValueError:
        pass
    raise UsageError(f"{option} {text!r}: expected a metric and a number, such as 'loss>10', 'acc>=0.95' or 'loss=nan'")


def parse_pattern(text: str) -> re.Pattern[str]:
    """The expression that finds a metric in lines."""
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise UsageError(f"--metric-regex {text!r}: {error}") from None
    if _value_group(pattern) is None:
        raise UsageError(f"--metric-regex {text!r}: put the number into a group: 'loss: ([0-9.]+)', or (?P<value>...)")
    return pattern


def reported(status: Status) -> Reading | None:
    """What the job has reported last."""
    progress = status.progress
    if progress is None:
        return None
    metrics = {name: _number(value) for name, value in progress.metrics.items()}
    return Reading(float(progress.step), {**metrics, "step": float(progress.step)})


def printed(lines: Iterable[str], pattern: re.Pattern[str], name: str) -> Iterator[Reading]:
    """What is in the lines, oldest first; where they tell no step they are counted."""
    found = 0
    group = _value_group(pattern) or 0
    for line in lines:
        match = pattern.search(line)
        if match is None:
            continue
        try:
            value = float(match[group])
            steps = {"step": float(match["step"])} if tells_step(pattern) else {}
        except (TypeError, ValueError):
            continue  # a word that only looks like a number
        if math.isfinite(steps.get("step", 0.0)):
            found += 1
            yield Reading(steps.get("step", float(found)), {name: value, **steps})


def _value_group(pattern: re.Pattern[str]) -> int | None:
    groups = set(range(1, pattern.groups + 1)) - {pattern.groupindex.get("step", 0)}
    return pattern.groupindex.get("value", groups.pop() if len(groups) == 1 else None)


def tells_step(pattern: re.Pattern[str]) -> bool:
    """Whether it finds the step that a value belongs to."""
    return "step" in pattern.groupindex


def better(goal: str) -> Callable[[float, float], bool]:
    """Whether the first value is better than the second."""
    return operator.gt if goal == "max" else operator.lt


def best(values: Iterable[float], goal: str) -> float | None:
    """The best of those that are numbers; nan if there are none but that."""
    numbers = list(values)
    real = [value for value in numbers if not math.isnan(value)]
    if real:
        return max(real) if goal == "max" else min(real)
    return math.nan if numbers else None


def _number(value: float | str) -> float:
    return float(value)  # nan, inf and -inf come as text
