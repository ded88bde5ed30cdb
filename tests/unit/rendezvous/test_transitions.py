"""The table of the coordinator's phases: it is whole, it runs the machine, and the page shows it."""

from __future__ import annotations

import inspect

import pytest

from petctl.rendezvous.core import events
from petctl.rendezvous.core.events import Config, End, Late, Recorded
from petctl.rendezvous.core.machine import Coordinator
from petctl.rendezvous.core.messages import CANCELLED, Outcome
from petctl.rendezvous.core.transitions import CLOSED, CLOSING, GATHERING, START, TRANSITIONS
from tests.golden.state_diagram import PAGE, drawn

NO_FACTS = {"Tell", "Record", "Lost", "Event", "Config"}  # effects and values of events.py


def coordinator() -> Coordinator:
    return Coordinator(Config(1, 2, 2), 0.0, "a")


def test_every_handler_is_a_method_of_the_coordinator_and_every_next_phase_has_a_row() -> None:
    for row in TRANSITIONS.values():
        for rule in row.values():
            assert list(inspect.signature(getattr(Coordinator, rule.handler)).parameters) == ["self", "event", "now"]
            assert set(rule.next) <= set(TRANSITIONS)


def test_every_handler_is_in_the_table() -> None:
    named = {rule.handler for row in TRANSITIONS.values() for rule in row.values()}
    assert {name for name in dir(Coordinator) if name.startswith(("_on_", "_decide_"))} == named


def test_every_phase_takes_every_fact() -> None:
    facts = {
        kind
        for name, kind in vars(events).items()
        if inspect.isclass(kind) and kind.__module__ == events.__name__ and name not in NO_FACTS
    }
    for phase, row in TRANSITIONS.items():
        if phase != START:
            assert facts - set(row) == (set() if phase == CLOSING else {Recorded}), phase


def test_an_event_without_an_entry_does_nothing() -> None:
    machine = coordinator()
    machine.settle(0.0)
    machine.step(Recorded(Outcome(CANCELLED, 130, "cancelled")), 1.0)
    assert machine.phase == GATHERING and machine.outcome is None and machine.settle(1.0) == []


def test_a_way_that_is_not_in_the_table_is_refused() -> None:
    machine = coordinator()
    machine.step(Late(0.5), 1.0)
    with pytest.raises(RuntimeError, match="no way from gathering to closed"):
        machine.enter(CLOSED)


def test_the_table_is_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(TRANSITIONS[GATHERING], End)
    machine = coordinator()
    machine.step(End(Outcome(CANCELLED, 130, "cancelled")), 1.0)
    machine.settle(1.0)
    assert machine.phase == GATHERING, "without its entry, the event is not heard"


def test_the_page_shows_the_table() -> None:
    page = PAGE.read_text("utf-8")
    assert drawn(page) == page, "python -m tests.golden.state_diagram draws it again"
