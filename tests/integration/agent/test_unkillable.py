"""A worker that not even SIGKILL ends: frozen by a cgroup, it is what a dead disk makes of one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.agent.conftest import Bench
from tests.integration.waiting import until

FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A cgroup (version 1) whose processes can be frozen."""
    if not (FREEZER / "tasks").exists() or os.geteuid() != 0:
        pytest.skip("needs root and the freezer of cgroups, version 1")
    group = FREEZER / f"petctl-test-{os.urandom(4).hex()}"
    group.mkdir()
    try:
        yield group
    finally:
        (group / "freezer.state").write_text("THAWED")
        until(lambda: not (group / "tasks").read_text(), "killed processes end when they are thawed")
        group.rmdir()


@pytest.mark.root
@pytest.mark.long
def test_the_others_go_on_without_a_node_whose_worker_cannot_be_killed(bench: Bench, freezer: Path) -> None:
    script = "echo $$; test $PETCTL_ROUND$RANK = 10 || exec sleep 600; until test -e fail; do sleep 0.05; done; exit 3"
    bench.open("shell", [script], nodes=2, min_nodes=1, restarts=1, grace=0.2, cwd=str(bench.directory))
    nodes = {name: bench.agent(node=name) for name in ("n0", "n1")}
    until(lambda: bench.status()["phase"] == "running", "the round runs")
    ranks = {row["rank"]: row["name"] for row in bench.status()["nodes"]}
    (freezer / "tasks").write_text(bench.line(rank=1))
    (freezer / "freezer.state").write_text("FROZEN")
    until(lambda: (freezer / "freezer.state").read_text() == "FROZEN\n", "it is frozen")
    (bench.directory / "fail").touch()
    until(lambda: bench.status()["phase"] == "gathering", "the round is broken")
    assert "stopping workers of an older round" in bench.status()["sentence"]
    until(lambda: bench.status()["phase"] == "running", "the others go on", 60)
    assert [row["name"] for row in bench.status()["nodes"]] == [ranks[0]]
    assert "its workers were killed but did not end within" in nodes[ranks[1]].log.read_text()
    assert nodes[ranks[1]].wait(60) != 0
    bench.cancel()
    assert nodes[ranks[0]].wait() == 130
