"""Nodes that cannot do their part of an MPI job say so themselves, all in the same round, before mpirun is asked."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import petctl
from petctl.job.spec import IN_PLACE
from petctl.jobs import submit
from tests.integration.local.conftest import Stage
from tests.integration.mpi.conftest import PATIENCE


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"program": "./no-such-program"}, "missing-program"),
        ({"script": "train.py", "python": sys.executable, "env": {"PATH": "/no/such/place"}}, "mpirun-missing"),
    ],
    ids=["program", "mpirun"],
)
def test_no_restart_is_used_up(mpi: Stage, fields: dict[str, Any], cause: str) -> None:
    (mpi.path / "train.py").write_text("")
    job = petctl.Job(launcher="mpi", nodes=2, restarts=5, cwd=mpi.path, code=IN_PLACE, **fields)
    status = submit(job).wait(PATIENCE)
    assert (status.state, status.exit_code, status.spent, status.round) == ("failed", 127, 0, 1)
    assert status.error is not None and status.error.lasting and status.error.cause == cause
    assert status.sentence.startswith(f"node {status.error.node} could not start its workers: ")
