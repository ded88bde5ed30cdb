"""What came of a sweep's points: rows for tables, files and pictures."""

from __future__ import annotations

import csv
import io
import math
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from petctl.sweeps.history import GOOD, Attempt
from petctl.sweeps.measure import best, better
from petctl.sweeps.space import in_words

if TYPE_CHECKING:
    from petctl.sweeps.drive import Driver

UNCOUNTED = ("failed", "lost", "refused")  # whatever they have told before
ENDED = ("succeeded", "failed", "cancelled", "lost", "stopped", "refused", "removed", "skipped")


class Row(NamedTuple):
    """One point."""

    point: int
    job: str  # of its last attempt
    values: dict[str, str]
    state: str
    attempts: int
    value: float | None  # the metric that is asked for
    step: int | None
    seconds: float | None  # that its last attempt ran
    exit_code: int | None
    cause: str  # of its failure, where that has a name
    sentence: str  # why it ended, where that is not plain


class Summary(NamedTuple):
    """The whole sweep."""

    name: str
    cluster: str
    state: str  # driven, left, succeeded, failed, cancelled
    sentence: str
    counts: dict[str, int]
    best: Row | None
    rows: list[Row]


def summary_of(driver: Driver) -> Summary:
    """Where a sweep stands."""
    rows = rows_of(driver)
    counts = dict(Counter(row.state for row in rows))
    state = _state(driver, rows)
    top = best_of(rows, driver.rules.goal)
    done = sum(row.state in ENDED for row in rows)
    said = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    sentence = f"{done} of {len(rows)} points are done ({said})"
    if top is not None and top.value is not None:
        sentence += f"; best {driver.rules.metric} {top.value:.6g} ({in_words(top.values)})"
    if driver.history.reached:
        sentence += f"; {driver.history.reached}"
    return Summary(driver.sweep.name, driver.sweep.cluster, state, sentence, counts, top, rows)


def rows_of(driver: Driver) -> list[Row]:
    """All points, in their order."""
    rows = []
    for number, point in enumerate(driver.sweep.points, 1):
        standing = driver.history.points[number]
        attempt = standing.last or Attempt("", number)
        rows.append(
            Row(
                point=number,
                job=attempt.id,
                values=point.values,
                state=driver.history.state(number),
                attempts=len(standing.attempts),
                value=value_of(attempt, driver),
                step=int(attempt.metrics["step"]) if "step" in attempt.metrics else None,
                seconds=_seconds(attempt),
                exit_code=attempt.exit_code,
                cause=attempt.cause,
                sentence=(attempt.stop or attempt.sentence) if attempt.state != "succeeded" else "",
            )
        )
    return rows


def value_of(attempt: Attempt, driver: Driver) -> float | None:
    """The metric of an attempt: its last value, or its best."""
    metric, rules = driver.rules.metric, driver.rules
    if rules.take == "best":
        known = (seen[metric] for seen in (attempt.metrics, attempt.low, attempt.high) if metric in seen)
        return best(known, rules.goal)
    return attempt.metrics.get(metric)


def best_of(rows: list[Row], goal: str) -> Row | None:
    """The point with the best value; of those that failed none counts, nor does one that is beyond all numbers."""
    top: Row | None = None
    for row in rows:
        good = row.value is not None and math.isfinite(row.value) and row.state not in UNCOUNTED
        if good and (top is None or better(goal)(row.value, top.value)):  # type: ignore[arg-type]  # both are known
            top = row
    return top


def exit_code(rows: list[Row]) -> int:
    """0 when every point did what it should."""
    return int(any(row.state not in GOOD for row in rows))


def to_plain(summary: Summary) -> dict[str, Any]:
    """Plain data, as `-o json` prints it."""
    plain = {**summary._asdict(), "best": _plain(summary.best) if summary.best else None}
    plain["points"] = [_plain(row) for row in plain.pop("rows")]
    return plain


def to_csv(summary: Summary, metric: str) -> str:
    """A table for other programs: one line per point, the parameters first."""
    names = list(summary.rows[0].values)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*names, metric or "metric", "point", "job", "state", "attempts", "step", "seconds", "exit_code"])
    for row in summary.rows:
        facts = (row.value, row.point, row.job, row.state, row.attempts, row.step, row.seconds, row.exit_code)
        writer.writerow([*(row.values[name] for name in names), *("" if fact is None else fact for fact in facts)])
    return text.getvalue()


def _plain(row: Row) -> dict[str, Any]:
    value = row.value
    if value is not None and not math.isfinite(value):
        value = str(value)  # type: ignore[assignment]  # JSON has no nan
    return {**row._asdict(), "value": value}


def _state(driver: Driver, rows: list[Row]) -> str:
    if driver.folder.driven():
        return "driven"
    if driver.history.open or any(row.state == "waiting" for row in rows):
        return "left"
    if driver.history.cancelled and any(row.state == "cancelled" for row in rows):
        return "cancelled"
    return "failed" if exit_code(rows) else "succeeded"


def _seconds(attempt: Attempt) -> float | None:
    if attempt.started is None:
        return None
    end = attempt.finished or (attempt.started if attempt.ended else time.time())
    return round(max(0.0, end - attempt.started), 3)
