"""The diagnosis of a job: what is told as its root cause, what is only listed, and how much of a log is kept."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from petctl.cli.jobs.diagnose import diagnosis_lines
from petctl.clusters.base import LogLine
from petctl.errors import PetctlError
from petctl.jobs import JobHandle, Status
from petctl.jobs.diagnosis import LAST_LINES, Diagnosis, diagnose, diagnose_log
from petctl.jobs.status import ErrorStatus, SizeStatus

FULL = "OSError: [Errno 28] No space left on device"
ERROR = ErrorStatus(
    node="1", rank=3, local_rank=1, code=1, message=FULL, traceback=f"Traceback\n{FULL}", cause="no-space"
)


class Job:
    """What a handle tells of a job that has ended."""

    def __init__(self, lines: list[LogLine], events: list[dict[str, Any]] | None = None, **fields: Any) -> None:
        self.lines, self.told, self.fields = lines, events or [], fields

    def status(self) -> Status:
        size = SizeStatus(min=1, wanted=1, max=1)
        known = {"state": "failed", "sentence": "it failed", "error": ERROR, **self.fields}
        return Status(id="a-1", name="a", cluster="local", since=0.0, size=size, submitted=0.0, **known)

    def events(self) -> Iterator[dict[str, Any]]:
        return iter(self.told)

    def logs(self, blocks: bool = False) -> Iterator[LogLine]:
        assert blocks
        return iter(self.lines)


def diagnosed(lines: list[LogLine], events: list[dict[str, Any]] | None = None, **fields: Any) -> Diagnosis:
    return diagnose(cast(JobHandle, Job(lines, events, **fields)))


LINES = [
    LogLine(1, 0, "err", b"one\nConnection reset by peer\ntwo\n"),
    LogLine(1, 3, "err", f"a\nb\nc\n{FULL}\nd\n".encode()),
    LogLine(2, 3, "out", f"e\n{FULL}: 'x'\n".encode()),
    LogLine(2, 5, "err", b"Connection refused\nConnection refused\n"),
]


def test_the_root_cause_comes_first_with_the_newest_lines_that_show_it() -> None:
    found = diagnosed(LINES)
    assert [finding.cause for finding in found.findings] == ["no-space", "network"]
    root, other = found.findings
    assert found.root == root and not root.transient and "full" in root.says
    assert (root.count, root.ranks, root.where) == (2, [3], "round 2, rank 3, out")
    assert root.excerpt == ["e", f"{FULL}: 'x'"]
    assert (other.count, other.ranks, other.where) == (3, [0, 5], "round 2, rank 5, err")
    assert found.last_lines[0] == "a" and found.last_lines[-1] == f"{FULL}: 'x'", "those of the rank that failed"
    told = "\n".join(diagnosis_lines(found))
    assert told.startswith(
        "job a-1 failed: it failed\ncause   no-space: a disk is full (rank 3; 2 times)\nadvice  Remove"
    )
    assert "\nseen    network: a connection to another process or machine failed (rank 0, 5; 3 times)\n" in told


def test_lines_that_come_one_by_one_have_neighbours_too() -> None:
    lines: list[LogLine] = []
    for text in [b"x" * 99] * 1000 + [b"a", b"b", FULL.encode(), b"c"]:
        lines += [LogLine(1, 3, "err", text + b"\n"), LogLine(1, 0, "err", b"another rank\n")]
    found = diagnosed(lines)
    assert found.root is not None and found.root.excerpt == ["a", "b", FULL, "c"]
    assert found.last_lines[-1] == "c"


def test_an_unknown_failure_is_said_to_be_one_whatever_the_logs_show() -> None:
    unknown = ErrorStatus(node="1", rank=5, local_rank=1, code=3, message="bad step")
    found = diagnosed([*LINES, LogLine(2, 5, "err", b"ValueError: bad step\n")], error=unknown)
    assert found.root is None and {finding.cause for finding in found.findings} == {"no-space", "network"}
    told = diagnosis_lines(found)
    assert told[1] == "found no known cause; the last lines:"
    assert told[4] == "    ValueError: bad step"


def test_a_status_without_a_cause_is_read_again() -> None:
    """As agents of older versions tell it."""
    error = ErrorStatus(node="1", rank=5, local_rank=1, code=1, message="ModuleNotFoundError: No module named 'a'")
    root = diagnosed([], error=error).root
    assert root is not None and (root.cause, root.count, root.ranks) == ("missing-module", 1, [5])
    assert root.excerpt == [error.message] and root.where == "rank 5 on node 1"
    assert diagnosed([], error=ErrorStatus(node="1", rank=5, local_rank=1, code=1, cause="of-tomorrow")).root is None


def test_ends_without_a_worker_and_lost_nodes_are_causes_too() -> None:
    events: list[dict[str, Any]] = [
        {"kind": "lost", "node": "0", "why": "it left", "sentence": "node 0 is gone: it left"},
        {"kind": "lost", "node": "1", "why": "silent for 5 s", "sentence": "node 1 is gone: silent for 5 s"},
        {"kind": "failure", "sentence": "x", "failure": {"node": "2", "rank": 4, "cause": "ecc", "message": "ECC"}},
    ]
    found = diagnosed([], events, error=None, sentence="over the time limit of 60 s")
    assert [finding.cause for finding in found.findings] == ["time-limit", "ecc", "node-lost"]
    assert [finding.excerpt for finding in found.findings][2] == ["node 1 is gone: silent for 5 s"]


def test_a_job_that_succeeded_has_no_root_cause() -> None:
    found = diagnosed(LINES, state="succeeded", error=None, last_failure=ERROR)
    assert found.root is None and len(found.findings) == 2
    assert "no known cause" not in "\n".join(diagnosis_lines(found))
    quiet = diagnosed([], state="succeeded", error=None)
    assert diagnosis_lines(quiet)[-1] == "found no sign of a failure"
    assert diagnosis_lines(diagnosed([], state="running", error=None))[1:] == ["found no sign of a failure"]
    waits = diagnosed(
        [], state="starting", error=None, sentence="waiting: the image none:1 is not available (not found)"
    )
    assert waits.root is not None and waits.root.cause == "image"
    assert "found no sign of a failure" not in diagnosis_lines(waits)
    again = diagnosed([], state="running", error=None, last_failure=ERROR)
    assert again.failed and again.root is not None and again.root.cause == "no-space"


def test_logs_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    class Away(Job):
        def logs(self, blocks: bool = False) -> Iterator[LogLine]:
            raise PetctlError("the cluster is away")

    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "prepare-0.out").write_text("ERROR: No matching distribution found for nothing-such\n")
    found = diagnose(cast(JobHandle, Away([], directory=str(tmp_path))))
    assert found.root is not None and found.root.cause == "no-space"
    assert found.findings[1].cause == "requirements" and found.findings[1].where == "prepare-0.out"
    assert diagnosis_lines(found)[-1] == "some logs could not be read: the cluster is away"


@pytest.mark.parametrize("size", [10, 3 << 20])
def test_what_is_kept_of_a_log_does_not_grow_with_it(size: int) -> None:
    log = b"y" * size + b"\n" + b"x\n" * size + b"z" * (3 << 20) + f"\n{FULL}\n".encode() + b"last\n" * 50
    found = diagnose_log("train.log", io.BytesIO(log))
    assert found.root is not None and found.root.cause == "no-space" and found.root.count == 1
    assert len(found.last_lines) == LAST_LINES and len("".join(found.root.excerpt)) < 2000
    assert (found.job, found.root.where) == ("", "train.log")


def test_a_log_without_anything_known() -> None:
    found = diagnose_log("train.log", io.BytesIO(b"one\ntwo"))
    assert (found.root, found.findings, found.last_lines) == (None, [], ["one", "two"])
    assert diagnosis_lines(diagnose_log("empty", io.BytesIO(b""))) == ["found no known cause, and no line of a log"]
