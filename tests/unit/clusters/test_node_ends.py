"""What any platform may tell of nodes that are missing or lost, in a job's status."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from petctl.clusters.backend import Inspection
from petctl.clusters.node_ends import NodeEnd
from petctl.controller.journals.records import first_status
from petctl.job.status import JobStatus
from tests.unit.records import job_record

WAITING = replace(first_status(job_record()), sentence="waiting")


@dataclass(frozen=True)
class Eviction(NodeEnd):
    kind = "machine"


class Rack(Inspection):
    """A job on a platform that knows why one node is missing, and that another's machine is gone with its traces."""

    job_id = "train-2222"

    def status(self) -> JobStatus:
        return WAITING

    def ask(self, call: str, patience: float = 30.0, **params: Any) -> Any:
        raise NotImplementedError

    def absent(self, status: JobStatus) -> dict[str, str]:
        return {"1": "its rack has no power"}

    def ends(self, gone: bool = False) -> list[NodeEnd]:
        return [Eviction("0", "m-7", "was taken away", 5.0, "u")] if gone else []


class Silent(Rack):
    """The same on one that knows nothing."""

    absent, ends = Inspection.absent, Inspection.ends  # type: ignore[assignment]


def test_missing_nodes_have_rows_and_reasons() -> None:
    told = Rack().explain(WAITING)
    assert told.sentence == "waiting; node 1: its rack has no power"
    assert [(node.name, node.state, node.sentence) for node in told.nodes] == [
        ("1", "pending", "its rack has no power")
    ]


def test_a_job_that_failed_without_an_error_of_its_own_tells_how_its_nodes_ended() -> None:
    failed = replace(WAITING, state="failed", finished=9.0)
    assert Rack().explain(failed).sentence == "waiting; machine m-7 of node 0 was taken away"
    assert Rack().explain(replace(failed, state="succeeded")).sentence == "waiting"


def test_a_platform_that_knows_nothing_changes_nothing() -> None:
    assert Silent().explain(WAITING) == WAITING
    lost = replace(WAITING, nodes_lost=2)
    assert Silent().explain(lost) == lost
