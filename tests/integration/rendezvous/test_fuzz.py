"""A few thousand of the hostile inputs of benchmarks/fuzz_coordinator.py, and a small rendezvous of its sibling."""

import rendezvous
from fuzz_coordinator import fuzz


def test_hostile_input_changes_nothing():
    result = fuzz(inputs=4000, seed=3)
    assert result.complaints == []
    assert result.dropped > 2000


def test_a_rendezvous_over_several_processes():
    result = rendezvous.measure(32)
    assert result.seconds < 3
    assert result.messages < 8
