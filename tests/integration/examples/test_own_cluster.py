"""The example of a cluster of one's own, where what keeps its processes is lost too."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.loops import LoopsBackend


@pytest.fixture
def loops(tmp_path: Path) -> Iterator[LoopsBackend]:
    backend = LoopsBackend(tmp_path)
    with backend.inside():
        yield backend
    backend.close()


@pytest.mark.timeout(120)
def test_a_node_that_is_started_by_hand_is_newer_than_all_before(loops: LoopsBackend) -> None:
    handle = loops.start("wait", nodes="1:2:2", restarts=0)
    try:
        loops.greeted(handle, 2)
        before = loops.running(handle, 2).round
        loops.lose_node(handle, "1")
        loops.greeted(handle, 2, after=before)
        before = loops.running(handle, 2, after=before).round
        os.kill(loops.keeper(handle, "1"), signal.SIGKILL)
        before = loops.running(handle, 1, after=before).round
        assert handle.scale(2)  # nothing changes, and what is not there is started
        loops.running(handle, 2, after=before)
        words = Path(f"/proc/{loops.process(handle, '1')}/cmdline").read_text().split("\0")
        assert words[words.index("--replacement") + 1] == "2"
    finally:
        loops.end(handle)
