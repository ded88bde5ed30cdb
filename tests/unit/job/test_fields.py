"""Plain data becomes dataclasses and plain data again; what does not fit is named."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

import pytest

from petctl.job.fields import decode, encode


@dataclass(frozen=True)
class Inner:
    name: str
    ranges: Tuple[Tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Outer:
    number: int
    share: float
    flag: bool = False
    inner: Optional[Inner] = None
    many: List[Inner] = field(default_factory=list)
    named: Dict[str, List[int]] = field(default_factory=dict)
    free: Any = None


WHOLE = Outer(1, 0.5, True, Inner("a", ((1, 2), (3, 4))), [Inner("b")], {"x": [1, 2]}, {"deep": [None]})


@pytest.mark.parametrize("value", [WHOLE, Outer(0, 2)])
def test_what_was_written_is_read_again(value: Outer) -> None:
    assert decode(Outer, json.loads(json.dumps(encode(value)))) == value


def test_what_newer_versions_add_is_left_out_and_defaults_stand_in() -> None:
    assert decode(Outer, {"number": 1, "share": 1, "invented": [], "inner": {"name": "a", "more": 1}}) == Outer(
        1, 1, inner=Inner("a")
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"number": True}, "number: must be int, not bool"),
        ({"number": "1"}, "number: must be int, not str"),
        ({"number": 1.0}, "number: must be int, not float"),
        ({"share": True}, "share: must be float, not bool"),
        ({"share": None}, "share: must be float, not NoneType"),
        ({"flag": 1}, "flag: must be bool, not int"),
        ({"inner": []}, "inner: it must be an object, not list"),
        ({"inner": {}}, "inner: name is missing"),
        ({"inner": {"name": "a", "ranges": [[1]]}}, "inner: ranges: must be a list of 2"),
        ({"many": {"name": "a"}}, "many: must be a list, not dict"),
        ({"many": [{"name": 3}]}, "many: name: must be str, not int"),
        ({"named": {"x": ["1"]}}, "named: must be int, not str"),
        ({"named": []}, "named: must be an object, not list"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        decode(Outer, {**encode(WHOLE), **change})
    assert str(caught.value) == words


@pytest.mark.parametrize("data", [None, [], "text", 3])
def test_no_object_is_no_dataclass(data: object) -> None:
    with pytest.raises(ValueError, match="must be an object"):
        decode(Outer, data)
