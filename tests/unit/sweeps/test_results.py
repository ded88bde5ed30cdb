"""What a sweep's table, files and picture show."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from petctl.cli.sweep_show import advice, cells, first_rows, header
from petctl.errors import UsageError
from petctl.sweeps.drive import Driver
from petctl.sweeps.plot import draw
from petctl.sweeps.record import Limits, Point, Sweep, create
from petctl.sweeps.results import exit_code, rows_of, summary_of, to_csv, to_plain


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path))


def driver(*values: dict[str, str], **limits: str) -> Driver:
    points = [Point(values=one) for one in values]
    sweep = Sweep(
        name="tune", key="k", created=1.0, cluster="local", cwd="/", request="", job={"script": "a.py"}, points=points
    )
    folder = create(sweep, Limits(metric="loss", **limits), {})  # type: ignore[arg-type]
    assert folder is not None
    return Driver(folder)


def told(one: Driver, point: int, state: str, *losses: float, exit_code: int = 0) -> None:
    name = f"tune-{point:03d}"
    readings = [(step, {"loss": loss, "step": step}) for step, loss in enumerate(losses, 1)]
    one.folder.note("submit", id=name, point=point)
    one.folder.note("seen", id=name, state="running", started=10.0, readings=readings)
    if state != "running":
        facts = {"started": 10.0, "finished": 12.5, "sentence": "so it was", "exit_code": exit_code}
        one.folder.note("ended", id=name, state=state, **facts)
    one.read()


def test_rows() -> None:
    one = driver({"lr": "0.1"}, {"lr": "0.2"}, {"lr": "0.3"}, {"lr": "0.4"})
    told(one, 1, "succeeded", 3.0, 1.0, 2.0)
    told(one, 2, "failed", 0.5, exit_code=3)
    told(one, 3, "succeeded", math.nan)
    rows = rows_of(one)
    assert [row.state for row in rows] == ["succeeded", "failed", "succeeded", "waiting"]
    assert [row.sentence for row in rows] == ["", "so it was", "", ""]
    assert (rows[0].value, rows[0].step, rows[0].seconds) == (2.0, 3, 2.5)
    assert header(one) == ["POINT", "lr", "STATE", "loss", "STEP", "TIME", "TRIES", "JOB"]
    assert cells(rows[0]) == ["1", "0.1", "succeeded", "2", "3", "2.5s", "1", "tune-001"]
    assert cells(rows[3]) == ["4", "0.4", "waiting", "-", "-", "-", "0", "-"]
    summary = summary_of(one)
    assert summary.state == "left"
    assert summary.best is not None and summary.best.point == 1  # a failed one is not the best
    assert summary.sentence == ("3 of 4 points are done (1 failed, 2 succeeded, 1 waiting); best loss 2 (lr=0.1)")
    assert advice(summary) == ["nobody drives it; go on with: petctl sweep resume tune"]
    assert json.loads(json.dumps(to_plain(summary), allow_nan=False))["points"][2]["value"] == "nan"
    table = list(csv.DictReader(io.StringIO(to_csv(summary, "loss"))))
    assert [row["lr"] for row in table] == ["0.1", "0.2", "0.3", "0.4"]
    assert table[1]["exit_code"] == "3"


def test_the_best_value_of_a_point() -> None:
    one = driver({"lr": "0.1"}, take="best")
    told(one, 1, "succeeded", 3.0, 1.0, 2.0)
    assert rows_of(one)[0].value == 1.0
    assert rows_of(Driver(one.folder))[0].value == 1.0  # another one reads the same from the beginning
    assert exit_code(rows_of(one)) == 0


def test_where_there_is_no_room_what_runs_comes_first_and_then_the_best() -> None:
    one = driver(*({"lr": str(number)} for number in range(5)))
    told(one, 1, "succeeded", 3.0)
    told(one, 2, "succeeded", 1.0)
    told(one, 3, "failed")
    told(one, 4, "running", 9.0)
    rows = rows_of(one)
    assert [row.point for row in first_rows(rows, "min", 9)] == [4, 2, 1, 3, 5]
    assert [row.point for row in first_rows(rows, "max", 3)] == [4, 1, 2]


def test_a_picture_has_a_dot_for_each_point_and_parameter_and_a_line_for_each_point() -> None:
    one = driver({"lr": "0.001", "opt": "sgd"}, {"lr": "0.1", "opt": "<adam>"}, {"lr": "1", "opt": "sgd"})
    told(one, 1, "succeeded", 3.0, 1.0, 2.0)
    told(one, 2, "succeeded", 3.0, 2.0, 1.0)
    told(one, 3, "succeeded", math.inf)
    picture = ElementTree.fromstring(draw(one))
    assert len(picture.findall(".//{*}circle")) == 2 * 2
    assert len(picture.findall(".//{*}polyline")) == 2
    texts = [text.text for text in picture.findall(".//{*}text")]
    assert {"loss over lr", "loss over opt", "loss over steps", "<adam>", "0.1"} <= set(texts)


def test_nothing_to_draw_is_told() -> None:
    with pytest.raises(UsageError, match="has told its loss"):
        draw(driver({"lr": "1"}))
