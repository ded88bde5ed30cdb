"""What people read about a job: durations, the status line, the page, the root cause, which events are news."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from petctl.cli.terminal.ending import exit_code, root_cause
from petctl.cli.terminal.follow import is_news, status_line
from petctl.cli.terminal.status_view import job_page
from petctl.cli.terminal.text import duration, many_workers, table, task_names
from petctl.jobs.status import (
    ErrorStatus,
    NodeStatus,
    ProgressStatus,
    RankProgress,
    RoleStatus,
    RoundStatus,
    SizeStatus,
    Status,
)


def a_status(**fields: Any) -> Status:
    now = time.time()
    known: dict[str, Any] = {
        "id": "mnist-3f9k",
        "name": "mnist",
        "cluster": "local",
        "state": "running",
        "since": now - 65,
        "sentence": "round 2 runs",
        "size": SizeStatus(min=1, wanted=2, max=3),
        "submitted": now - 70,
        "command": "train.py --lr 0.1",
        "directory": "/jobs/mnist-3f9k",
        "round": 2,
        "restarts": 3,
        "nodes": [
            NodeStatus(name="0", state="running", ranks=[0, 3], address="127.0.0.1", pid=77),
            NodeStatus(name="1", state="starting"),
        ],
        "rounds": [
            RoundStatus.of(1, "the job starts", {"0": (0, 4)}, world_size=4, started=now - 69),
            RoundStatus.of(2, "node 1 was lost", {"0": (0, 4)}, world_size=4, started=now - 9, seconds_lost=0.42),
        ],
    }
    return Status(**{**known, **fields})


BOOM = ErrorStatus(node="1", rank=5, local_rank=1, code=3, message="boom", traceback="Traceback:\n  ValueError: boom")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0s"),
        (0.44, "0.4s"),
        (12, "12s"),
        (59.7, "1m 00s"),
        (184, "3m 04s"),
        (7500, "2h 05m"),
        (273_600, "3d 04h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_columns_line_up() -> None:
    assert (
        table(["ID", "STATE"], [["a-long-id", "x"], ["b", "y z"]]) == "ID         STATE\na-long-id  x\nb          y z"
    )


def test_the_status_line() -> None:
    assert status_line(a_status()) == "mnist-3f9k  running  1/2 nodes  round 2  1m 10s  round 2 runs"


def test_the_page_tells_everything() -> None:
    page = job_page(a_status(), colour=False)
    for told in ("mnist-3f9k", "running for 1m 05s", "1 running, 2 wanted, 1 to 3 allowed", "0-3", "0.42s"):
        assert told in page
    assert "node 1 was lost" in page
    assert "\x1b" not in page
    assert "\x1b[32mrunning" in job_page(a_status(), colour=True)


def test_the_root_cause_names_the_worker_and_the_next_command() -> None:
    text = "\n".join(root_cause(a_status(state="failed", error=BOOM, exit_code=3)))
    assert "rank 5 on node 1, exit code 3" in text
    assert "    ValueError: boom" in text
    assert "/jobs/mnist-3f9k/logs" in text
    assert "petctl logs mnist-3f9k --rank 5 --round 2" in text


def test_a_lost_job_without_an_error_still_says_what_to_do() -> None:
    assert "petctl logs mnist-3f9k" in "\n".join(root_cause(a_status(state="lost")))


@pytest.mark.parametrize("state", ["running", "failed", "lost"])
def test_a_cause_that_only_the_sentence_shows_is_told_with_its_advice(state: str) -> None:
    status = a_status(state=state, sentence="only 0 of 1; pod n-0 of node 0 was killed: (OOMKilled)")
    page = job_page(status, colour=False)
    assert "cause       host-out-of-memory: " in page and "ask for more memory (--memory)" in page
    assert ("cause  " in "\n".join(root_cause(status))) and page.count("OOMKilled") == 1
    assert "cause  " not in job_page(a_status(state="succeeded", sentence=status.sentence), colour=False)


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [("succeeded", 0, 0), ("failed", 7, 7), ("cancelled", 130, 130), ("lost", None, 1), ("succeeded", None, 0)],
)
def test_exit_codes(state: str, code: int | None, expected: int) -> None:
    assert exit_code(a_status(state=state, exit_code=code)) == expected


def test_when_lines_need_a_prefix() -> None:
    alone = SizeStatus(min=1, wanted=1, max=1)
    assert many_workers(a_status())
    assert many_workers(a_status(size=alone))  # four workers on one node
    assert not many_workers(a_status(size=alone, rounds=[]))


@pytest.mark.parametrize(
    ("event", "news"),
    [
        ({"kind": "started"}, False),
        ({"kind": "node", "restart": False}, False),
        ({"kind": "node", "restart": True}, True),
        ({"kind": "round", "round": 1}, False),
        ({"kind": "round", "round": 2}, True),
        ({"kind": "joined"}, True),
        ({"kind": "failure"}, False),  # the next round's sentence, or the end, says it again
        ({"kind": "closing"}, False),
        ({"kind": "something new"}, True),
    ],
)
def test_which_events_are_news(event: dict[str, Any], news: bool) -> None:
    assert is_news(event) is news


PROGRESS = ProgressStatus(
    step=120,
    steps_per_second=8.333,
    metrics={"loss": 0.31234567, "accuracy": "nan", "samples_per_second": 1024.0},
    ranks=[
        RankProgress(rank=0, node="0", step=120, steps_per_second=8.3),
        RankProgress(rank=1, node="0", step=118, steps_per_second=4.1),
    ],
    stragglers=[1],
)


def test_progress_is_on_the_line_and_on_the_page() -> None:
    status = a_status(progress=PROGRESS)
    words = "step 120  8.33/s  loss 0.3123  accuracy nan  samples_per_second 1024"
    assert words in status_line(status)
    page = job_page(status, colour=False)
    assert f"progress   {words}" in page
    assert "slow       rank 1 below 0.8 of the median pace" in page
    assert "118-120" in page
    assert "slow" not in job_page(a_status(progress=PROGRESS, state="succeeded"), colour=False)


def test_the_last_failure_is_on_the_page_of_a_job_that_goes_on() -> None:
    hung = ErrorStatus(
        node="1", rank=5, local_rank=1, code=124, message="no step for 60 s", traceback="Thread 0x1:", hung=True
    )
    page = job_page(a_status(last_failure=hung), colour=False)
    assert "last failure  rank 5 on node 1, hangs: no step for 60 s\n    Thread 0x1:" in page
    assert "last failure" not in job_page(a_status(last_failure=hung, error=BOOM, state="failed"), colour=False)


def test_a_worker_that_never_ran_has_not_exited() -> None:
    never = ErrorStatus(node="1", rank=0, local_rank=0, code=127, message="there is no mpirun", lasting=True)
    page = job_page(a_status(last_failure=never), colour=False)
    assert "last failure  rank 0 on node 1, was not started, code 127\n    there is no mpirun" in page


def test_a_known_cause_is_told_with_its_advice() -> None:
    error = replace(BOOM, cause="no-space")
    ending = root_cause(a_status(state="failed", error=error))
    place = ending.index("  cause       no-space: a disk is full")
    assert ending[place - 1] == "      ValueError: boom" and ending[place + 1].startswith(
        "  advice      Remove old files"
    )
    page = job_page(a_status(last_failure=error), colour=False)
    assert "\ncause       no-space: a disk is full\nadvice      Remove" in page
    newer = root_cause(a_status(state="failed", error=replace(BOOM, cause="of-tomorrow")))
    assert "  cause       of-tomorrow" in newer
    assert not [line for line in root_cause(a_status(state="failed", error=BOOM)) if line.startswith("  cause")]


@pytest.mark.parametrize("kind", ["stragglers", "refund"])
def test_stragglers_are_news(kind: str) -> None:
    assert is_news({"kind": kind})


@pytest.mark.parametrize("kind", ["progress", "stall"])
def test_first_steps_are_not_and_a_stall_is_told_by_the_round_after_it(kind: str) -> None:
    assert not is_news({"kind": kind})


ROLES = [RoleStatus(name="ps", count=1), RoleStatus(name="worker", count=0)]


def test_the_page_names_the_tasks_of_roles() -> None:
    nodes = [NodeStatus(name="0", state="running", ranks=[0, 1]), NodeStatus(name="1", state="running", ranks=[2])]
    size = SizeStatus(min=2, wanted=2, max=2)
    page = job_page(a_status(size=size, roles=ROLES, nodes=nodes, rounds=[]), colour=False)
    assert [line.split("  ")[-1] for line in page.splitlines() if line.strip()[:1] in "01N"] == [
        "TASKS",
        "ps 0, worker 0",
        "worker 1",
    ]
    assert "TASKS" not in job_page(a_status(), colour=False)


def test_names_are_given_where_they_are_the_same_in_each_round() -> None:
    assert task_names(ROLES, 2, 2) == ["ps 0", "worker 0", "worker 1"]
    assert task_names(ROLES, 1, 2) == task_names([], 2, 2) == []


def test_the_root_cause_names_the_task() -> None:
    error = replace(BOOM, task="worker 1")
    assert (
        root_cause(a_status(state="failed", error=error))[0] == "  root cause  worker 1 (rank 5) on node 1, exit code 3"
    )
