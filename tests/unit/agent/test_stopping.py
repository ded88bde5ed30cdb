"""Who must be gone by when."""

from __future__ import annotations

from petctl.agent.workers.stopping import PARK_TIMEOUT, Stopping, stopping


def test_unplanned_parking_is_a_matter_of_seconds_whatever_the_grace() -> None:
    assert stopping(10.0, 5.0, planned=False, final=False) == Stopping(
        15.0, 10.0 + PARK_TIMEOUT, 15.0 + PARK_TIMEOUT, False, False
    )


def test_planned_parking_has_the_whole_grace() -> None:
    assert stopping(10.0, 30.0, planned=True, final=False).park_by == 40.0 + PARK_TIMEOUT


def test_of_two_wishes_the_harsher_holds() -> None:
    planned, broken = stopping(10.0, 30.0, planned=True, final=False), stopping(11.0, 5.0, planned=False, final=False)
    both = Stopping(16.0, 11.0 + PARK_TIMEOUT, 16.0 + PARK_TIMEOUT, False, False)
    assert planned.with_another(broken) == both == broken.with_another(planned)
    assert both.with_another(stopping(12.0, 60.0, planned=True, final=True)) == Stopping(
        16.0, 11.0 + PARK_TIMEOUT, 16.0 + PARK_TIMEOUT, False, True
    )
