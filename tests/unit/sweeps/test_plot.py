"""Axes, and points as lines through them: what is where, and what stands out."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from petctl.sweeps.axes import axis_of, axis_of_texts, labelled, spaced
from petctl.sweeps.parallel import BEST, GOOD, PLAIN, Coordinates, coordinates
from petctl.sweeps.plot import over_parameter, svg
from petctl.sweeps.results import Row
from petctl.sweeps.textplot import ASCII, FULL, HIGH, draw_text


def row(point: int, value: float, state: str = "succeeded", **values: str) -> Row:
    return Row(point, f"tune-{point:03d}", values, state, 1, value, None, None, None, "", "")


ROWS = [
    row(1, 4.0, lr="0.001", opt="sgd"),
    row(2, 1.0, lr="0.01", opt="adam"),
    row(3, 0.5, "failed", lr="0.1", opt="adam"),
]


def ranks(picture: Coordinates) -> dict[int, int]:
    return {line.row.point: line.rank for line in picture.lines}


def test_numbers_that_differ_much_are_placed_by_their_magnitude() -> None:
    axis, places = axis_of_texts(["0.001", "1e-2", "0.1"])
    assert places == pytest.approx([0.0, 0.5, 1.0])
    assert [label for _, label in axis.ticks] == ["0.001", "0.01", "0.1"]
    assert axis_of_texts(["0", "0.001", "1"])[1] == [0.0, 0.001, 1.0]  # nothing has no magnitude
    assert axis_of_texts(["1", "2", "4"])[1] == pytest.approx([0.0, 1 / 3, 1.0])
    assert axis_of_texts(["7", "7.0"])[1] == [0.5, 0.5]


@pytest.mark.parametrize("ends", [(-1.7e308, 1.7e308), (0.0, 5e-324), (5e-324, 1.7e308)])
def test_every_number_has_a_place(ends: tuple[float, float]) -> None:
    axis = axis_of(ends)
    assert [axis.place(end) for end in ends] == [0.0, 1.0]


def test_texts_have_places_of_their_own_and_so_have_numbers_among_them() -> None:
    axis, places = axis_of_texts(["sgd", "1", "sgd", "nan"])
    assert places == pytest.approx([1 / 6, 3 / 6, 1 / 6, 5 / 6])
    assert [label for _, label in axis.ticks] == ["sgd", "1", "nan"]


def test_a_few_numbers_are_labelled_as_they_were_written() -> None:
    assert [label for _, label in labelled(["16", "32", "128", "64"])[0].ticks] == ["16", "32", "64", "128"]
    assert [label for _, label in labelled(["5e-2", "3e-1"])[0].ticks] == ["5e-2", "3e-1"]
    assert len(labelled([str(number) for number in range(100)])[0].ticks) == 5
    many = labelled([f"{1.5**number:.6g}" for number in range(20)])[0].ticks
    assert [label for _, label in many] == ["1", "10", "100", "1000", "2216.84"]
    words = labelled([f"w{number}" for number in range(20)])[0].ticks
    assert len(words) == 20


def test_labels_have_room_and_the_ends_go_first() -> None:
    ticks = [(0.0, "a"), (0.05, "b"), (0.5, "c"), (0.55, "d"), (1.0, "e")]
    assert [label for _, label in spaced(ticks, 0.1)] == ["e", "a", "d"]
    assert spaced(ticks[:1], 0.1) == ticks[:1] and spaced([], 0.1) == []


def test_a_line_goes_through_all_values_of_its_point_and_the_best_is_on_top() -> None:
    picture = coordinates(ROWS, "loss", "min")
    assert picture.names == ["lr", "opt", "loss"]
    assert [line.row.point for line in picture.lines] == [3, 1, 2]
    assert picture.lines[-1].places == pytest.approx((0.5, 0.75, 1 / 7))
    assert ranks(picture) == {1: PLAIN, 2: BEST, 3: PLAIN}  # a failed one is not the best
    assert ranks(coordinates(ROWS, "loss", "max")) == {1: BEST, 2: PLAIN, 3: PLAIN}
    assert ranks(coordinates(ROWS[2:], "loss", "min")) == {3: PLAIN}
    assert [label for _, label in picture.axes[-1].ticks][:: len(picture.axes[-1].ticks) - 1] == ["0.5", "4"]


def test_the_best_tenth_stands_out() -> None:
    rows = [row(point, float(point), n=str(point)) for point in range(1, 31)]
    picture = coordinates(rows, "loss", "min")
    assert [point for point, rank in ranks(picture).items() if rank == GOOD] == [3, 2]
    assert ranks(picture)[1] == BEST


def test_a_picture_of_many_points_and_odd_values_is_xml() -> None:
    rows = [row(point, float(point), a=f"<{point}>", b="x\x1b\ny", c="1") for point in range(1, 60)]
    picture = ElementTree.fromstring(f"<svg>{svg(coordinates(rows, 'a & b', 'min'))}</svg>")
    lines = [path for path in picture.findall("path") if path.find("title") is not None]
    assert len(lines) == 59
    assert [line.attrib["stroke-width"] for line in lines[-2:]] == ["1.5", "2.5"]
    labels = [(text.attrib["x"], float(text.attrib["y"])) for text in picture.findall("text")]
    assert len(labels) == len(set(labels)) < 59  # as many as there is room for


def test_labels_below_a_panel_do_not_cover_each_other() -> None:
    def labels(*names: str) -> list[str]:
        rows = [row(number, float(number), a=name) for number, name in enumerate(names, 1)]
        panel = ElementTree.fromstring(f"<svg>{over_parameter('a', 'loss', rows, None)}</svg>")
        return [str(text.text) for text in panel.findall("text") if text.attrib["text-anchor"] == "middle"]

    assert sorted(labels("sgd", "adam", "lion")) == ["adam", "lion", "sgd"]
    assert labels("0.001", "0.1") == ["0.1", "0.001", "0.01"]
    assert len(labels(*(f"a-long-word-{number}" for number in range(50)))) == 3


def test_a_picture_for_a_terminal() -> None:
    lines = draw_text(coordinates(ROWS, "loss", "min"), 60, FULL).splitlines()
    assert lines[0].split() == ["lr", "opt", "loss"]
    assert len(lines) == HIGH + 2
    assert max(map(len, lines[:-1])) <= 60
    assert lines[1].startswith("┤0.1") and lines[HIGH].startswith("┤0.001")
    assert lines[(HIGH + 1) // 2].startswith("●0.01")  # the best line crosses there
    assert any("adam" in line for line in lines) and any("sgd" in line for line in lines)
    assert lines[-1] == "● the best: point 2: lr=0.01 opt=adam: 1"
    plain = draw_text(coordinates(ROWS, "loss", "min"), 60, ASCII)
    assert plain.isascii() and "*" in plain and "." in plain


def test_what_stands_out_is_coloured_and_odd_values_keep_their_line() -> None:
    rows = [row(point, float(point), a=f"{point}\n\x1b[31m", b="1") for point in range(1, 31)]
    coloured: list[int] = []

    def style(text: str, rank: int) -> str:
        coloured.append(rank)
        return text

    told = draw_text(coordinates(rows, "loss", "min"), 10, FULL, style)
    assert set(coloured) == {GOOD, BEST}
    assert len(told.splitlines()) == HIGH + 2 and "\x1b" not in told
