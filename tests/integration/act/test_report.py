"""What users see of real runs on this machine: logs as they grow, facts, tables, and the room that is left."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import petctl
from petctl.clusters.local.pools import pool
from petctl.compat.act.config.config import Config
from petctl.compat.act.overview import blame, lines_of, runs, summary
from petctl.compat.act.run_facts import facts
from petctl.compat.act.run_logs import fetch, last_lines
from petctl.jobs import get, list_jobs
from tests.integration.waiting import DEADLINE, until

FIRST, SECOND = "jianfw_1563257309_60ce2fc7", "jianfw_1563257310_0a1b2c3d"
# Each worker says where it is, waits for a file, and fails.
WORKER = """
import os, pathlib, sys, time
rank, number = os.environ["RANK"], os.environ["PETCTL_ROUND"]
print(f"rank {rank} in round {number}", flush=True)
print("a warning", file=sys.stderr, flush=True)
while not pathlib.Path("go-" + number).exists():
    time.sleep(0.01)
print("its last words", flush=True)
raise RuntimeError("out of luck")
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with one node slot for its runs; nothing of them is left afterwards."""
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "petctl.yaml").write_text("clusters: {local: {slots: 1}}\n")
    (tmp_path / "worker.py").write_text(WORKER)
    monkeypatch.chdir(tmp_path)
    try:
        yield tmp_path
    finally:
        for status in list_jobs():
            get(status.id).remove(force=True)


def test_a_run_from_its_first_line_to_its_end(project: Path) -> None:
    aml = Config(name="aml", cluster="local", experiment="jianfw")
    labels = {"act": "aml", "act-gpus": "2"}
    words = [sys.executable, "worker.py", "--note", "two words"]
    first = petctl.submit(
        petctl.Job(
            program=words,
            procs=2,
            prepare="echo made ready",
            restarts=1,
            grace=1,
            code="none",
            experiment="jianfw",
            labels=labels,
        ),
        id=FIRST,
    )
    second = petctl.submit(
        petctl.Job(program=["echo", "done"], code="none", experiment="jianfw", labels=labels), id=SECOND
    )
    other = petctl.submit(petctl.Job(program=["true"], code="none", experiment="another"))
    assets = project / "assets"

    def read(full: bool = True) -> dict[str, str]:
        return {path.name: path.read_text() for path in fetch(first, assets, full)}

    def written(number: int) -> bool:
        logs = Path(first.status().directory, "logs", f"round-000{number}")
        return sum(path.stat().st_size > 0 for path in logs.glob("rank-?.???")) == 4

    until(lambda: written(1), "the first lines")
    assert read() == {
        "70_driver_log_rank_0.txt": "rank 0 in round 1\n",
        "70_driver_log_rank_0.err.txt": "a warning\n",
        "70_driver_log_rank_1.txt": "rank 1 in round 1\n",
        "70_driver_log_rank_1.err.txt": "a warning\n",
        "55_prepare-0.txt": "made ready\n",
    }

    # One of three has the only node.
    known = until(lambda: _running(first), "a status that says so")
    assert (known["appID-s"], known["cluster"], known["num_gpu"]) == ("e2fc7", "aml", 2)
    assert known["cmd"] == shlex.join(words)
    assert known["ssh"] == f"act ssh {FIRST}" and "end_time" not in known
    assert "result" not in known
    room = summary(aml)
    assert room == {
        "cluster": "local",
        "max_nodes": 1,
        "running_nodes": 1,
        "free_nodes": 0,
        "running_jobs": 1,
        "queued_jobs": 2,
    }
    assert [row["appID"] for row in runs(aml)] == [SECOND, FIRST]
    assert [row["appID"] for row in runs(aml, most=1)] == [SECOND]
    assert [row["appID"] for row in runs(aml, ("Queued",))] == [SECOND]
    assert str(facts(second)["sentence"]).startswith("queued: ")
    assert [(row["appID"], row["experiment"]) for row in blame(aml)] == [(FIRST, "jianfw")]
    table = lines_of(runs(aml))
    assert table[:3] == ["cluster: aml", "experiment: jianfw", "num_gpu: 2"]
    assert [line.split()[:2] for line in table[5:]] == [[SECOND, "Queued"], [FIRST, "Running"]]

    # It fails once and goes on in another round, then fails for good.
    (project / "go-1").touch()
    until(lambda: written(2), "lines of the second round")
    assert len(read()) == 9 and "70_driver_log_rank_1_round_1.err.txt" in read()
    (project / "go-2").touch()
    first.wait(DEADLINE)
    logs = read()
    assert logs["70_driver_log_rank_0.txt"].splitlines()[0] == "rank 0 in round 2"
    assert logs["70_driver_log_rank_0_round_1.txt"].splitlines()[0] == "rank 0 in round 1"
    assert any("out of luck" in text for name, text in logs.items() if name.endswith(".err.txt"))
    paths = fetch(first, assets)
    assert paths[0].name == "70_driver_log_rank_0.txt" and paths[-1].name == "55_prepare-0.txt"
    shown = last_lines(paths)
    assert shown[0] == "rank 0 in round 2" and "a warning" in shown
    told = facts(first, paths)
    assert (told["status"], told["elapsedTime"]) == ("Failed", pytest.approx(0.0, abs=0.02))
    assert told["all_log_path"] == [str(path) for path in paths] and told["master_log"] == str(paths[0])
    assert "end_time" in told and "ssh" not in told and told["sentence"]

    # An ended run is not read again: its copies are what is left of it.
    log = Path(first.status().directory, "logs", "round-0002", "rank-0.out")
    log.write_text("gone")
    assert read() == logs == read(full=False)

    second.wait(DEADLINE)
    other.wait(DEADLINE)
    assert [row["status"] for row in runs(aml)] == ["Completed", "Failed"]
    assert [row["appID"] for row in runs(aml, ("Failed",))] == [FIRST]
    assert blame(aml) == []
    assert last_lines(fetch(second, assets, full=False)) == ["done"]


def test_the_room_of_a_cluster_that_was_made(project: Path) -> None:
    home = project / "home"
    pool.create(home, "eu", {"nodes": 2, "gpus_per_node": 4})
    eu = Config(name="eu", cluster="eu", experiment="jianfw")
    assert summary(eu) == {
        "cluster": "eu",
        "max_nodes": 2,
        "running_nodes": 0,
        "preparing_nodes": 0,
        "unusable_nodes": 0,
        "free_nodes": 2,
        "total_gpu": 8,
        "free_gpu": 8,
        "running_jobs": 0,
        "queued_jobs": 0,
    }
    assert runs(eu) == []


def _running(handle: petctl.JobHandle) -> dict[str, object] | None:
    known = facts(handle)
    return known if known["status"] == "Running" and "start_time" in known else None
