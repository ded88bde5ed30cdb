"""The only doors for foreign data."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petctl.errors import ProtocolError
from petctl.rendezvous.core import messages as m
from petctl.rendezvous.core.messages import Failure, Header, Order, Outcome, Place, Progress, Report, Stall

FULL = Report(
    "0",
    "i1",
    7,
    2,
    "host",
    Header(3, "c", 4, 5, 5, 1, 2),
    m.FAILED,
    3,
    5,
    Place(1, 2, 2, 4, "host", 4242, ("10.0.0.1 4", "10.0.0.2 4"), procs=2),
    3,
    5,
    4242,
    True,
    Failure("0", 2, 0, 137, "SIGKILL", "killed", "Traceback", 1.5),
    True,
    True,
    2,
    "unpacking code",
    warming=True,
    elastic=True,
    progress=Progress(9, (4, -1), (2.5, 0.0), (0.4, 0.0), (0.3, 0.0), {"loss": 0.25, "grad/norm": "nan"}, 12.5),
    offer="10.0.0.2 4",
    serving=True,
    sending=True,
)
TOLD = m.encode(FULL)["progress"]


def test_a_full_report_survives_the_way() -> None:
    assert all(getattr(FULL, f.name) for f in dataclasses.fields(Report)), "every field must be set in this test"
    assert m.decode_report(m.encode(FULL)) == FULL


def test_a_full_order_survives_the_way() -> None:
    outcome = Outcome(m.ENDED_FAILED, 3, "why", FULL.failure)
    order = Order(FULL.header, m.CLOSE, 5, True, True, FULL.place, outcome, 4, "sentence", True, Stall(3, "no step"))
    assert m.decode_order(m.encode(order)) == order


@pytest.mark.parametrize(
    "change",
    [
        {"node": ""},
        {"node": "../../etc"},
        {"node": "a b"},
        {"incarnation": "x" * 200},
        {"procs": 0},
        {"procs": True},
        {"procs": "2"},
        {"state": "asleep"},
        {"port": 70000},
        {"port": -1},
        {"number": 2**60},
        {"number": 1.5},
        {"header": []},
        {"header": {"epoch": None, "seq": "x"}},
        {"place": {"rank": 0}},
        {"failure": 3},
        {"note": "x" * 20000},
        {"incarnation": None},
        {"progress": {}},
        {"progress": {**TOLD, "steps": [1, "2"]}},
        {"progress": {**TOLD, "steps": [1]}},
        {"progress": {**TOLD, "paces": 3}},
        {"progress": {**TOLD, "metrics": {"loss": "high"}}},
        {"progress": {**TOLD, "metrics": {"\x1b[2J": 1}}},
        {"progress": {**TOLD, "metrics": {f"m{k}": k for k in range(100)}}},
    ],
)
def test_wrong_reports_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        m.decode_report({**m.encode(FULL), **change})


@pytest.mark.parametrize("change", [{"kind": "dance"}, {"kind": m.RUN}, {"kind": m.CLOSE}, {"header": None}])
def test_wrong_orders_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        m.decode_order({**m.encode(Order(FULL.header)), **change})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([f.name for f in dataclasses.fields(Report)]), json_values))
def test_no_value_gets_past_the_door_with_a_wrong_type(data: dict[str, object]) -> None:
    try:
        report = m.decode_report(data)
    except ProtocolError:
        return
    assert isinstance(report.node, str) and isinstance(report.header, Header) and report.state in m.STATES
