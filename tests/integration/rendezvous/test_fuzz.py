"""A few thousand of the hostile inputs of benchmarks/fuzz_coordinator.py, and a small rendezvous of its sibling."""

import rendezvous
from fuzz_coordinator import fuzz


def test_hostile_input_changes_nothing():
    result = fuzz(inputs=4000, seed=3)
    assert result.complaints == []
    assert result.dropped > 2000


def test_a_rendezvous_over_several_processes():
    results = (rendezvous.measure(32) for _ in range(4))  # one of them is not held up by others on this machine
    assert any(result.seconds < 3 and result.messages < 8 for result in results)
