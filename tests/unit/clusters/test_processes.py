"""The sweep ends what carries a job's marker, and nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from petctl.clusters.local.processes import node_processes, sweep

SLEEP = [sys.executable, "-c", "print(flush=True); input()"]


def started(**environment: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        SLEEP, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **environment}, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_job_of_the_same_id_in_another_home_is_left_alone(tmp_path: Path) -> None:
    """Ids of one's own choice are easily chosen twice."""
    own, other = (tmp_path / home / "jobs" / "sweep-000" for home in ("own", "other"))
    (tmp_path / "link").symlink_to(tmp_path / "own")
    spelt = tmp_path / "link" / "jobs" / "sweep-000"
    mark = {"PETCTL_NODE_KEY": "sweep-000/0/i1"}
    ours = [started(**mark, PETCTL_OUTPUT_DIR=str(place / "outputs")) for place in (own, spelt)]
    ours.append(started(**mark, PETCTL_OUTPUT_DIR="/set/by/the/script"))
    theirs = started(**mark, PETCTL_OUTPUT_DIR=str(other / "outputs"))
    try:
        assert sweep("sweep-000", own / "nodes") == 3
        assert [process.wait(5) for process in ours] == [-9] * 3
        assert theirs.poll() is None
    finally:
        for process in (*ours, theirs):
            process.kill()
            process.communicate()


def test_only_marked_processes_are_ended(tmp_path: Path) -> None:
    mine = started(PETCTL_NODE_KEY="job-abcd/0/i1")
    neighbour = started(PETCTL_NODE_KEY="job-abcd/01/i1")
    other = started(PETCTL_NODE_KEY="job-abcde/0/i1")
    plain = started(OTHER_PETCTL_NODE_KEY="job-abcd/0/i1")
    everybody = [mine, neighbour, other, plain]
    try:
        assert node_processes("job-abcd", tmp_path, "0") == [mine.pid]
        assert sweep("job-abcd", tmp_path, "0") == 1
        assert mine.wait(5) == -9
        assert [process.poll() for process in everybody[1:]] == [None] * 3
        assert sweep("job-abcd", tmp_path) == 1
        assert neighbour.wait(5) == -9
        assert (other.poll(), plain.poll()) == (None, None)
        assert sweep("job-abcd", tmp_path) == 0
    finally:
        for process in everybody:
            process.kill()
            process.communicate()
