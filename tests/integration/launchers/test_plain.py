"""Launcher plain on the local cluster: one process per node, told of the others, restarted together."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import petctl
from petctl.jobs import JobHandle, submit
from tests.integration.local.conftest import Stage
from tests.integration.waiting import until

TASK = """
import json, os, pathlib, socket, sys, time
here = pathlib.Path(sys.argv[1])
number, rank = os.environ["PETCTL_ROUND"], int(os.environ["RANK"])
hosts = os.environ["AZ_BATCHAI_WORKER_HOSTS"].split(",")
listener = socket.socket()  # without SO_REUSEADDR: the port must be free for anybody
listener.bind(("", int(hosts[rank].rpartition(":")[2])))
listener.listen()
(here / f"up-{number}-{rank}.new").write_text(json.dumps({**os.environ, "pid": os.getpid()}))
(here / f"up-{number}-{rank}.new").rename(here / f"up-{number}-{rank}")
while not (here / "finish").exists():
    time.sleep(0.02)
for address in hosts:
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), timeout=60).close()
while len(list(here.glob(f"met-{number}-*"))) < len(hosts):
    (here / f"met-{number}-{rank}").touch()
    time.sleep(0.02)
"""


def start(stage: Stage, **fields: Any) -> JobHandle:
    (stage.path / "task.py").write_text(TASK)
    words = {"script": "task.py", "args": [str(stage.path)], "launcher": "plain", "cwd": stage.path, "grace": 2}
    return submit(petctl.Job(**{**words, **fields}))


def tasks_of(stage: Stage, number: int, count: int) -> list[dict[str, str]]:
    """What the tasks of a round have found in their environments, by rank."""
    files = [stage.path / f"up-{number}-{rank}" for rank in range(count)]
    until(lambda: all(file.exists() for file in files), f"{count} tasks of round {number}", 60)
    return [json.loads(file.read_text()) for file in files]


def test_processes_reach_each_other_where_they_were_told(stage: Stage) -> None:
    handle = start(stage, nodes=2, procs=2)
    found = tasks_of(stage, 1, 4)
    assert {env["PETCTL_HOSTS"] for env in found} == {"127.0.0.1,127.0.0.1"}
    assert [env["AZ_BATCHAI_TASK_INDEX"] for env in found] == ["0", "1", "2", "3"]
    assert [env["PETCTL_NODE"] for env in found] == ["0", "0", "1", "1"]
    stage.finish()
    status = handle.wait(60)
    assert (status.state, status.exit_code, status.world_size) == ("succeeded", 0, 4)


def test_one_that_fails_takes_all_into_the_next_round(stage: Stage) -> None:
    handle = start(stage, nodes=2)
    first = tasks_of(stage, 1, 2)
    os.kill(int(first[1]["pid"]), signal.SIGKILL)
    second = tasks_of(stage, 2, 2)
    assert first[0]["pid"] != second[0]["pid"], "the whole gang is started anew"
    assert first[0]["AZ_BATCHAI_WORKER_HOSTS"] != second[0]["AZ_BATCHAI_WORKER_HOSTS"], "on ports of their own"
    stage.finish()
    status = handle.wait(60)
    assert (status.state, status.spent) == ("succeeded", 1)


def test_a_program_needs_nothing_of_all_this(stage: Stage) -> None:
    handle = submit(petctl.Job(shell="echo $RANK of $WORLD_SIZE", launcher="plain", nodes=2, cwd=str(stage.path)))
    assert handle.wait(60).state == "succeeded"
    assert sorted(line.text for line in handle.logs()) == [b"0 of 2\n", b"1 of 2\n"]


def test_a_failure_is_the_jobs_when_no_restart_is_left(stage: Stage) -> None:
    line = 'test "$RANK" = 0 && exec sleep 600; echo no luck >&2; exit 9'
    handle = submit(petctl.Job(shell=line, launcher="plain", nodes=2, restarts=0, grace=2, cwd=str(Path(stage.path))))
    status = handle.wait(60)
    assert (status.state, status.exit_code) == ("failed", 9)
    assert status.error is not None and (status.error.rank, status.error.message) == (1, "no luck")


def test_a_role_of_every_node_grows_with_the_job(stage: Stage) -> None:
    handle = start(stage, nodes="1:1:2", roles=[{"name": "worker", "count": "nodes"}])
    (alone,) = tasks_of(stage, 1, 1)
    handle.scale(2)
    both = tasks_of(stage, 2, 2)
    assert [len(json.loads(env["TF_CONFIG"])["cluster"]["worker"]) for env in (alone, *both)] == [1, 2, 2]
    assert [(env["ROLE_RANK"], env["ROLE_WORLD_SIZE"]) for env in both] == [("0", "2"), ("1", "2")]
    stage.finish()
    assert handle.wait(60).state == "succeeded"
