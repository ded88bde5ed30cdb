"""What a sweep's table, files and picture show."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from petctl.cli.sweeps.show import advice, cells, first_rows, first_words, header, untold
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
    assert advice(summary) == ["the sweep is stopped; continue it with: petctl sweep resume tune"]
    assert json.loads(json.dumps(to_plain(summary), allow_nan=False))["points"][2]["value"] == "nan"
    table = list(csv.DictReader(io.StringIO(to_csv(summary, "loss"))))
    assert [row["lr"] for row in table] == ["0.1", "0.2", "0.3", "0.4"]
    assert table[1]["exit_code"] == "3"


@pytest.mark.parametrize("goal, beyond", [("min", -math.inf), ("max", math.inf)])
def test_what_is_beyond_all_numbers_is_not_the_best(goal: str, beyond: float) -> None:
    one = driver({"lr": "0.1"}, {"lr": "0.2"}, goal=goal)
    told(one, 1, "succeeded", beyond)
    told(one, 2, "succeeded", 1.0)
    top = summary_of(one).best
    assert top is not None and top.point == 2


def test_a_metric_that_no_point_has_told() -> None:
    one = driver({"lr": "0.1"}, {"lr": "0.2"})
    assert untold(one, summary_of(one)) == []
    told(one, 1, "succeeded")
    (line,) = untold(one, summary_of(one))
    assert line.startswith("no point reported loss: they reported no metric; see ")
    assert line.endswith("petctl logs tune-001")
    one.folder.note("ended", id="tune-001", state="succeeded", metrics={"val_loss": 1.0, "step": 3.0})
    one.read()
    assert "they reported val_loss;" in untold(one, summary_of(one))[0]
    told(one, 2, "succeeded", 3.0)
    assert untold(one, summary_of(one)) == []


def test_values_keep_their_line_in_tables_and_sentences() -> None:
    one = driver({"lr": "1\n2\x1b[2J"})
    told(one, 1, "succeeded", 3.0)
    summary = summary_of(one)
    assert summary.sentence.endswith(r"best loss 3 (lr=1\n2\x1b[2J)") and cells(summary.rows[0])[1] == r"1\n2\x1b[2J"
    assert next(csv.DictReader(io.StringIO(to_csv(summary, "loss"))))["lr"] == "1\n2\x1b[2J"


def test_a_sweep_that_had_ended_before_it_was_cancelled() -> None:
    one = driver({"lr": "0.1"})
    told(one, 1, "succeeded", 3.0)
    one.folder.note("cancel")
    one.read()
    assert summary_of(one).state == "succeeded"


def test_points_that_repeat_others_are_told() -> None:
    assert first_words("tune", [{"a": "1"}]) == ["sweep tune has 1 point"]
    assert first_words("tune", [{"a": "1"}] * 3) == [
        "sweep tune has 3 points",
        "2 points repeat others, and will run too: a=1, ...",
    ]
    assert first_words("tune", [{"a": "1"}] * 2)[1] == "one point repeats another, and will run too: a=1"


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
    through = [path for path in picture.findall(".//{*}path") if path.find("{*}title") is not None]
    assert len(through) == 2  # parallel coordinates
    assert {"lr", "opt", "loss"} <= set(texts)


def test_of_one_parameter_there_are_no_parallel_coordinates() -> None:
    one = driver({"lr": "0.001"}, {"lr": "0.1"})
    told(one, 1, "succeeded", 3.0)
    told(one, 2, "succeeded", 2.0)
    assert not ElementTree.fromstring(draw(one)).findall(".//{*}path/{*}title")


def test_nothing_to_draw_is_told() -> None:
    with pytest.raises(UsageError, match="reported its loss"):
        draw(driver({"lr": "1"}))


def test_a_metric_that_never_was_a_number_is_told() -> None:
    one = driver({"lr": "1"})
    told(one, 1, "succeeded", math.nan)
    with pytest.raises(UsageError, match="a loss that is a number"):
        draw(one)
