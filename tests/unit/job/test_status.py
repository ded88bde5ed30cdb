"""A status is the same after its journey through files and over the wire; users get it in full."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import msgspec
import pytest

from petctl.errors import InternalError
from petctl.job.status import (
    ErrorStatus,
    JobStatus,
    NodeStatus,
    ProgressStatus,
    RankProgress,
    RoleStatus,
    RoundStatus,
    SizeStatus,
)

ERROR = ErrorStatus("1", 3, 1, 137, "SIGKILL", "killed", "Traceback", 5.0, True, "worker 1", "host-out-of-memory", True)
FULL = JobStatus(
    id="mnist-22aa",
    name="mnist",
    cluster="k8s",
    state="failed",
    since=9.0,
    sentence="rank 3 failed",
    size=SizeStatus(1, 2, 4),
    submitted=1.0,
    command="train.py",
    roles=[RoleStatus("ps", 2)],
    cwd="/home/somebody",
    code="snapshot",
    folders=["data: s3://b/data (ro)"],
    directory="/jobs/mnist-22aa",
    results="s3://b/runs",
    round=3,
    epoch=7,
    spent=1,
    restarts=3,
    world_size=4,
    nodes=[NodeStatus("0", "running", "10.0.0.1", 0, [0, 1], 1, 77, "at work"), NodeStatus("1", "gone")],
    rounds=[RoundStatus.of(3, "it starts", {"0": (0, 2), "1": (2, 2)}, world_size=4, started=2.0, seconds_lost=0.5)],
    rounds_run=3,
    nodes_lost=1,
    seconds_lost=0.5,
    progress=ProgressStatus(9, 2.5, {"loss": 0.5, "norm": "nan"}, 8.0, [RankProgress(0, "0", 9, 2.5)], [1]),
    last_failure=ERROR,
    exit_code=137,
    error=ERROR,
    started=2.0,
    finished=9.0,
    cut_short=True,
    unattended=True,
    summary=True,
)
BARE = JobStatus("a-22aa", "a", "local", "pending", 1.0, "it waits", SizeStatus(1, 1, 1), 0.5)


def test_each_field_is_put_to_the_test() -> None:
    assert [field.name for field in fields(JobStatus) if getattr(FULL, field.name) == getattr(BARE, field.name)] == []


@pytest.mark.parametrize("status", [FULL, BARE], ids=["full", "bare"])
def test_what_was_written_is_read_again(status: JobStatus) -> None:
    assert JobStatus.from_dict(json.loads(json.dumps(status.pack()))) == status
    assert msgspec.json.decode(msgspec.json.encode(status), type=JobStatus) == status, "as the registry keeps it"


def test_what_newer_versions_add_is_left_out() -> None:
    packed = FULL.pack()
    packed["nodes"][0]["of_tomorrow"] = packed["size"]["of_tomorrow"] = packed["of_tomorrow"] = 1
    assert JobStatus.from_dict(packed) == FULL


def test_users_get_members_and_ranks_in_full() -> None:
    plain = json.loads(json.dumps(FULL.to_dict()))
    assert list(plain) == [field.name for field in fields(JobStatus)]
    assert plain["rounds"] == [
        {
            "number": 3,
            "reason": "it starts",
            "nodes": ["0", "1"],
            "world_size": 4,
            "started": 2.0,
            "seconds_lost": 0.5,
            "members": {"0": [0, 2], "1": [2, 2]},
        }
    ]
    assert plain["nodes"][0]["ranks"] == [0, 1] and plain["nodes"][1]["rank"] is None
    assert plain["progress"]["ranks"] == [{"rank": 0, "node": "0", "step": 9, "steps_per_second": 2.5}]
    assert plain["error"]["cause"] == "host-out-of-memory"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": None}, "state: must be str, not NoneType"),
        ({"size": {"min": 1, "wanted": "2", "max": 4}}, "size: wanted: must be int, not str"),
        ({"nodes": None}, "NoneType"),
        ({"nodes": [{"name": "0"}]}, "nodes: state is missing"),
        ({"nodes": [{"name": "0", "state": "running", "ranks": "0:x"}]}, "invalid literal"),
        ({"rounds": [{"number": 1, "reason": "x"}]}, "rounds: blocks is missing"),
        ({"rounds": [{"number": 1, "reason": "x", "blocks": [["0", 0]]}]}, "rounds: blocks: must be a list of 3"),
        ({"progress": {"step": 1, "ranks": [1]}}, "list indices"),
        ({"progress": {"step": 1, "ranks": {"rank": "0"}}}, "node"),
        ({"error": {"node": "0"}}, "error: rank is missing"),
        ({"exit_code": "1"}, "exit_code: must be int, not str"),
    ],
)
def test_a_damaged_status_is_named_with_what_to_do(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InternalError) as caught:
        JobStatus.from_dict({**FULL.pack(), **change})
    assert str(caught.value).startswith("the status of mnist-22aa is damaged (") and words in str(caught.value)
    assert str(caught.value).endswith("forget it with: petctl rm mnist-22aa")


@pytest.mark.parametrize("missing", ["id", "name", "cluster", "state", "since", "sentence", "size", "submitted"])
def test_what_a_status_must_have(missing: str) -> None:
    packed = FULL.pack()
    del packed[missing]
    with pytest.raises(InternalError, match=f"{missing} is missing"):
        JobStatus.from_dict(packed)


@pytest.mark.parametrize("data", [None, [], "text", 7])
def test_what_is_no_object_is_damaged(data: object) -> None:
    with pytest.raises(InternalError, match="the status of a job is damaged"):
        JobStatus.from_dict(data)
