"""Answers as Azure's command line prints them."""

from __future__ import annotations

import json

import pytest

from petctl.compat.batchai.cli.printing import print_answer, select, table, tsv
from petctl.errors import UsageError

JOBS = [
    {"name": "b", "nodeCount": 2, "cluster": {"id": "x"}, "gpu": True, "id": "/1"},
    {"name": "a", "nodeCount": None, "cluster": None, "gpu": False, "id": "/2"},
]


def test_json_has_its_keys_in_the_order_of_the_alphabet(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer({"b": {"d": 1, "c": 2}, "a": None}, "json", None)
    assert capsys.readouterr().out == json.dumps({"a": None, "b": {"c": 2, "d": 1}}, indent=2) + "\n"


def test_a_query_chooses_and_orders(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer(JOBS, "json", "[?gpu].{Second:nodeCount, First:name}")
    assert json.loads(capsys.readouterr().out) == [{"Second": 2, "First": "b"}]
    print_answer(JOBS, "tsv", "[].[name,nodeCount]")
    assert capsys.readouterr().out == "b\t2\na\tNone\n"
    print_answer(JOBS[0], "tsv", "name")
    assert capsys.readouterr().out == "b\n"


@pytest.mark.parametrize("query", ["[?", "abs('x')", "nosuch(@)"])
def test_a_wrong_query_is_a_sentence(query: str) -> None:
    with pytest.raises(UsageError, match="is not a JMESPath"):
        select({"a": "text"}, query)


def test_a_table_has_columns_of_plain_values_only() -> None:
    assert table(JOBS).splitlines() == [
        "Name  NodeCount  Gpu",
        "----  ---------  -----",
        "b     2          True",
        "a                False",
    ]
    assert table([[1, "x"]]).splitlines()[0] == "Column1  Column2"
    assert table("word").splitlines() == ["Result", "------", "word"]
    assert table([]) == ""


def test_tsv_counts_lists_and_leaves_objects_out() -> None:
    assert tsv([{"a": [1, 2], "b": {"c": 1}, "d": True, "e": "x"}]) == "2\t\ttrue\tx"


def test_jsonc_is_json_where_nobody_sees_colours(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer({"a": 1}, "jsonc", None)
    assert json.loads(capsys.readouterr().out) == {"a": 1}
