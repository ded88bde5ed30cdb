"""Parameters and their points."""

from __future__ import annotations

from pathlib import Path

import pytest

from petctl.errors import UsageError
from petctl.sweeps.pointfile import read_points
from petctl.sweeps.space import check_names, draw, grid, in_words, parse_parameter, repeated


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("lr=0.1,0.010", ["0.1", "0.010"]),
        ("bs=16:128:x2", ["16", "32", "64", "128"]),
        ("n=1:10:3", ["1", "4", "7", "10"]),
        ("n=1:3", ["1", "2", "3"]),
        ("n=1:3,8", ["1", "2", "3", "8"]),
        ("x=0:0.3:0.1", ["0", "0.1", "0.2", "0.3"]),
        ("lr=1e-3:1e-1:x10", ["0.001", "0.01", "0.1"]),
        ('nodes="1:3"', ["1:3"]),
        ("image=repo:tag", ["repo:tag"]),
        ("a='x, y', z ", ["x, y", "z"]),
        ("a='',b", ["", "b"]),
        ("opt=choice(sgd,adam)", ["sgd", "adam"]),
        ("n=int(2,4)", ["2", "3", "4"]),
        ("expr=a=b", ["a=b"]),
    ],
)
def test_values(text: str, values: list[str]) -> None:
    assert list(parse_parameter(text).values) == values


@pytest.mark.parametrize(
    "text",
    [
        "lr",
        "lr=",
        "=1",
        "1x=2",
        "lr=1,,2",
        "lr=1,",
        "lr='a",
        "lr=1:x",
        "lr=3:1",
        "lr=1:3:0",
        "lr=0:8:x2",
        "lr=1:8:x1",
        "lr=sin(1,2)",
        "lr=uniform(1)",
        "lr=uniform(2,1)",
        "lr=log(0,1)",
        "lr=int(1.5,2)",
        "n=1:1000000",
    ],
)
def test_wrong_words_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_parameter(text)


def test_a_grid_has_every_combination_the_last_parameter_changing_fastest() -> None:
    points = grid([parse_parameter("a=1,2"), parse_parameter("b=x,y")])
    assert points == [{"a": "1", "b": "x"}, {"a": "1", "b": "y"}, {"a": "2", "b": "x"}, {"a": "2", "b": "y"}]
    with pytest.raises(UsageError, match="--random"):
        grid([parse_parameter("lr=uniform(0,1)")])
    with pytest.raises(UsageError, match="1000000 points"):
        grid([parse_parameter("a=1:1000"), parse_parameter("b=1:1000")])


def test_a_range_that_is_too_long_is_told_as_such() -> None:
    with pytest.raises(UsageError, match="more than 10000 values"):
        parse_parameter("n=1:1000000")
    with pytest.raises(UsageError, match="--random 0: must be 1"):
        draw([parse_parameter("a=1,2")], 0, seed=0)


def test_points_that_repeat_others() -> None:
    assert repeated(grid([parse_parameter("a=1,2,1"), parse_parameter("b=x,x")])) == [
        {"a": "1", "b": "x"},
        {"a": "2", "b": "x"},
        {"a": "1", "b": "x"},
        {"a": "1", "b": "x"},
    ]
    assert repeated([{"a": "1", "b": "2"}, {"b": "1", "a": "2"}]) == []
    assert repeated([{"a": "1", "b": "2"}, {"b": "2", "a": "1"}]) == [{"a": "1", "b": "2"}]


def test_a_point_in_a_line() -> None:
    assert in_words({"a": "x y", "b": "1\n\x1b[2J", "c": "é"}) == r"a=x y b=1\n\x1b[2J c=é"


def test_random_points_differ_and_depend_on_the_seed_alone() -> None:
    parameters = [parse_parameter("lr=log(1e-5,1e-1)"), parse_parameter("opt=sgd,adam")]
    points = draw(parameters, 50, seed=1)
    assert points == draw(parameters, 50, seed=1) != draw(parameters, 50, seed=2)
    assert len({tuple(point.values()) for point in points}) == 50
    assert all(1e-5 <= float(point["lr"]) <= 1e-1 for point in points)
    small = sum(float(point["lr"]) < 1e-3 for point in points)
    assert 15 <= small <= 35  # as many below the geometric mean as above it
    assert {point["opt"] for point in points} == {"sgd", "adam"}


def test_of_countable_points_none_is_drawn_twice() -> None:
    few = [parse_parameter("a=1:3"), parse_parameter("b=1:3")]
    assert len({tuple(point.values()) for point in draw(few, 9, seed=0)}) == 9
    with pytest.raises(UsageError, match="only 9"):
        draw(few, 10, seed=0)
    many = [parse_parameter(f"{name}=1:100") for name in "abc"]
    assert len({tuple(point.values()) for point in draw(many, 20, seed=0)}) == 20


def test_names_that_would_be_one_variable_are_refused() -> None:
    check_names(["lr", "bs"])
    for names in (["lr", "LR"], ["lr", "lr"], ["a-b"], ["1"]):
        with pytest.raises(UsageError):
            check_names(names)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.csv", 'lr, bs\n1e-3,16\n"0.10",32\n\n'),
        ("p.json", '[{"lr": 1e-3, "bs": 16}, {"lr": "0.10", "bs": 32}]'),
        ("p.jsonl", '{"lr": 1e-3, "bs": 16}\n\n{"lr": "0.10", "bs": 32}\n'),
        ("p.yaml", "- {lr: 1e-3, bs: 16}\n- lr: 0.10\n  bs: 32\n"),
    ],
)
def test_points_of_a_file_keep_their_text(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert read_points(str(tmp_path / name)) == [{"lr": "1e-3", "bs": "16"}, {"lr": "0.10", "bs": "32"}]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("p.csv", "lr,bs\n1\n", "line 2 has 1 values for 2 names"),
        ("p.csv", "lr\n", "no point"),
        ("p.csv", "lr,lr\n1,2\n", "two columns"),
        pytest.param("p.csv", "lr\n" + 200_000 * "1", "line 2 cannot be parsed", id="a long field"),
        pytest.param("p.json", 100_000 * "[", "nested more than 16 levels", id="deep"),
        ("p.csv", "a;b\n1;2\n", r"p\.csv: 'a;b' cannot be a parameter"),
        ("p.json", '[{"a": 1}, {"b": 1}]', r"p\.json:1:12: this point differs from the first one in a, b"),
        ("p.json", '[{"a": 1, "a": 2}]', r"p\.json:1:11: 'a' is given twice"),
        ("p.jsonl", '{"a": 1, "a": 2}', "line 1:1:10: 'a' is given twice"),
        ("p.yaml", "- {a: 1, a: 2}", "1:10: 'a' is given twice"),
        ("p.json", '{"a": 1}', "a list of points"),
        ("p.json", "[1]", "must be a mapping"),
        ("p.json", '[{"a": [1]}]', "a must be text"),
        ("p.yaml", "- {a: null}", "p.yaml:1:3: a must be text or a number; put quotes"),
        ("p.json", "[", "1:2: not JSON"),
        ("p.yaml", "- {a: ", "2:1: not YAML"),
        ("p.txt", "", "must end in"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(tmp_path: Path, name: str, text: str, told: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=told):
        read_points(str(tmp_path / name))
