"""Named clusters with real jobs and real setup processes: made, filled, resized in each way, scaled by themselves,
broken, repaired, deleted; and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from petctl.clusters.base import AlreadyExists
from petctl.clusters.local.pools import pool
from petctl.clusters.local.pools.spec import find_spec
from petctl.clusters.local.processes import node_processes
from petctl.errors import NotFound, UsageError
from petctl.home import petctl_home
from petctl.jobs import get, list_jobs
from tests.integration.local.conftest import (
    Stage,
    exists,
    job_path,
    processes_of,
    still_there,
    supervisor_pid,
)
from tests.integration.waiting import until

PATIENCE = 60.0


@pytest.fixture(autouse=True)
def clusters(stage: Stage) -> Iterator[None]:
    """Every cluster is deleted at the end, with its jobs, and leaves neither a file nor a process."""
    marks: list[tuple[str, Path]] = []
    try:
        yield
    finally:
        stage.finish()
        home = petctl_home()
        for name in pool.names(home):
            spec = find_spec(home, name)
            assert spec is not None
            marks.append((f"cluster-{spec.id}", home / "clusters" / name / "nodes"))
            pool.delete(home, name, force=True)
    left = [pid for owner, nodes in marks for pid in node_processes(owner, nodes)]
    assert not left, f"setup processes were left behind: {left}"
    assert not [path for path in (home / "clusters").glob("*") if path.name != "local"]


def made(name: str = "team", **spec: Any) -> str:
    pool.create(petctl_home(), name, spec)
    return name


def states(name: str = "team") -> list[str]:
    return [f"{row['name']} {row['state']} {row['job']}".strip() for row in pool.nodes(petctl_home(), name)]


def counts(name: str = "team") -> dict[str, int]:
    return {state: count for state, count in pool.read(petctl_home(), name)["counts"].items() if count}


def resized(nodes: int, deallocation: str | None = None) -> None:
    pool.change(petctl_home(), "team", nodes=nodes, deallocation=deallocation)


def test_jobs_get_whole_nodes_and_wait_for_their_turn(stage: Stage) -> None:
    made(nodes=2)
    first = stage.start(nodes=2, cluster="team")
    stage.running(2)
    second = stage.start(cluster="team")
    assert states() == [f"0 running {first.id}", f"1 running {first.id}"]
    until(lambda: second.status().state == "queued", "the second in the queue", PATIENCE)
    assert "needs 1 of 2" in second.status().sentence
    assert [status.id for status in list_jobs("team")] == [second.id, first.id]
    assert first.status().cluster == "team"
    with pytest.raises(UsageError, match="1 running and 1 queued"):
        pool.delete(petctl_home(), "team")
    stage.finish()
    assert first.wait(PATIENCE).state == second.wait(PATIENCE).state == "succeeded"
    until(lambda: counts() == {"idle": 2}, "two idle nodes", PATIENCE)


def test_a_cluster_has_a_queue_of_its_own(stage: Stage) -> None:
    made(nodes=1)
    stage.start(cluster="team")
    stage.running(1)
    other = stage.start("exit", "0")
    assert other.wait(PATIENCE).state == "succeeded"


def test_a_deleted_cluster_ends_its_jobs_and_takes_no_more(stage: Stage) -> None:
    made(nodes=1)
    running, queued = stage.start(cluster="team"), stage.start(cluster="team")
    stage.running(1)
    pool.delete(petctl_home(), "team", force=True)
    assert [get(job.id).status().state for job in (running, queued)] == ["cancelled", "cancelled"]
    assert not still_there([job_path(running), job_path(queued)])
    assert not (petctl_home() / "clusters" / "team").exists()
    with pytest.raises(UsageError, match="there is no cluster 'team'"):
        stage.start(cluster="team")
    with pytest.raises(NotFound):
        pool.read(petctl_home(), "team")


def test_a_name_is_given_once(stage: Stage) -> None:
    made(nodes=0)
    with pytest.raises(AlreadyExists):
        made(nodes=1)
    with pytest.raises(AlreadyExists):
        made("local", nodes=1)


def test_requeue_a_gang_stops_waits_and_goes_on(stage: Stage) -> None:
    made(nodes=2)
    job = stage.start(nodes=2, cluster="team")
    before = stage.running(2)
    resized(1)
    until(lambda: job.status().state == "queued", "the job back in the queue", PATIENCE)
    until(lambda: not processes_of(job_path(job)) or job.status().nodes == [], "its nodes gone", PATIENCE)
    until(lambda: counts() == {"idle": 1}, "one idle node", PATIENCE)
    assert "needs 2 of 1" in job.status().sentence
    assert "petctl cluster resize team 2" in job.status().sentence
    resized(2)
    after = stage.running(2, after=before)
    assert after > before
    status = job.status()
    assert (status.spent, status.id) == (0, job.id)
    stage.finish()
    assert job.wait(PATIENCE).state == "succeeded"


def test_terminate_cancels_the_job_and_says_why(stage: Stage) -> None:
    made(nodes=2, deallocation="terminate")
    job = stage.start(nodes=2, cluster="team")
    stage.running(2)
    resized(1)
    status = job.wait(PATIENCE)
    assert (status.state, status.exit_code) == ("cancelled", 130)
    assert "cluster team got smaller" in status.sentence
    until(lambda: counts() == {"idle": 1}, "one idle node", PATIENCE)


def test_wait_lets_the_job_end_on_its_nodes(stage: Stage) -> None:
    made(nodes=2)
    job = stage.start(nodes=2, cluster="team")
    number = stage.running(2)
    resized(0, "wait")
    assert states() == [f"0 leaving {job.id}", f"1 leaving {job.id}"]
    stage.goes_on(number, 2)
    stage.finish()
    assert job.wait(PATIENCE).state == "succeeded"
    until(lambda: states() == [], "no nodes", PATIENCE)


def test_an_elastic_job_gets_smaller_instead_and_grows_again(stage: Stage) -> None:
    made(nodes=2)
    job = stage.start(nodes="1:2:2", cluster="team")
    first = stage.running(2)
    resized(1)
    second = stage.running(1, after=first)
    until(lambda: states() == [f"0 running {job.id}"], "the other node gone", PATIENCE)
    resized(2)
    stage.running(2, after=second)
    assert job.status().spent == 0
    stage.finish()
    assert job.wait(PATIENCE).state == "succeeded"


def test_a_supervisor_that_is_killed_while_its_job_goes_back_is_replaced(stage: Stage) -> None:
    made(nodes=2)
    job = stage.start("stubborn", nodes=2, cluster="team", grace=1)
    before = stage.running(2)
    resized(1)
    events = job_path(job) / "events.jsonl"
    until(lambda: '"requeue"' in events.read_text(), "the job on its way back", PATIENCE)
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(supervisor_pid(job), signal.SIGKILL)
    until(lambda: counts() == {"idle": 1} and job.status().state == "queued", "the job in the queue", PATIENCE)
    resized(2)
    stage.running(2, after=before)


def test_auto_scale_grows_with_the_jobs_and_shrinks_when_they_have_gone(stage: Stage) -> None:
    made(min=0, max=2, idle_time=0.5)
    assert states() == []
    job = stage.start(nodes=2, cluster="team")
    stage.running(2)
    assert counts() == {"running": 2}
    waiting = stage.start(cluster="team")
    until(lambda: waiting.status().state == "queued", "another in the queue", PATIENCE)
    with pytest.raises(UsageError, match="grows to 2"):
        stage.start(nodes=3, cluster="team")
    stage.finish()
    assert job.wait(PATIENCE).state == waiting.wait(PATIENCE).state == "succeeded"
    until(lambda: states() == [], "no nodes", PATIENCE)


def test_auto_scale_gives_an_elastic_job_what_it_wants(stage: Stage) -> None:
    made(min=0, max=3)
    stage.start(nodes="1:3:3", cluster="team")
    stage.running(3)
    assert counts() == {"running": 3}


def test_nodes_are_set_up_before_jobs_get_them(stage: Stage) -> None:
    output = stage.path / "setup"
    setup = {
        "command": 'echo "$GREETING $PETCTL_NODE"; echo oops >&2',
        "output": str(output),
        "env": {"GREETING": "hi"},
    }
    made(nodes=2, setup=setup)
    job = stage.start("exit", "0", nodes=2, cluster="team")
    assert job.wait(PATIENCE).state == "succeeded"
    assert (output / "team" / "1" / "stdout.txt").read_text() == "hi 1\n"
    assert (output / "team" / "0" / "stderr.txt").read_text() == "oops\n"


def test_a_node_whose_setup_fails_is_unusable_until_it_is_repaired(stage: Stage) -> None:
    repaired = stage.path / "repaired"
    made(nodes=1, setup=f"test -e {repaired} || {{ echo no such disk >&2; exit 3; }}")
    until(lambda: counts() == {"unusable": 1}, "an unusable node", PATIENCE)
    [row] = pool.nodes(petctl_home(), "team")
    assert row["reason"].startswith("setup ended with code 3: no such disk")
    assert "petctl cluster nodes team --reset 0" in row["reason"]
    job = stage.start("exit", "0", cluster="team")
    until(lambda: job.status().state == "queued", "a job in the queue", PATIENCE)
    repaired.touch()
    pool.reset(petctl_home(), "team", "0")
    assert job.wait(PATIENCE).state == "succeeded"
    assert counts() == {"idle": 1}


def test_a_setup_that_is_killed_is_run_again_but_not_for_ever(stage: Stage) -> None:
    pids = stage.path / "pids"
    made(nodes=1, setup=f'echo "$PPID $$" >> {pids}; exec sleep 600')

    def started(times: int) -> list[int]:
        lines = pids.read_text().splitlines() if pids.exists() else []
        pool.read(petctl_home(), "team")
        return [int(word) for word in lines[-1].split()] if len(lines) == times else []

    def gone(pid: int) -> bool:
        return not exists(pid)

    for times in (1, 2, 3):
        process, task = until(partial(started, times), f"setup number {times}", PATIENCE)
        assert counts() == {"preparing": 1}
        os.kill(process, signal.SIGKILL)
        until(partial(gone, task), "the task gone with its process", PATIENCE)
    until(lambda: counts() == {"unusable": 1}, "no fourth time", PATIENCE)
    assert "killed 3 times" in pool.nodes(petctl_home(), "team")[0]["reason"]


def test_a_node_that_is_not_wanted_any_more_takes_its_setup_along(stage: Stage) -> None:
    pid_file = stage.path / "pid"
    made(nodes=1, setup=f"echo $$ > {pid_file}; exec sleep 600")
    pid = int(until(lambda: pid_file.exists() and pid_file.read_text().strip(), "the setup", PATIENCE))
    resized(0)
    assert not exists(pid)
    assert states() == []


def test_jobs_find_the_clusters_directories(stage: Stage) -> None:
    data = stage.path / "data"
    data.mkdir()
    made(nodes=1, mounts=[{"path": "in/data", "directory": str(data)}])
    (stage.path / "worker.py").write_text(
        "import os, pathlib\n(pathlib.Path(os.environ['PETCTL_CLUSTER_MOUNTS']) / 'in/data/made').write_text('x')\n"
    )
    assert stage.start(cluster="team").wait(PATIENCE).state == "succeeded"
    assert (data / "made").read_text() == "x"
    pool.delete(petctl_home(), "team")
    assert (data / "made").exists()


def test_a_mount_that_fails_says_so_in_its_own_words(stage: Stage) -> None:
    made(nodes=1, mounts=[{"path": "far", "command": "sh -c 'echo no route to $1 >&2; exit 32' sh"}])
    until(lambda: counts() == {"unusable": 1}, "an unusable node", PATIENCE)
    reason = pool.nodes(petctl_home(), "team")[0]["reason"]
    place = petctl_home() / "clusters" / "team" / "mounts" / "far"
    assert reason.startswith(
        f"far could not be mounted: sh exited with code 32: no route to {place}; after repairing it:"
    )


def test_two_jobs_have_different_gpus(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    made(nodes=2, gpus_per_node=2)
    (stage.path / "worker.py").write_text(
        "import os, pathlib, sys, time\nhere = pathlib.Path(sys.argv[1])\n"
        "(here / os.environ['PETCTL_JOB_ID']).write_text(os.environ['CUDA_VISIBLE_DEVICES'])\n"
        "while not (here / 'finish').exists():\n    time.sleep(0.02)\n"
    )
    jobs = [stage.start(cluster="team") for _ in range(2)]
    files = [stage.path / job.id for job in jobs]
    texts = lambda: [f.read_text() for f in files if f.exists()]  # noqa: E731
    seen = until(lambda: len(found := texts()) == 2 and all(found) and found, "both", PATIENCE)
    assert sorted(seen) == ["4,5", "6,7"]


@pytest.mark.root
def test_what_a_command_mounts_is_unmounted_and_never_deleted(stage: Stage) -> None:
    source = stage.path / "source"
    source.mkdir()
    (source / "precious").touch()
    trial = stage.path / "trial"
    trial.mkdir()
    if subprocess.run(["mount", "--bind", source, trial], capture_output=True).returncode:
        pytest.skip("this user may not mount")
    subprocess.run(["umount", trial], check=True)
    made(nodes=2, mounts=[{"path": "disk", "command": f"mount --bind {source}"}])
    until(lambda: counts() == {"idle": 2}, "nodes with their mount", PATIENCE)
    place = pool.mount_root(petctl_home(), "team") / "disk"
    assert (place / "precious").exists()
    pool.delete(petctl_home(), "team")
    assert (source / "precious").exists()
    assert not place.exists()


def test_the_file_of_the_nodes_can_be_lost(stage: Stage) -> None:
    made(nodes=2)
    job = stage.start(cluster="team")
    number = stage.running(1)
    for path in (petctl_home() / "clusters" / "team").glob("slots.db*"):
        path.unlink()
    until(lambda: f"0 running {job.id}" in states(), "its node again", PATIENCE)
    stage.goes_on(number, 1)


def test_the_commands_that_the_documentation_shows(stage: Stage) -> None:
    for line in (
        "cluster create team --nodes 2",
        "cluster list",
        "cluster nodes team",
        "cluster resize team 1",
        "cluster autoscale team --min 0 --max 4 --idle-time 5m",
        "cluster show team -o json",
        "cluster delete team",
    ):
        words = [sys.executable, "-m", "petctl", *line.split()]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, f"petctl {line}: {done.stderr}"
