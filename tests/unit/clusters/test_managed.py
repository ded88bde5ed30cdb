"""ManagedCluster: what it does where the answer of a coordinator does not come."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from petctl.clusters.backend import Backend, Inspection
from petctl.clusters.base import SCALE
from petctl.clusters.managed import ManagedCluster
from petctl.errors import Unreachable, UsageError
from petctl.job.status import JobStatus, SizeStatus


class Ending(Inspection):
    """A job whose coordinator has gone, and which is known to have ended only a moment later."""

    job_id, asks = "case-1", True

    def __init__(self, over: bool) -> None:
        self._over = over

    @property
    def over(self) -> bool:
        return self._over

    def status(self) -> JobStatus:
        return JobStatus("case-1", "case", "stub", "succeeded", 0.0, "ended", SizeStatus(1, 1, 2), 0.0)

    def ask(self, call: str, patience: float = 30.0, **params: Any) -> Any:
        raise Unreachable("nobody listens any more")

    def wait(self, timeout: float) -> None:
        """As if it had gone by."""


class EndingBackend(Backend[Ending]):
    """One such job."""

    name, home, capabilities = "stub", Path("/nonexistent"), frozenset({SCALE})
    looks = 0

    def inspect(self, job_id: str) -> Ending:
        self.looks += 1
        return Ending(over=self.looks > 2)


EndingBackend.__abstractmethods__ = frozenset()  # the rest of a backend is not asked


@pytest.fixture
def cluster() -> ManagedCluster[EndingBackend]:
    return ManagedCluster(EndingBackend())  # type: ignore[abstract]


def test_a_wish_for_a_job_that_just_ends_is_refused_at_once(cluster: ManagedCluster[EndingBackend]) -> None:
    began = time.monotonic()
    with pytest.raises(UsageError, match=r"case-1 has ended \(succeeded\) and cannot be scaled"):
        cluster.scale("case-1", 2)
    assert time.monotonic() - began < 10


def test_a_job_that_ends_while_it_is_cancelled_has_ended(cluster: ManagedCluster[EndingBackend]) -> None:
    began = time.monotonic()
    assert cluster.cancel("case-1", kill=False) == "has ended already"
    assert time.monotonic() - began < 10
