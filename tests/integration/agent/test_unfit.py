"""Nodes that cannot start their workers, whatever the round: no restart is used up for them, and others go on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from petctl.rendezvous.core.messages import ENDED_FAILED, SUCCEEDED
from tests.integration.agent.conftest import Bench
from tests.integration.waiting import until

RESTARTS = 100


@pytest.mark.parametrize(
    ("kind", "words", "fields", "said", "cause"),
    [
        ("program", ["/no/such/program"], {}, "cannot start /no/such/program", "missing-program"),
        ("shell", ["true"], {"cwd": "/no/such/place"}, "the working directory /no/such/place", "missing-file"),
        ("script", ["train.py"], {"python": "/no/python"}, "there is no /no/python", "missing-program"),
        ("shell", ["true"], {"procs": "gpu"}, "this node has no GPU", "gpu-missing"),
        ("shell", ["true"], {"requirements": "none.txt"}, "cannot read the requirements", "missing-file"),
    ],
    ids=["program", "directory", "interpreter", "gpu", "requirements"],
)
def test_what_would_come_again_ends_the_job_with_its_restarts_unused(
    bench: Bench, kind: str, words: list[str], fields: dict[str, Any], said: str, cause: str
) -> None:
    fields = {"cwd": str(bench.directory), **fields}
    revive = {"argv": ["true"], "lock": str(bench.directory / "revive.lock")}  # a node of the job's own cluster
    bench.open(kind, words, restarts=RESTARTS, revive=revive, **fields)
    node = bench.agent("--gpus", "")
    outcome = bench.ended()
    assert (outcome.state, outcome.code) == (ENDED_FAILED, 127)
    assert outcome.failure is not None and outcome.failure.lasting and outcome.failure.cause == cause
    assert outcome.sentence.startswith(f"node n0 could not start its workers: {said}")
    assert node.wait() == 127
    now = bench.status()
    assert (now["spent"], now["round"]) == (0, 1)


def test_a_program_that_runs_and_fails_is_restarted(bench: Bench) -> None:
    bench.open("shell", ["exec /no/such/program"], restarts=1)
    bench.agent()
    assert bench.ended().code == 127
    assert bench.status()["spent"] == 1


def test_the_job_goes_on_without_the_one_node_that_lacks_the_program(bench: Bench, tmp_path: Path) -> None:
    only, end = tmp_path / "bin", tmp_path / "end"
    only.mkdir()
    program = only / "only-here"
    program.write_text(f"#!/bin/sh\necho $RANK of $WORLD_SIZE\nuntil test -e {end}; do sleep 0.05; done\n")
    program.chmod(0o755)
    bench.open("program", ["only-here"], nodes=2, min_nodes=1)
    bench.agent(node="n0", env={**os.environ, "PATH": f"{only}:{os.environ['PATH']}"})
    bench.agent(node="n1")

    def states() -> dict[str, str]:
        return {row["name"]: row["state"] for row in bench.status()["nodes"]}

    until(lambda: states() == {"n0": "running", "n1": "unfit"}, "a round without n1")
    assert bench.line(number=2) == "0 of 1"
    now = bench.status()
    why = "node n1 could not start its workers: cannot start only-here: No such file or directory"
    assert now["reason"] == why and now["sentence"] == f"running on 1 node, 1 worker; {why}"
    end.touch()
    assert bench.ended().state == SUCCEEDED
    assert bench.status()["spent"] == 0
    bench.nothing_left()
