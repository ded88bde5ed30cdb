"""Numbers from reports and from lines."""

from __future__ import annotations

import math

import pytest

from petctl.errors import UsageError
from petctl.jobs.status import ProgressStatus, SizeStatus, Status
from petctl.sweeps.measure import Downsampled, Reading, best, parse_condition, parse_pattern, printed, reported


def test_conditions() -> None:
    assert parse_condition("acc >= 0.95", "--until").holds({"acc": 0.95})
    assert not parse_condition("acc>0.95", "--until").holds({"acc": 0.95})
    assert not parse_condition("acc>0.95", "--until").holds({"loss": 1.0})
    assert not parse_condition("loss>1", "--until").holds({"loss": math.nan})
    assert parse_condition("loss=nan", "--until").holds({"loss": math.nan})
    assert not parse_condition("loss!=nan", "--until").holds({"loss": math.nan})
    assert parse_condition("loss>-1e3", "--until").holds({"loss": math.inf})
    assert str(parse_condition("val/loss<=2", "--until")) == "val/loss<=2"


def test_lines_are_counted_where_they_tell_no_step() -> None:
    lines = ["begin", "loss: 3.5\n", "loss: oops", "loss: 1e-2", "loss: nan"]
    found = list(printed(lines, parse_pattern(r"loss: (\S+)"), "loss"))
    assert [reading.at for reading in found] == [1, 2, 3]
    assert [reading.metrics["loss"] for reading in found[:2]] == [3.5, 0.01]
    assert math.isnan(found[2].metrics["loss"])


def test_lines_with_steps() -> None:
    pattern = parse_pattern(r"step (?P<step>\w+).* acc (?P<value>[\d.]+)")
    found = list(printed(["step 10 of 20, acc 0.5", "step x, acc 1", "step nan, acc 1"], pattern, "acc"))
    assert [(reading.at, dict(reading.metrics)) for reading in found] == [(10, {"acc": 0.5, "step": 10})]


def test_which_group_is_the_value() -> None:
    pattern = parse_pattern(r"step (?P<step>\d+) acc (\S+)")
    assert [dict(reading.metrics) for reading in printed(["step 3 acc 0.5"], pattern, "acc")] == [
        {"acc": 0.5, "step": 3}
    ]
    for text in ("loss", "(a)(b)", r"(?P<step>\d+)", r"(?P<step>\d+) (a)(b)"):
        with pytest.raises(UsageError, match="put the number into a group"):
            parse_pattern(text)


def test_of_many_readings_enough_are_kept_and_the_extremes_are_known() -> None:
    thinned = Downsampled(100)
    for number in range(1001):
        loss = {0: math.nan, 333: -5.0, 335: 9.0}.get(number, 1.0)
        thinned.take(Reading(float(number), {"loss": loss}))
    places = [reading.at for reading in thinned.readings]
    assert 50 <= len(places) <= 101 and places == sorted(places)
    assert (places[0], places[-1]) == (0.0, 1000.0)
    assert (thinned.low, thinned.high) == ({"loss": -5.0}, {"loss": 9.0})
    assert Downsampled(100).readings == []


def test_reports() -> None:
    facts = {"id": "a", "name": "a", "cluster": "local", "state": "running", "since": 0.0, "sentence": ""}
    size = SizeStatus(min=1, wanted=1, max=1)
    assert reported(Status(**facts, size=size, submitted=0.0)) is None  # type: ignore[arg-type]
    progress = ProgressStatus(step=7, metrics={"loss": 0.5, "norm": "inf"})
    reading = reported(Status(**facts, size=size, submitted=0.0, progress=progress))  # type: ignore[arg-type]
    assert reading is not None
    assert reading.at == 7
    assert reading.metrics == {"loss": 0.5, "norm": math.inf, "step": 7}


def test_the_best_is_a_number_if_any_is() -> None:
    assert best([3.0, math.nan, 1.0], "min") == 1.0
    assert best([3.0, 1.0], "max") == 3.0
    assert best([], "min") is None
    nothing = best([math.nan], "min")
    assert nothing is not None and math.isnan(nothing)
